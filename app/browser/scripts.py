"""The scripts of this folder, as Streamlit wants them: constants that read no data of a run but what a component tells them."""

from pathlib import Path


def script(*names: str) -> str:
    """One module of these files, in this order."""
    return "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in names)
