"""Corrections side by side as an HTML table: a row each, the best of every column marked and not by colour alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

from ratioscope.metrics.distribution import Interval

from ...presentation.digits import digits, percent
from ...presentation.escape import html as escaped
from ...presentation.theme import FONT, LIGHT, Theme
from ..drawing.plot import swatch

BEST = "◆"


@dataclass(frozen=True)
class TableColumn:
    """A column of the table."""

    name: str
    title: str
    about: str
    """The help of its heading; may be empty."""
    better: Literal["high", "low", "one", ""] = ""
    """The better end; "" if neither end is better."""
    share: bool = True
    """True if the value is a percentage."""


COLUMNS = (
    TableColumn("ess_after", "ESS after", "share of the sample that still counts: (sum v)^2 / (n sum v^2)", "high"),
    TableColumn(
        "mean_weight", "mean weight", "factor that remains on the learning rate: sum v / n", "one", share=False
    ),
    TableColumn("bias", "bias", "how far the weights are from exact ones: mean |v - w|", "low", share=False),
    TableColumn(
        "variance", "variance", "variance that the weights add: sum v^2 / n - (sum v / n)^2", "low", share=False
    ),
    TableColumn("clipped_share", "clipped", "share whose weight a bound changes"),
    TableColumn(
        "removed_share", "removed tokens", "share that is removed from the loss, by a mask or a weight of 0", "low"
    ),
    TableColumn("removed_share_sequence", "removed sequences", "share with no token left", "low"),
    TableColumn(
        "mass_removed",
        "mass removed",
        "share of the total weight that is lost: 1 - sum v / sum w; negative where a lower bound or a rejection adds more",
    ),
)


@dataclass(frozen=True)
class TableRow:
    """A row of the table: one correction."""

    name: str
    over: str
    """The number of weights that the values are means over."""
    values: Mapping[str, Interval] | None
    """Column.name -> value; None if the correction has no values."""
    note: str = ""
    fair: bool = True
    """True if the row can be compared with the other rows."""


def comparison_table(rows: Sequence[TableRow], *, theme: Theme = LIGHT) -> str:
    """The rows in their order. A row with another weighting cannot be compared fairly and is never the best."""
    best = {column.name: _best(rows, column) for column in COLUMNS}
    head = "".join(f'<th title="{escaped(column.about)}">{escaped(column.title)}</th>' for column in COLUMNS)
    body = "".join(_row(at, row, best, theme) for at, row in enumerate(rows))
    root = f"rs-compare-{theme.name}"
    return (
        f'<div class="{root}" tabindex="0" role="region" aria-label="corrections"><style>{_style(root, theme)}</style>'
        f"<table><thead><tr><th>correction</th>"
        f"<th>over</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _best(rows: Sequence[TableRow], column: TableColumn) -> float | None:
    """Distance of the best value of the column from the ideal; None if no row can be the best."""
    distances = [distance for row in rows if (distance := _distance(row, column)) is not None]
    return min(distances) if len(distances) > 1 and max(distances) > min(distances) + 1e-12 else None


def _distance(row: TableRow, column: TableColumn) -> float | None:
    value = row.values.get(column.name) if row.values is not None and row.fair else None
    if value is None or isnan(value.low) or not column.better or _leaves_nothing(row):
        return None
    middle = (value.low + value.high) / 2
    return {"high": -middle, "low": middle, "one": abs(middle - 1)}[column.better]


def _leaves_nothing(row: TableRow) -> bool:
    """True if no weight is left: then its variance of 0 is no merit."""
    ess = (row.values or {}).get("ess_after")
    return ess is not None and isnan(ess.low)


def _row(at: int, row: TableRow, best: Mapping[str, float | None], theme: Theme) -> str:
    note = f"<small>{escaped(row.note, 300)}</small>" if row.note else ""
    name = f"<th><div>{swatch(at, theme)}<span>{escaped(row.name, 120)}{note}</span></div></th>"
    cells = "".join(_cell(row, column, best[column.name]) for column in COLUMNS)
    return f'<tr>{name}<td class="o" data-of="over">{escaped(row.over)}</td>{cells}</tr>'


def _cell(row: TableRow, column: TableColumn, best: float | None) -> str:
    value, of = row.values.get(column.name) if row.values is not None else None, f'data-of="{escaped(column.title)}"'
    if value is None or isnan(value.low):
        return f'<td class="n" {of}>–</td>'
    say = percent if column.share else digits
    close = value.high - value.low <= 1e-12 * max(1.0, abs(value.low)) or value.high == value.low
    shown = say(value.low) if close else f"{say(value.low)} to {say(value.high)}"
    distance = _distance(row, column)
    if best is not None and distance is not None and distance <= best + 1e-12:
        return f'<td class="n best" {of} title="best of this column">{BEST} {escaped(shown)}</td>'
    return f'<td class="n" {of}>{escaped(shown)}</td>'


def _style(root: str, theme: Theme) -> str:
    return (
        f".{root}{{overflow-x:auto;font:13px/1.45 {FONT};color:{theme.text}}}"
        f".{root} table{{border-collapse:collapse;width:100%}}"
        f".{root} th,.{root} td{{padding:5px 10px;border:0;border-bottom:1px solid {theme.border};text-align:left;"
        f"vertical-align:top;font-weight:400}}"
        f".{root} thead th{{color:{theme.muted};font-size:12px;white-space:nowrap;cursor:help}}"
        f".{root} thead th:nth-child(n+3),.{root} td.n{{text-align:right;white-space:nowrap;"
        f"font-variant-numeric:tabular-nums}}"
        f".{root} tbody th div{{display:flex;gap:8px;min-width:190px;overflow-wrap:anywhere}}.{root} td.o{{white-space:nowrap}}"
        f".{root} tbody th img{{flex:none;margin-top:4px}}"
        f".{root} small{{display:block;color:{theme.muted};font-size:12px}}"
        f".{root} td.best{{font-weight:600}}"
        f"@media(max-width:640px){{.{root} thead{{display:none}}.{root} tr{{display:grid;grid-template-columns:1fr 1fr;"
        f"gap:0 18px;padding:8px 0;border-bottom:1px solid {theme.border}}}.{root} tbody th{{grid-column:1/-1}}"
        f".{root} tbody th,.{root} td{{border:0;padding:2px 0}}.{root} td{{display:flex;justify-content:space-between}}"
        f".{root} td::before{{content:attr(data-of);color:{theme.muted};font-weight:400;padding-right:8px}}}}"
    )
