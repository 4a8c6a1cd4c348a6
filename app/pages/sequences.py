"""The Sequences page: the sequences of one step, worst first, with a line for each, filters, and the list of prompts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import polars as pl
import polars.selectors as cs

from ratioscope.ingest.analysis.sequence_lines import POINTS, log_ratio_lines, text_previews, tokens_within
from ratioscope.metrics.corrections.correction import weighted_gap
from ratioscope.metrics.frame import value_in
from ratioscope.metrics.grading.coverage import NOT_MEASURED

from ..blocks import Action, Actions, Block, Column, Paragraph, Section, Table
from ..presentation.digits import count, digits, percent
from ..presentation.metric_places import in_words, sequence_measures_at, title_of
from ..presentation.slice_names import part_words
from ..presentation.theme import MARKS
from ..presentation.value_text import number_format
from .face import Choice, Face, Step
from .prompt_groups import asked_group, one_prompt, prompts
from .scope import Scope
from .sequence_filters import Filters, asked_filters, known
from .sequence_list import HERE, token_heat_of
from .side_by_side import MOST, compared
from .step_choice import FACTS, KEY, no_rows, opened, rows_of, severity_of, with_part_only, worst_first
from .text_search import MATCH, asked_search, hits_at, over_steps
from .view import View, asked_gap
from .worst_of_run import worst_of_run

FIRST = ("replica", "lag", "reward", "group_id")
"""Facts that stand left of the gap's metrics, because a table on half a screen is cut off on the right."""
OWN = ("hits", "matching", "tokens_within", "first_within")
"""Columns of a search and of filters: its hits or their tokens in a sequence, and the first of these."""
NUMBERS = (*sequence_measures_at("column"), *sequence_measures_at("fault"), "advantage", "reward", "lag", *OWN)
WHOLE = ("worst_position", "tokens", *sequence_measures_at("fault"), "lag", *OWN)
SHOWN = 500
LISTS = {
    "sequences": ". Click a row to read its tokens; tick several to see them side by side.",
    "prompts": "",
    "token heat": ". Click a cell to read its sequence at the worst token of the cell.",
}
"""Look of the list -> the words on a click."""
LINE = (
    "The log-ratio along the sequence, from −{0} to {0} nats in every row. Each of up to "
    f"{POINTS} points shows the token with the largest |log-ratio| of its part. Masked tokens are 0; infinite values lie at "
    "the edge."
)


@dataclass(frozen=True)
class Listing:
    """The reader's choice of a list."""

    order: str
    """The measure by which the worst comes first."""
    group: str | None = None
    """The prompt whose samples are listed; None for all sequences."""
    look: str = "sequences"
    """One of LISTS."""


def sequences(scope: Scope) -> Iterator[Block]:
    view, gap, face = scope.view, scope.gap, scope.face
    with face.row("step"):
        step = face.ask(Step(view, gap, follows=True))
        frame = pl.DataFrame() if step is None else with_weight(rows_of(view, step, gap), gap)
        listing = _asked_listing(face, frame, gap)
    if step is None:
        yield from worst_of_run(scope)
        return
    wanted = yield from asked_search(face)
    if wanted.over is not None:
        yield from over_steps(scope, wanted)
        return
    if frame.is_empty():
        yield from no_rows(view, step, gap)
        return
    found = (yield from hits_at(scope, step, wanted)) if wanted.expression else None
    with face.menu("sequence_filters", "which sequences", is_wide=True):
        filters, wrong = asked_filters(face, frame, _columns_offered(frame, gap))
    if wrong:
        yield Paragraph(wrong, "warning")
    of_group = frame if listing.group is None else frame.filter(group_id=listing.group)
    if scope.only is not None:
        said = f"sequences with a token of {part_words(scope.only)}; matching: their number"
        yield Paragraph(said, "muted", "Only")
    passing = with_part_only(scope, filters.of(of_group, gap), step)
    matching = _having(view, passing, step, gap, filters.within)
    if found is not None:
        matching = matching.join(found.rows.select("sequence_id", "hits", "match", "at"), on="sequence_id", how="inner")
    yield from _about_step(view, step, gap, frame, matching, filters, listing.look)
    if listing.group is not None and len(matching):
        yield from one_prompt(worst_first(matching, gap, listing.order), of_group["sequence_id"].n_unique())
    if listing.look == "prompts" and matching["group_id"].count():
        yield from prompts(matching, gap)
    elif listing.look == "token heat" and len(matching):
        yield from token_heat_of(view, step, gap, worst_first(matching, gap, listing.order))
    elif len(matching):
        yield from _list(scope, worst_first(matching, gap, listing.order).head(SHOWN), step, listing.order)


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("sequences", "Worst sequences", partial(worst_of_run, scope))


