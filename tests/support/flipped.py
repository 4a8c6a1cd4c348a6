"""A file with one bit altered, wherever Hypothesis likes."""

from pathlib import Path

from hypothesis import strategies as st


def flip_a_bit(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
