"""The Where page: the gap by position, probability, replica, token class and every other recorded slice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.slice_over_steps import slice_over_steps, token_names
from ratioscope.ingest.rows.part import Only, Part, part_text
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.concentration import concentration
from ratioscope.metrics.analysis.slice_parts import MOST, bucket_label, size_metric, slice_parts
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of

from ..blocks import Action, At, Beside, Block, Chart, Drawer, Heading, Link, Paragraph, Section, text_table
from ..figures.drawing.definition import metric_head
from ..figures.drawing.plotly_objects import go
from ..figures.slice_bars import slice_bars
from ..figures.slice_heat import slice_heat
from ..presentation.digits import count, percent
from ..presentation.escape import visible
from ..presentation.metric_places import in_words, names_at
from ..presentation.noise_floor import NoiseFloor, with_floor
from ..presentation.slice_names import BY_NAME as WORDS
from ..presentation.slice_names import SLICES, UNFILTERED, SliceWords, concentration_words, only_value_words, part_words
from ..presentation.theme import THEMES, ThemeName
from .face import Choice, Several
from .gap_slices import SliceOfGap, place_table, slices_of_gap
from .scope import NO_STEPS, Scope
from .slice_absences import absences, last_key, slice_frame, steps_shown
from .view import View, asked_gap

HEAD = 9
"""Height of a chart's title and axis, in rows."""
NOWHERE = "no heat map"
ANSWER = "where_answer"


@dataclass(frozen=True)
class ShownSlice:
    """A slice on the page, as a cache key of its chart."""

    view: View
    words: SliceWords
    gap: str
    metric: str
    steps: range | None
    """The steps of its chart; None for all."""
    chosen: tuple[str, ...]
    """Keys of the buckets in the filter."""
    floor: NoiseFloor | None

    @property
    def parts(self) -> pl.DataFrame:
        """slice_parts of the slice; tokens with their texts."""
        name = self.words.name
        frame = self.view.metrics((name,), self.steps, self.gap)
        parts = slice_parts(frame, name, self.gap, self.metric, largest=name == "token_id")
        return _named(self.view, parts) if name == "token_id" else parts


def where(scope: Scope) -> Iterator[Block]:
    view, face = scope.view, scope.face
    absent = absences(view)
    face.place(ANSWER)
    with face.row("heat"):
        metric = face.ask(_metric_choice(scope.gap))
        heat = face.ask(_heat_choice([words for words in SLICES if words.name not in absent]))
    measured = _measured(scope, [words for words in SLICES if not words.written and words.name not in absent])
    if not scope.recorded:
        yield Paragraph(NO_STEPS, "info")
        return
    shown = [
        _shown_slice(scope, words, metric)
        for words in SLICES
        if words.name not in absent and (words.written or words.name in measured)
    ]
    frames = {one.words.name: slice_frame(view, face, one.words, one.steps, scope.gap) for one in shown}
    yield At(ANSWER, tuple(Paragraph(said, "lead") for said in view.figure(_sentences, scope.gap, tuple(shown))))
    if not face.unasked((metric,)):  # paper has no click
        yield Paragraph(_filter_words(scope), "muted")
    if heat != NOWHERE:
        yield from _heat(scope, _shown_slice(scope, WORDS[heat], metric))
    alone = {one.words.name: key for one in shown if (key := _only_key(frames[one.words.name], one)) is not None}
    yield _side_by_side(scope, [one for one in shown if one.words.name not in alone], frames)
    for name, value in alone.items():
        yield Paragraph(only_value_words(WORDS[name], value), "muted")
    for name, reason in absent.items():
        yield Paragraph(f"By {WORDS[name].title}: not available, {reason}.", "muted")
    yield Drawer("numbers of the whole run", partial(_tables, scope))


def _metric_choice(gap: str) -> Choice[str]:
    names = names_at("bars", gap)
    about = "The metric that the dots show for each bucket."
    return Choice("metric", "metric", names, names[0], in_words, help=about, width=340)


def _heat_choice(offered: Sequence[SliceWords]) -> Choice[str]:
    names = [NOWHERE, *(words.name for words in offered if words.name not in UNFILTERED)]
    about = "Draws a heat map of a slice over the steps. A slice that needs token rows reads those of all steps."
    return Choice("heat", "over the steps", names, NOWHERE, _title, help=about, width=300)