def _asked_listing(face: Face, frame: pl.DataFrame, gap: str) -> Listing:
    """The reader's choice; nothing is asked of a step without rows."""
    orders = _orders(frame, gap) or ["tokens"]
    if frame.is_empty():
        return Listing(orders[0])
    order = face.ask(Choice("order", "worst first by", orders, orders[0], in_words, width=340))
    group = asked_group(face, frame) if known(frame, "group_id") else None
    has_prompts = group is None and known(frame, "group_id")
    looks = [look for look in LISTS if has_prompts or look != "prompts"]
    return Listing(order, group, face.ask(Choice("list", "list", looks, looks[0], look="segments")))


def with_weight(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The rows with `<gap>/weight`, exp(S) of the whole sequence, if that is an importance weight."""
    total = f"{gap}/log_ratio_sum"
    if weighted_gap(gap) is None or total not in frame.columns:
        return frame
    return frame.with_columns(pl.col(total).exp().alias(f"{gap}/weight"))


def _having(view: View, frame: pl.DataFrame, step: int, gap: str, within: tuple[float, float] | None) -> pl.DataFrame:
    """The rows with tokens in the range of log-ratios, and the number of these tokens."""
    if within is None:
        return frame
    return frame.join(view.of(tokens_within, step, gap, *within), on=KEY, how="inner", nulls_equal=True)


def _orders(frame: pl.DataFrame, gap: str) -> list[str]:
    return [name for name in sequence_measures_at("order") if name in frame.columns or f"{gap}/{name}" in frame.columns]


def _columns_offered(frame: pl.DataFrame, gap: str) -> list[str]:
    """The numeric columns that a filter can bound."""
    return [*_orders(frame, gap), *(name for name in ("advantage", "lag") if name in frame.columns)]


def _list(scope: Scope, ranked: pl.DataFrame, step: int, order: str) -> Iterator[Block]:
    """The sequences with a mark at the row that the keys have reached. A click opens one."""
    view, gap, face = scope.view, scope.gap, scope.face
    with_lines = ranked
    for beside in (view.of(log_ratio_lines, step, gap), view.of(text_previews, step)):
        with_lines = with_lines.join(beside, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    last = len(ranked) - 1
    here = min(face.remembered("_here", 0), last)
    leads = partial(opened, ranked.select("minibatch", cs.by_name("at", require_all=False), sequence="sequence_id"))
    yield Actions(
        "walk",
        (
            Action("open", "open", leads(here), shortcut="enter"),
            Action("up", "up", partial(_move, face, here - 1), shortcut="k", is_off=here == 0),
            Action("down", "down", partial(_move, face, here + 1), shortcut="j", is_off=here == last),
        ),
        after=f"row {here + 1:,} of {last + 1:,} {HERE} · keys: j / k move, Enter opens, [ ] other steps",
    )
    drawable, reach = _drawable(with_lines)
    shown = _columns(drawable, gap)
    mark = pl.Series("", [HERE if row == here else "" for row in range(len(shown))])
    yield Table(
        f"Sequences of step {step}, worst first by {title_of(order)}",
        shown.select(mark, pl.all()),
        columns={
            "": Column(width=28),
            "text": Column("begins with", width=230),
            "match": MATCH,
            "line": Column("log-ratio along it", "", LINE.format(digits(reach)), 130, (-reach, reach)),
            **_titled(shown),
        },
        first=("sequence_id", order, "match" if "match" in shown.columns else "replica"),
        tallest=None if len(ranked) < 20 else 720,
        picks="sequence_rows",
        leads=leads,
        cut=("sequence_id", "group_id", "replica", "finish_reason"),
        rows=[(order, *key) for key in ranked.select(KEY).iter_rows()],
        has_ticks=True,
    )
    ticked = list(dict.fromkeys(sequence_id for _, sequence_id, _ in face.ticked("sequence_rows")))
    if len(ticked) > 1:
        most = f" · at most {MOST}: the first ones" if len(ticked) > MOST else ""
        yield Actions(
            "ticked", (Action("beside", f"{min(len(ticked), MOST)} side by side", compared(ticked)),), after=most
        )


def _move(face: Face, row: int) -> None:
    face.forget("_here")
    face.remembered("_here", row)


def _titled(shown: pl.DataFrame) -> dict[str, Column]:
    """The columns with a title in words, each with its name as help."""
    return {
        name: Column(title_of(name), number_format(shown[name]) if name in NUMBERS and name not in WHOLE else "", name)
        for name in shown.columns
        if name in NUMBERS or title_of(name) != name
    }


def _drawable(frame: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """The rows with infinite points of their lines moved to the edge of the axis, and the end of the axis."""
    points = frame["line"].list.explode() if len(frame) else pl.Series([], dtype=pl.Float64)
    largest = points.filter(points.is_finite()).abs().max() if len(points) else None
    reach = float(largest) if isinstance(largest, float) and largest > 0 else 1.0
    inside = pl.element().fill_null(0.0).clip(-reach, reach)
    return frame.with_columns(pl.col("line").fill_null([]).list.eval(inside)), reach


def _columns(ranked: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The id, the gap's metrics and the recorded facts; counts of bad tokens only if there are any."""
    measured = [f"{gap}/{name}" for name in sequence_measures_at("column")]
    faults = [f"{gap}/{name}" for name in sequence_measures_at("fault")]
    measured += [name for name in faults if name in ranked.columns and (ranked[name] > 0).any()]
    named = {name: name.partition("/")[2] for name in measured if name in ranked.columns}
    own = [name for name in OWN if name in ranked.columns]
    facts = [name for name in FACTS if known(ranked, name)]
    first = [name for name in FIRST if name in facts]
    later = [name for name in facts if name not in first]
    text = [name for name in ("match", "text") if known(ranked, name)][:1]
    return ranked.select("sequence_id", *text, "line", *own, *first, *named, *later).rename(named)


def _about_step(
    view: View, step: int, gap: str, frame: pl.DataFrame, matching: pl.DataFrame, filters: Filters, look: str
) -> Iterator[Block]:
    """The grade of the step, the number of rows, the filters in words, and the budget's choice of rows."""
    graded = severity_of(view, step)
    grade = f"{MARKS[str(graded['severity'])]} {graded['severity']} · {graded['reading']}" if graded else NOT_MEASURED
    shown = min(len(matching), SHOWN) if look == "sequences" else len(matching)
    size = count(len(frame), "row") if shown == len(frame) else f"{shown:,} of {count(len(frame), 'row')}"
    worst = f", the worst of {len(matching):,} that match" if len(matching) > shown else ""
    hint = f"on record{worst}{LISTS[look]}"
    unread = len(view.sequences(step, gap)) - len(frame)
    hint += (
        f" {count(unread, 'row')} without this reading {'is' if unread == 1 else 'are'} not shown." if unread else ""
    )
    yield Paragraph(f"step {step}: {grade} · {size} {hint}", "muted")
    if filters.words:
        yield Paragraph(" · ".join(filters.words), "muted", "Only")
    if sentence := _kept(view, step, gap, frame):
        yield Paragraph(sentence, "absent")


def _kept(view: View, step: int, gap: str, frame: pl.DataFrame) -> str:
    """A sentence on the budget's choice of rows for this step; empty if all were kept."""
    chances = frame.unique("sequence_id")["inclusion_probability"].fill_null(1.0)
    drawn = chances.filter((chances > 0) & (chances < 1)).to_numpy()
    if not len(drawn):
        return ""
    if asked_gap(gap):
        read = f"{count(len(chances), 'sequence')} of this step were read: some for certain, the others by chance"
        return f"{read}. Estimates from them weigh each by the inverse of its chance."
    metrics = view.metrics(("step",), None, gap).filter(step=step)
    name = f"{gap}/sequences"
    offered = value_in(metrics, name)
    of = f" of {count(offered, 'sequence')}" if offered is not None and math.isfinite(offered) else ""
    low, high = percent(float(drawn.min())), percent(float(drawn.max()))
    share = low if low == high else f"{low} to {high}"
    return (
        f"The budget kept {count(len(chances))}{of}: the worst ones always, and a {share} sample of the others. Estimates from "
        "these rows weigh each sequence by the inverse of its chance to be kept. The statistics on other pages cover all of them."
    )
