"""A table of sentences as HTML: its cells are broken into lines, where a data grid would cut them off."""

from collections.abc import Sequence

from ...presentation.escape import html as escaped
from ...presentation.theme import FONT, LIGHT, Theme

LONGEST = 3000
SHORT = 5
"""A table of so many columns has short cells: on a narrow screen two of them stand side by side."""


def reasons(head: Sequence[str], rows: Sequence[Sequence[str]], *, theme: Theme = LIGHT) -> str:
    """The first column is the subject. On a narrow screen the cells of a row stand below each other, with their heads."""
    top = "".join(f"<th>{escaped(word)}</th>" for word in head)
    body = "".join(_row(head, row) for row in rows)
    short = ' class="rs-short"' if len(head) >= SHORT else ""
    return (
        f'<div class="rs-reasons-{theme.name}"><style>{_style(theme)}</style>'
        f"<table{short}><tr>{top}</tr>{body}</table></div>"
    )


def _row(head: Sequence[str], row: Sequence[str]) -> str:
    cells = (
        f'<td data-h="{escaped(name)}">{escaped(text, LONGEST)}</td>' for name, text in zip(head, row, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _style(theme: Theme) -> str:
    root = f".rs-reasons-{theme.name}"
    return (
        f"{root}{{font:13px/1.45 {FONT};color:{theme.text};overflow-wrap:anywhere}}"
        f"{root} table{{width:100%;border-collapse:collapse;border:0}}"
        f"{root} th{{text-align:left;font-weight:500;color:{theme.muted};padding:4px 16px 4px 0;border:0}}"
        f"{root} td{{vertical-align:top;padding:5px 16px 5px 0;border:0;border-top:1px solid {theme.border}}}"
        f"{root} td:first-child{{width:26%;font-weight:500}}{root} td:nth-child(n+3){{color:{theme.muted}}}"
        f"@media(max-width:640px){{{root} tr{{display:block;padding:6px 0;border-top:1px solid {theme.border}}}"
        f"{root} tr:first-child{{display:none}}{root} td,{root} td:first-child{{display:block;width:auto;border:0;padding:1px 0}}"
        f'{root} td:nth-child(n+2)::before{{content:attr(data-h) ": ";color:{theme.muted}}}'
        f"{root} td:nth-child(n+2):empty{{display:none}}"
        f"{root} .rs-short tr{{display:grid;grid-template-columns:1fr 1fr;column-gap:16px}}"
        f"{root} .rs-short tr:first-child{{display:none}}{root} .rs-short td:first-child{{grid-column:1/-1}}}}"
    )