def _measured(scope: Scope, offered: Sequence[SliceWords]) -> list[str]:
    """The slices that the reader chose to measure."""
    if not offered:
        return []
    about = "Statistics do not contain these slices. The token rows are read once, and the result is kept."
    title, names = "measure from token rows, by", [words.name for words in offered]
    with scope.face.row("measured"):
        return scope.face.ask(Several("measured", title, names, _title, "pills", about, every="measure all"))


def _title(name: str) -> str:
    return WORDS[name].title if name in WORDS else name


def _shown_slice(scope: Scope, words: SliceWords, metric: str) -> ShownSlice:
    steps = steps_shown(scope.view, scope.face, words, scope.chosen)
    terms = scope.only.terms if scope.only is not None else ()
    keys = tuple(term.key for term in terms if term.slice == words.name)
    return ShownSlice(scope.view, words, scope.gap, metric, steps, keys, scope.floor)


def _sentences(gap: str, shown: Sequence[ShownSlice]) -> list[str]:
    """The sentences on the slices that concentrate the gap. Their metrics have been computed for the charts."""
    size = size_metric(gap)
    found = []
    for one in shown:
        frame = one.view.metrics((one.words.name,), one.steps, gap)
        found.append((one.words, concentration(slice_parts(frame, one.words.name, gap, size))))
    return concentration_words(found, BY_NAME[size].title)


def answer_of(scope: Scope) -> str:
    """The part of the data that has most of the gap, in one sentence, by statistics on record; empty without any."""
    absent = absences(scope.view)
    words = [words for words in SLICES if words.written and words.name not in absent]
    shown = tuple(_shown_slice(scope, each, size_metric(scope.gap)) for each in words)
    return next(iter(scope.view.figure(_sentences, scope.gap, shown)), "")


def _filter_words(scope: Scope) -> str:
    if scope.only is None:
        return "Click a bar to show only its tokens on the other pages."
    return (
        f"Other pages show only {part_words(scope.only)}. Click a marked bar again to drop it; a bar of another chart"
        " adds a condition. The charts of this page still show all tokens."
    )


def _side_by_side(scope: Scope, shown: Sequence[ShownSlice], frames: Mapping[str, pl.DataFrame]) -> Beside:
    """The charts. The tallest goes first, each into the shorter column, so that the heights agree."""
    rows = {one.words.name: HEAD + min(len(frames[one.words.name]), MOST) for one in shown}
    heights, at = [0, 0], dict[str, int]()
    for name in sorted(rows, key=lambda name: rows[name], reverse=True):
        at[name] = heights.index(min(heights))
        heights[at[name]] += rows[name]
    left = at[shown[0].words.name] if shown else 0  # the first chart goes into the left column
    sides: tuple[list[Block], list[Block]] = ([], [])
    for one in shown:
        sides[0 if at[one.words.name] == left else 1].extend(_bars_of(scope, one, frames[one.words.name]))
    return Beside("slices", (tuple(sides[0]), tuple(sides[1])))


def _bars_of(scope: Scope, one: ShownSlice, frame: pl.DataFrame) -> Iterator[Block]:
    """The chart of a slice. frame: metrics by the slice."""
    view, name = one.view, one.words.name
    buckets = view.figure(_buckets, one)
    leads = None if name in UNFILTERED or not buckets else partial(_filtered, scope.only, name)
    label = f"{one.gap} {one.metric} by {one.words.title}: {count(buckets, 'bucket')}"
    yield Chart(f"slice_{name}", label, _bars, (one,), numbers=lambda: frame, leads=leads)
    newer = 0 if one.steps is None else sum(step >= one.steps.stop for step in view.run.steps)
    if newer and view.is_growing and not one.words.written:
        words = f"measure {count(newer, 'newer step')} too"
        yield Action(f"newer_{name}", words, partial(scope.face.forget, last_key(view, one.words)))


def _buckets(one: ShownSlice) -> int:
    return len(one.parts)


def _bars(one: ShownSlice, theme: ThemeName) -> go.Figure:
    view, gap, metric, parts = one.view, one.gap, BY_NAME[one.metric], one.parts
    return slice_bars(
        parts,
        metric,
        gap,
        f"By {one.words.title} <i>{gap}</i>",
        overall=view.whole(f"{gap}/{metric.name}", one.steps),
        limits=with_floor(limits_of(metric, gap, view.signals), metric, gap, one.floor),
        notes=(one.words.about, _coverage(parts, view.whole(f"{gap}/tokens", one.steps)), _exactness(one)),
        chosen=one.chosen,
        theme=THEMES[theme],
    )


