"""The colour and symbol of each run, as HTML above the charts of several runs: HTML wraps, a chart does not."""

from collections.abc import Mapping, Sequence

from ...presentation.escape import html as escaped
from ...presentation.run_names import MARKS
from ...presentation.theme import FONT, LIGHT, Theme


def key_of_runs(members: Mapping[str, Sequence[str]], slots: Mapping[str, int], *, theme: Theme = LIGHT) -> str:
    """members: line -> the runs in it. slots: line -> its slot; empty if there is only one line."""
    lines = "".join(
        f"<span>{_symbol(slots.get(name), theme)} {escaped(name, 160)}{_runs(name, runs)}</span>"
        for name, runs in members.items()
    )
    return (
        f'<div class="rs-key-{theme.name}"><style>.rs-key-{theme.name}{{display:flex;flex-wrap:wrap;gap:2px 18px;'
        f"font:13px/1.5 {FONT};color:{theme.text}}}.rs-key-{theme.name} span{{overflow-wrap:anywhere}}"
        f".rs-key-{theme.name} small{{font-size:12px;color:{theme.muted}}}</style>{lines}</div>"
    )


def _symbol(slot: int | None, theme: Theme) -> str:
    return "" if slot is None else f'<b style="color:{theme.runs[slot]}">{MARKS[slot]}</b>'


def _runs(name: str, runs: Sequence[str]) -> str:
    if len(runs) < 2:
        return ""
    ends = ", ".join(escaped(run.removeprefix(f"{name}/"), 80) for run in runs)
    return f" <small>{len(runs)} runs: {ends}</small>"
