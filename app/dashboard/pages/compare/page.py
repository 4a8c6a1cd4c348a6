"""The Compare page, A against B: runs, seeds or ranges of steps; the differences, their size and certainty, and settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import streamlit as st

from ratioscope.metrics.analysis.comparison import Compared
from ratioscope.metrics.distribution import LEVELS, Level, whole_histogram

from ....browser.listener import is_narrow
from ....figures.sides import graded_shares, survivals
from ....pages.scope import Scope
from ....presentation.comparison_words import (
    compared_metrics,
    few_settings,
    numbers_of,
    sentence,
    settings_table,
    table_of,
    titled,
)
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ...model.served_runs import served
from ...panels.charts import appearance, draw, numbers_behind, table
from ...panels.choices import choice
from ...panels.layout import cells
from ...panels.reference import pin_button
from .courses import side_courses
from .pairs import pair_by_pair
from .sides import ComparedRun, chosen_sides, says_nothing, with_gap

SHORTER = {"Effective sample size": "ESS", "Chi-squared": "χ²"}
"""Words in titles that a narrow window has no room for."""
LINE = 300
"""Most characters of the line that names settings."""
SETTING, VALUE = 320, 160
"""Widths of columns: a name of a setting is a path of several words. A narrow window shows both values too."""


def render(scope: Scope) -> None:
    a, b = chosen_sides(scope)
    if not (a.views and b.views):
        return
    if says_nothing(a) or says_nothing(b):
        return
    a, b = with_gap(a, scope.gap), with_gap(b, scope.gap)
    if not (a.views and b.views):
        return
    comparisons = _compared(a, b, scope.gap)
    st.markdown(f"#### {label(sentence(comparisons, scope.gap))}")
    st.caption(f"A: {label(a.words, 300)}  \nB: {label(b.words, 300)}")
    settings = _differing_settings(a, b)
    line = _settings_line(settings)
    st.caption(label(line, LINE))
    if len(a.names) == 1:
        pin_button(served(), a.names[0])
    _cautions(a, b)
    if not comparisons:
        st.info(
            f"A and B have no metric of {scope.gap} in common. Choose another gap, or runs that record both its policies."
        )
    else:
        _metrics(comparisons)
        side_courses(a, b, scope.gap)
        left, right = cells(2, "both")
        with left:
            _weights(a, b, scope.gap)
        with right:
            _grades(a, b)
            if settings is not None and not _names_all(line, settings):
                _settings(settings)
        pair_by_pair(a, b, scope.gap)


def _compared(a: ComparedRun, b: ComparedRun, gap: str) -> list[Compared]:
    return compared_metrics(_wholes(a, gap), _wholes(b, gap), gap)


def _wholes(side: ComparedRun, gap: str) -> list[pl.DataFrame]:
    """A frame of one row per run: its metrics over the range."""
    return [shown.metrics((), side.steps.chosen(shown.steps), gap) for shown in side.views if side.recorded(shown)]


def _cautions(a: ComparedRun, b: ComparedRun) -> None:
    """Notes on the meaning of the errors, and on differences that make the comparison unfair."""
    shared = sum(
        len(set(a.recorded(one)) & set(b.recorded(other)))
        for one in a.views
        for other in b.views
        if one.path == other.path
    )
    if shared:
        st.caption(
            f":material/warning: A and B share {count(shared, 'step')}. Errors assume independent sides, so z is too small."
        )
    seeds = max(len(a.views), len(b.views)) > 1
    how = (
        "Errors come from the spread between the runs of a side; a side with one run has only its sampling error"
        if seeds
        else "Errors are clustered by sequence and do not include the variation between seeds: compare several seeds"
    )
    st.caption(
        f"Each value covers all tokens of the range. {how}. “differs”: significant at 5% after Holm's correction over all rows."
    )


def _metrics(comparisons: Sequence[Compared]) -> None:
    shown = titled(table_of(comparisons))
    if is_narrow():
        shown = shown.with_columns(pl.col("metric").str.replace_many(SHORTER))
    table(
        shown,
        "Metrics of A and B",
        key="compared",
        height="content" if len(comparisons) < 14 else 460,
        column_config={
            **_widths(),
            "z": st.column_config.TextColumn(help="the difference in its standard errors"),
        },
    )
    numbers_behind(lambda: numbers_of(comparisons), "compared_numbers", "as plain numbers")


def _widths() -> dict[str, Any]:
    """The widths of the columns that a window shows first: a narrow one shows both sides whole, with their errors."""
    widths = {"metric": 112, "A": 134, "B": 134} if is_narrow() else {"metric": 230}
    return _text_columns(widths)


def _text_columns(widths: Mapping[str, int]) -> dict[str, Any]:
    return {name: st.column_config.TextColumn(width=width) for name, width in widths.items()}


def _weights(a: ComparedRun, b: ComparedRun, gap: str) -> None:
    level = choice("weights of", LEVELS, "level")
    parts = [_distribution(side, level, gap) for side in (a, b)]
    draw(
        survivals((whole_histogram(parts[0]), whole_histogram(parts[1])), gap, level, theme=appearance()),
        "survivals",
        f"Share of {gap} weights beyond each weight, of A and of B",
        numbers=lambda: pl.concat(
            part.with_columns(side=pl.lit(letter)) for letter, part in zip("AB", parts, strict=True)
        ),
    )


def _distribution(side: ComparedRun, level: Level, gap: str) -> pl.DataFrame:
    """The distributions of all runs of the side, over its steps."""
    return pl.concat(
        shown.distribution(level, gap).filter(pl.col("step").is_in(side.recorded(shown))) for shown in side.views
    )


def _grades(a: ComparedRun, b: ComparedRun) -> None:
    shares = [_graded(side) for side in (a, b)]
    draw(
        graded_shares(shares, theme=appearance()),
        "shares",
        "Number of steps of A and of B that are healthy, watch and act",
        numbers=lambda: pl.DataFrame([{"side": letter, **found} for letter, found in zip("AB", shares, strict=True)]),
    )


def _graded(side: ComparedRun) -> dict[str, int]:
    numbers = {"healthy": 0, "watch": 0, "act": 0}
    for shown in side.views:
        own = shown.grades().filter(pl.col("step").is_in(side.recorded(shown)))
        for word, steps in own["severity"].cast(pl.String).value_counts().rows():
            numbers[word] += steps
    return numbers


def _differing_settings(a: ComparedRun, b: ComparedRun) -> pl.DataFrame | None:
    """The table of settings that differ; None if both sides come from the same runs."""
    if {shown.path for shown in a.views} == {shown.path for shown in b.views}:
        return None
    return settings_table([shown.run.info for shown in a.views], [shown.run.info for shown in b.views])


def _settings_line(differences: pl.DataFrame | None) -> str:
    """The first of the settings that differ, or why there is none."""
    if differences is None:
        return "A and B come from the same run. The charts of the other pages mark a resume with other settings."
    if differences.is_empty():
        return (
            "No setting on record differs: code, trainer, versions, configuration and machine are the same in run.json, or"
            " were not recorded."
        )
    return f"Settings that differ: {few_settings(differences.rows())}"


def _names_all(line: str, differences: pl.DataFrame) -> bool:
    """True if the line has each setting with both values: a table would repeat it."""
    return len(line) <= LINE and all(f"{key} {one} → {other}" in line for key, one, other in differences.rows())


def _settings(differences: pl.DataFrame) -> None:
    st.subheader(f"All {count(len(differences), 'setting')} that differ", anchor=False)
    table(
        differences,
        "Settings that differ",
        height="content" if len(differences) < 20 else 460,
        column_config=_text_columns(
            {"setting": 170, "A": 110, "B": 110} if is_narrow() else {"setting": SETTING, "A": VALUE, "B": VALUE}
        ),
    )
