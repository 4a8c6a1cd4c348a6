"""The settings that differ between two sides: the first in a line, those known to act on the gap in words, all in a table."""

from collections.abc import Sequence

import polars as pl

from ratioscope.ingest.run import Run

from ..blocks import Block, Column, Heading, Paragraph, Table
from ..presentation.comparison_words import few_settings
from ..presentation.differing_settings import DifferingSettings, differing_settings
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.run_names import told_apart
from .compare_sides import ComparedRun
from .view import View

LINE, WORDS = 300, 400
"""Most characters of the line that names settings, and of the words on one."""
MOST = 8
"""Most settings in words, where the effect of one is known; the table has all."""
SETTINGS = {
    "setting": Column(width=320, narrow=170),
    **{letter: Column(width=160, narrow=110) for letter in "AB"},
}
"""The name of a setting is a path of several words. A narrow window shows both values too."""
CELL = 24
"""Characters of a value in the table of settings. Downloads have all of them."""
ONE_RUN = "A and B come from the same run. The charts of the other pages mark a resume with other settings."
NO_SETTING = (
    "No setting on record differs: code, trainer, versions, configuration and machine are the same in run.json, or were not"
    " recorded."
)


def differing(a: ComparedRun, b: ComparedRun) -> DifferingSettings | None:
    """The settings in which B differs from A; None if both are of one run."""
    if {shown.path for shown in a.views} == {shown.path for shown in b.views}:
        return None
    return a.views[0].of(_between, a.views, b.views)


def _between(run: Run, a: Sequence[View], b: Sequence[View]) -> DifferingSettings:
    return differing_settings(*([shown.run.info for shown in views] for views in (a, b)))


def settings_blocks(found: DifferingSettings | None) -> tuple[Block, Sequence[Block]]:
    """(the first of the settings that differ, or why there is none; the first in words where an effect is known, then all)."""
    if found is None or found.table.is_empty():
        return Paragraph(NO_SETTING if found else ONE_RUN, "muted"), ()
    line, table = f"{found.title} {few_settings(found.table.rows())}", found.table
    rows = [
        Paragraph(visible(words, WORDS), head=visible(key, LINE)) for key, words in found.lines(MOST) if found.effects
    ]
    first: tuple[Block, ...] = (Heading(found.title.rstrip(":")), *rows) if rows else ()
    is_whole = len(line) <= LINE and all(f"{key} {one} → {other}" in line for key, one, other in table.rows())
    every = () if is_whole or len(table) <= len(rows) else _every(table)
    return Paragraph(visible(line, LINE), "muted"), (*first, *every)


def _every(differing: pl.DataFrame) -> tuple[Block, ...]:
    tallest = None if len(differing) < 20 else 460
    short = pl.DataFrame([told_apart(row, CELL) for row in differing.select("A", "B").rows()], ("A", "B"), orient="row")
    whole = differing.select(pl.col("A", "B").name.suffix(" whole"))
    frame = pl.concat([differing.select("setting"), short, whole], how="horizontal")
    table = Table("Settings that differ", frame, columns=SETTINGS, only=[*SETTINGS], tallest=tallest)
    return Heading(f"All {count(len(differing), 'setting')} that differ"), table
