"""Downloads of a page: numbers as CSV or JSON, charts as one file that needs no network.

Foreign text is escaped for its format. The browser's own download of a table would not escape it, and is switched off.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from csv import writer
from dataclasses import dataclass, field

import plotly.graph_objects as go
import polars as pl

from ...browser.library import EMBEDDED, plotly_js
from ...browser.policy import file_policy
from ...browser.scripts import script
from ...presentation.escape import csv, html, script_json
from ...presentation.json_values import jsonable
from ...presentation.theme import FONT, Theme

TableMaker = Callable[[], pl.DataFrame]
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every file in an archive, so that equal numbers give equal bytes."""


@dataclass
class PageContents:
    """The tables and charts of a page by key, noted while the page is drawn, and the names of their files."""

    run: str = "run"
    page: str = "page"
    tables: dict[str, TableMaker] = field(default_factory=dict)
    charts: dict[str, tuple[str, go.Figure]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forgets what was drawn, before the page below its header is drawn anew."""
        self.tables.clear()
        self.charts.clear()

    def file(self, part: str = "", ending: str = "") -> str:
        """A file name for any file system: run, page and part.

        >>> PageContents("a/b c", "tokens").file("strip", ".csv")
        'a-b-c-tokens-strip.csv'
        """
        names = (re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") for name in (self.run[-60:], self.page, part))
        return "-".join(name for name in names if name) + ending


def csv_of(frame: pl.DataFrame) -> bytes:
    """The frame as CSV without cells that a spreadsheet takes for formulas; lists as JSON."""
    columns = [_cells(frame[name]).alias(csv(name)) for name in frame.columns]
    cells = pl.DataFrame(columns).cast(pl.String)
    # written by Python: polars would call Python's buffer from a thread of its engine
    written = io.StringIO(newline="")
    csv_file = writer(written, lineterminator="\n")
    csv_file.writerow(cells.columns)
    csv_file.writerows(cells.rows())
    return written.getvalue().encode()


def json_of(tables: dict[str, TableMaker]) -> bytes:
    """Table -> its rows; infinities and NaN as strings, null where a value is not available."""
    return json.dumps({name: jsonable(table().to_dicts()) for name, table in tables.items()}).encode()


def zip_of(tables: dict[str, TableMaker], name: Callable[[str, str], str]) -> bytes:
    """An archive with a CSV per table. name: of a file, from its table and ending."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, table in tables.items():
            archive.writestr(zipfile.ZipInfo(name(key, ".csv"), _EPOCH), csv_of(table()))
    return packed.getvalue()


def html_of(title: str, charts: Sequence[tuple[str, go.Figure]], theme: Theme) -> bytes:
    """One page with these charts as on the screen, with zoom and hover. It loads nothing and needs no server."""
    figures = ",".join(script_json(str(figure.to_json())) for _, figure in charts)
    places = "".join(
        f'<div id="chart{at}" role="img" aria-label="{html(alt)}"></div>' for at, (alt, _) in enumerate(charts)
    )
    scripts = (
        plotly_js(),
        f"{script('freed.js')}const figures=[{figures}],config={script_json(json.dumps(EMBEDDED))};"
        "figures.forEach((f,i)=>Plotly.newPlot('chart'+i,f.data,freed(f.layout),config))",
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{file_policy(*scripts)}"><title>{html(title)}</title>'
        f"<style>body{{margin:16px;font:14px {FONT};background:{theme.background};color:{theme.text}}}"
        "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:12px}</style></head>"
        f"<body><h1>{html(title)}</h1><main>{places}</main>"
        f"{''.join(f'<script>{each}</script>' for each in scripts)}</body></html>"
    ).encode()


def _cells(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if kind.is_nested():
        return pl.Series(
            [None if cell is None else csv(json.dumps(jsonable(_plain(cell)))) for cell in column], dtype=pl.String
        )
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Object):
        return pl.Series([None if cell is None else csv(str(cell)) for cell in column], dtype=pl.String)
    return column


def _plain(cell: object) -> object:
    return cell.to_list() if isinstance(cell, pl.Series) else cell
