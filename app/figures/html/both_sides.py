"""The settings of engine and trainer beside each other, as HTML, with the verdict on each and the reason why it matters."""

from collections.abc import Sequence

from ratioscope.ingest.analysis.comparability import ComparedSetting

from ...presentation.escape import html as escaped
from ...presentation.theme import FONT, LIGHT, Theme

VERDICTS = {
    "ok": ("●", "ok", "healthy"),
    "expected": ("○", "expected", "healthy"),
    "differs": ("■", "differs", "act"),
    "unknown": ("?", "unknown", "watch"),
}
LONGEST = 160


def both_sides(settings: Sequence[ComparedSetting], *, theme: Theme = LIGHT) -> str:
    """A table with a row per setting; on a narrow screen its cells stand below each other."""
    head = "".join(f"<th>{word}</th>" for word in ("", "engine", "trainer", "verdict", "why it matters"))
    rows = "".join(_row(each, theme) for each in settings)
    return (
        f'<div class="rs-sides-{theme.name}"><style>{_style(theme)}</style><table><tr>{head}</tr>{rows}</table></div>'
    )


def _row(setting: ComparedSetting, theme: Theme) -> str:
    mark, word, severity = VERDICTS[setting.state]
    source = f"<small>{escaped(setting.source, LONGEST)}</small>" if setting.source else ""
    cells = (
        f"<b>{escaped(setting.name)}</b>{source}",
        escaped(setting.rollout, LONGEST),
        escaped(setting.trainer, LONGEST),
        f'<span style="color:{theme.ink[severity]}">{mark} {word}</span>',
        f"<i>{escaped(setting.why)}</i>{_to_record(setting)}",
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _to_record(setting: ComparedSetting) -> str:
    """The configuration that would tell an unknown setting."""
    return f"<small>to fill this row: config={escaped(setting.record, LONGEST)}</small>" if setting.record else ""


def _style(theme: Theme) -> str:
    root = f".rs-sides-{theme.name}"
    return (
        f"{root}{{font:13px/1.45 {FONT};color:{theme.text};overflow-wrap:anywhere}}"
        f"{root} table{{width:100%;border-collapse:collapse;border:0}}"
        f"{root} th{{text-align:left;font-weight:500;color:{theme.muted};padding:4px 14px 4px 0;border:0}}"
        f"{root} td{{vertical-align:top;padding:6px 14px 6px 0;border:0;border-top:1px solid {theme.border}}}"
        f"{root} td:nth-child(4){{white-space:nowrap}}{root} td:nth-child(5){{color:{theme.muted};max-width:60ch}}"
        f"{root} b{{font-weight:500}}{root} i{{font-style:normal}}"
        f"{root} small{{display:block;color:{theme.muted};font-size:11px}}"
        f"@media(max-width:640px){{{root} tr{{display:block;padding:6px 0;border-top:1px solid {theme.border}}}"
        f"{root} tr:first-child{{display:none}}{root} td{{display:block;border:0;padding:1px 0}}"
        f'{root} td:nth-child(2)::before{{content:"engine: ";color:{theme.muted}}}'
        f'{root} td:nth-child(3)::before{{content:"trainer: ";color:{theme.muted}}}}}'
    )
