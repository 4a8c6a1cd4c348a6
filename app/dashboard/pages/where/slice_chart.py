"""The bars of one slice: a bar per bucket. A click on a bar makes its bucket the filter of every page."""

from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.token_names import token_names
from ratioscope.ingest.rows.part import Only, Part
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import slice_parts
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of

from ....figures.slice_bars import slice_bars
from ....presentation.digits import count, percent
from ....presentation.escape import visible
from ....presentation.noise_floor import NoiseFloor, with_floor
from ....presentation.slice_names import UNFILTERED, SliceWords
from ....presentation.theme import THEMES, ThemeName
from ...model.scope import Scope
from ...model.view import View, asked_gap
from ...panels.charts import appearance, clicked, draw
from ...panels.part_filter import filter_by, part_asked
from ...panels.slice_reading import last_key, steps_shown


@dataclass(frozen=True)
class BarsKey:
    """All inputs of the bars of a slice, used as a cache key."""

    view: View
    words: SliceWords
    gap: str
    metric: str
    steps: range | None
    chosen: tuple[str, ...]
    """Keys of the buckets in the filter."""
    floor: NoiseFloor | None

    @property
    def parts(self) -> pl.DataFrame:
        frame = self.view.metrics((self.words.name,), self.steps, self.gap)
        parts = slice_parts(frame, self.words.name, self.gap, self.metric, largest=self.words.name == "token_id")
        return _named(self.view, parts) if self.words.name == "token_id" else parts


def slice_chart(scope: Scope, words: SliceWords, frame: pl.DataFrame, metric: str, chosen: range | None) -> None:
    """Draws the chart of a slice. frame: metrics by the slice, from slice_frame, which has read token rows if needed."""
    view, gap, only = scope.view, scope.gap, scope.only
    steps = steps_shown(view, words, chosen)
    keys = tuple(term.key for term in only.terms if term.slice == words.name) if only is not None else ()
    figure, buckets = view.figure(_bars, BarsKey(view, words, gap, metric, steps, keys, scope.floor), appearance().name)
    key = f"slice_{words.name}"
    clickable = None if words.name in UNFILTERED or not buckets else _Filter(key, words.name)
    alt = f"{gap} {metric} by {words.title}: {count(buckets, 'bucket')}"
    draw(figure, key, alt, numbers=lambda: frame, on_click=clickable)
    if steps is not None and view.is_growing and not words.written:
        _offer_newer(view, words, steps)


def _bars(asked: BarsKey, theme: ThemeName) -> tuple[go.Figure, int]:
    """The chart, and its number of buckets."""
    view, words, gap, metric = asked.view, asked.words, asked.gap, BY_NAME[asked.metric]
    parts = asked.parts
    figure = slice_bars(
        parts,
        metric,
        gap,
        f"By {words.title} <i>{gap}</i>",
        overall=view.whole(f"{gap}/{metric.name}", asked.steps),
        limits=with_floor(limits_of(metric, gap, view.signals), metric, gap, asked.floor),
        notes=(words.about, _coverage(parts, view.whole(f"{gap}/tokens", asked.steps)), _exactness(view, words, gap)),
        chosen=asked.chosen,
        theme=THEMES[theme],
    )
    return figure, len(parts)


class _Filter:
    """The reaction to a click on a chart: its bucket becomes a condition of the filter of every page, or stops being one."""

    def __init__(self, key: str, slice_name: str) -> None:
        self._key, self._slice = key, slice_name

    def __call__(self) -> None:
        found = clicked(self._key)
        bucket = "" if found is None else str(found[1])
        if bucket:
            wanted = Only(self._slice, bucket)
            part = part_asked(st.session_state.get("only") or "")
            if part is None:
                filter_by(Part(((wanted,),)))
            else:
                filter_by(part.without(wanted) if wanted in part.terms else part.with_key(wanted))


def _offer_newer(view: View, words: SliceWords, steps: range) -> None:
    newer = sum(step >= steps.stop for step in view.run.steps)
    if newer:
        st.button(
            f"measure {count(newer, 'newer step')} too",
            key=f"newer_{words.name}",
            on_click=st.session_state.pop,
            args=(last_key(view, words), None),
        )


def _named(view: View, parts: pl.DataFrame) -> pl.DataFrame:
    """The parts with the text of token ids, if it is on record."""
    ids = tuple(int(key) for key in parts["key"].drop_nulls() if key.lstrip("-").isdecimal())
    names = view.of(token_names, ids)
    labels = [
        row["label"]
        if row["key"] is None or int(row["key"]) not in names
        else f"{_shown(names[int(row['key'])])} {row['key']}"
        for row in parts.iter_rows(named=True)
    ]
    return parts.with_columns(label=pl.Series(labels, dtype=pl.String))


def _shown(text: str) -> str:
    """A token's text with its spaces visible."""
    return f"“{visible(text, 18).replace(' ', '␣')}”"


def _coverage(parts: pl.DataFrame, tokens: float | None) -> str:
    """A note on the share of tokens in no bucket; empty if it is negligible."""
    if tokens is None or not tokens or parts.is_empty():
        return ""
    left = 1 - float(parts["tokens"].sum()) / tokens
    return f"{percent(float(f'{left:.2g}'))} of the tokens are in no bucket" if left > 5e-4 else ""


def _exactness(view: View, words: SliceWords, gap: str) -> str:
    if asked_gap(gap):
        return "of the sequences that were read"
    return "" if view.of(Run.exact, words.name) else "estimated from the rows that the budget kept"