def _exactness(one: ShownSlice) -> str:
    if asked_gap(one.gap):
        return "of the sequences that were read"
    return "" if one.view.of(Run.exact, one.words.name) else "estimated from the rows that the budget kept"


def _filtered(part: Part | None, name: str, point: Mapping[str, Any]) -> Link | None:
    """This page with the clicked bucket as a condition of the filter, or without it if it was one.

    point: of the chart; an event's mark is no bucket.
    """
    found = point.get("customdata")
    bucket = "" if found is None or isinstance(found, str) else str(found[1])
    if not bucket:
        return None
    wanted = Only(name, bucket)
    if part is None:
        return Link("", {"only": part_text(Part(((wanted,),)))})
    left = part.without(wanted) if wanted in part.terms else part.with_key(wanted)
    return Link("", {"only": "" if left is None else part_text(left)})


def _named(view: View, parts: pl.DataFrame) -> pl.DataFrame:
    """The parts with the text of token ids, if it is on record, its spaces visible."""
    ids = tuple(int(key) for key in parts["key"].drop_nulls() if key.lstrip("-").isdecimal())
    names = view.of(token_names, ids)
    labels = [
        row["label"]
        if row["key"] is None or int(row["key"]) not in names
        else f"“{visible(names[int(row['key'])], 18).replace(' ', '␣')}” {row['key']}"
        for row in parts.iter_rows(named=True)
    ]
    return parts.with_columns(label=pl.Series(labels, dtype=pl.String))


def _coverage(parts: pl.DataFrame, tokens: float | None) -> str:
    """A note on the share of tokens in no bucket; empty if it is negligible."""
    if tokens is None or not tokens or parts.is_empty():
        return ""
    left = 1 - float(parts["tokens"].sum()) / tokens
    return f"{percent(float(f'{left:.2g}'))} of the tokens are in no bucket" if left > 5e-4 else ""


def _heat(scope: Scope, one: ShownSlice) -> Iterator[Block]:
    with scope.face.working(f"reading token rows by {one.words.title}, one part of the steps after the other"):
        course = scope.view.of(slice_over_steps, one.words.name, one.steps, *asked_gap(one.gap))
    slice_frame(scope.view, scope.face, one.words, one.steps, one.gap)
    label = f"{one.gap} {one.metric} by {one.words.title} over the steps"
    yield Chart("slice_heat", label, _heat_map, (one,), wide=True, numbers=lambda: course)


def _heat_map(one: ShownSlice, theme: ThemeName) -> go.Figure:
    name, gap, metric, view = one.words.name, one.gap, BY_NAME[one.metric], one.view
    return slice_heat(
        view.of(slice_over_steps, name, one.steps, *asked_gap(gap)),
        slice_parts(view.metrics((name,), one.steps, gap), name, gap, one.metric),
        name,
        metric,
        gap,
        metric_head(metric, gap, THEMES[theme], f"by {one.words.title} over the steps"),
        events=view.events(),
        theme=THEMES[theme],
    )


def _only_key(frame: pl.DataFrame, one: ShownSlice) -> str | None:
    """The only value of a slice, of which a chart would have one bar."""
    tokens, name = f"{one.gap}/tokens", one.words.name
    known = frame.drop_nulls(tokens) if tokens in frame.columns else frame
    return bucket_label(name, str(known[name][0])) if len(known) == 1 else None


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("where", f"Places of {scope.gap}", partial(_printed, scope))


def _printed(scope: Scope) -> Iterator[Block]:
    """The table of each slice, or why there is none."""
    for place in scope.view.of(slices_of_gap, scope.gap):
        yield Heading(place.title)
        if place.absent:
            yield Paragraph(f"not available, {place.absent}", "absent")
        else:
            yield from _table_of(place)


def _tables(scope: Scope) -> Iterator[Block]:
    """The table of each slice that there is; the page has told why others are not."""
    for place in scope.view.of(slices_of_gap, scope.gap):
        if not place.absent:
            yield Paragraph(place.title, "lead")
            yield from _table_of(place)


def _table_of(place: SliceOfGap) -> Iterator[Block]:
    header, rows = place_table(place)
    yield text_table(place.title, header, rows, is_numbers=True)
    if place.left_out:
        yield Paragraph(f"values that are missing are not available, {place.left_out}", "absent")
    if place.rows > len(rows):
        size = BY_NAME[size_metric(place.gap)].title
        yield Paragraph(f"the {len(rows)} worst by {size} of {count(place.rows)}", "small")
