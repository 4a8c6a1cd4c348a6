"""Growth: every lasting change of a gap over the steps of a run, with its parts and with what is on record beside it.

Recorded facts of the sequences right before and after a step, compared: reward, lag, cached prompts, waiting times.
The rate at which a gap of a run grows, where an exponential fits its newest steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers
from ratioscope.metrics.analysis.slice_parts import bucket_label
from ratioscope.metrics.diagnosis.changes import changes, least_factor
from ratioscope.metrics.diagnosis.composition import Split, split
from ratioscope.metrics.diagnosis.doubling import Doubling, doubling
from ratioscope.metrics.diagnosis.history import LEAST_STEPS, Course, History, known_steps

from ..run import Run
from .gap_history import READ, StepMix, gap_history, step_mix
from .nearby_changes import NearbyChange, Window, falls_near, labels_that_changed, nearby_changes, shift, window_of
from .step_rows import columns_of

MIXES = ("probability", "position", "lag", "turn", "replica")
"""Slices by which a change is split. The first one is the mix of probabilities, and with it that of entropies."""

SIDE = 3
"""Steps with token rows that are read on each side."""
NEAR = 20
"""Recorded steps from the onset beyond which rows are not read."""
FEW = 8
"""The least number of sequences on a side."""
CLEAR = 5.0
"""Standard errors from which on a fact has changed, with the sequence as the unit. A dozen facts are compared."""
LEAST = 0.05
"""The smallest relative change that is reported."""


@dataclass(frozen=True)
class SliceSplit:
    """The split of a change by the parts of one slice."""

    slice: str
    labels: tuple[str, ...]
    """Each part in words."""
    split: Split


@dataclass(frozen=True)
class LastingChange:
    """One lasting change of a gap."""

    course: Course
    last: int
    """The last step of the part of the run that the change is of."""
    splits: tuple[SliceSplit, ...]
    """Splits by the slices on record, by probability first."""
    window: Window
    """Steps in which things beside it were looked for."""
    beside: tuple[NearbyChange, ...]
    """Things on record that changed there, the nearest first. None is shown to be a cause."""


@dataclass(frozen=True)
class Growth:
    """All lasting changes of a gap."""

    gap: str
    steps: int
    """Number of steps whose level is known."""
    first: int = 0
    """The first one of them."""
    last: int = 0
    """The last one of them."""
    changes: tuple[LastingChange, ...] = ()
    least: float = np.inf
    """The smallest lasting factor that would be found in the middle of the run."""
    because: str = ""
    """Reason why changes cannot be looked for; empty if they can."""


def growth_of(run: Run, gap: str, steps: range | None = None) -> Growth:
    """The growth of a gap over the steps of a run. steps: only these; None: all."""
    frame = run.metrics(by=("step",), names=READ)
    if steps is not None:
        frame = frame.filter(pl.col("step").is_in(list(steps)))
    history = gap_history(frame, gap)
    if history is None:
        return Growth(gap, 0, because=f"the {gap} has no K3 by step")
    known = known_steps(history)
    if len(known.steps) < LEAST_STEPS:
        count = f"{len(known.steps)} step{'' if len(known.steps) == 1 else 's'}"
        reason = f"the level of the {gap} and its error are known at {count}; {LEAST_STEPS} are needed"
        return Growth(gap, len(known.steps), because=reason)
    ends = int(known.steps[0]), int(known.steps[-1])
    return Growth(gap, len(known.steps), *ends, _changes(run, gap, known), least_factor(known))


@dataclass(frozen=True)
class _Read:
    """All that was read of a run, once for all changes."""

    steps: Integers
    """Steps whose level is known, ascending."""
    mixes: tuple[StepMix, ...]
    """The mixes of tokens by those slices of MIXES that the run has."""
    facts: Mapping[str, Floats]
    """Facts of each step in words -> values, shape (steps,)."""
    with_rows: tuple[int, ...]
    """Steps with token rows, ascending."""


def _changes(run: Run, gap: str, history: History) -> tuple[LastingChange, ...]:
    courses = changes(history)
    if not courses:
        return ()
    steps = history.steps
    mixes = (step_mix(run, gap, name, steps.tolist()) for name in MIXES)
    known = tuple(mix for mix in mixes if mix is not None)
    read = _Read(steps, known, _facts(run, gap, steps), tuple(sorted(run.rows_on_disk)))
    edges = [int(steps[0]), *(each.onset for each in courses), int(steps[-1]) + 1]
    return tuple(
        _change(run, each, (before, after), read)
        for before, each, after in zip(edges, courses, edges[2:], strict=False)
    )


def _change(run: Run, course: Course, edges: tuple[int, int], read: _Read) -> LastingChange:
    """A change with its parts and all that is beside it. edges: the change before it, and the one after it."""
    window = window_of(course.onset, course.earliest, course.latest, read.steps.tolist())
    splits = (_split(mix, *_sides(course, edges, mix.steps)) for mix in read.mixes)
    near = falls_near(run, course.falls) if course.falls else _nearby(run, window, read)
    last = int(read.steps[np.searchsorted(read.steps, edges[1]) - 1])
    return LastingChange(course, last, tuple(part for part in splits if part is not None), window, near)


def _nearby(run: Run, window: Window, read: _Read) -> tuple[NearbyChange, ...]:
    """Everything on record that changed in the window, the nearest first."""
    replicas = (mix for mix in read.mixes if mix.slice == "replica")
    nearby = [
        *nearby_changes(run, window, read.facts, read.steps),
        *(
            part
            for mix in replicas
            for part in labels_that_changed("replica", mix.keys, mix.mix.tokens, mix.steps, window)
        ),
        *(NearbyChange("fact", window.onset, words) for words in row_facts(run, window.onset, read.with_rows)),
    ]
    return tuple(sorted(nearby, key=lambda each: each.distance(window)))


def _sides(course: Course, edges: tuple[int, int], steps: Integers) -> tuple[Integers, Integers]:
    """Places of the steps before and after a change. edges: the change before it, and the one after it.

    A jump has all steps on both sides. A rise has the last quarter of its steps after it, and if it begins at once, the first
    quarter before it. A sawtooth has the steps of the resets before it, and the steps right before them after it.
    """
    before, own = (
        np.flatnonzero((steps >= low) & (steps < high))
        for low, high in ((edges[0], course.onset), (course.onset, edges[1]))
    )
    if course.kind == "sawtooth":
        falls = np.searchsorted(steps, np.array(course.falls))
        return falls[falls < len(steps)], np.unique(np.maximum(falls - 1, 0))
    if course.kind == "jump":
        return before, own
    quarter = max(len(own) // 4, 2)
    return (before if len(before) >= 2 else own[:quarter]), own[-quarter:]


def _split(mix: StepMix, before: Integers, after: Integers) -> SliceSplit | None:
    parts = split(mix.mix.at(before), mix.mix.at(after))
    labels = tuple(bucket_label(mix.slice, key) for key in mix.keys)
    return None if parts is None else SliceSplit(mix.slice, labels, parts)


def _facts(run: Run, gap: str, steps: Integers) -> Mapping[str, Floats]:
    """Facts of each step that a change of the gap may stand beside: in words -> values, shape (steps,)."""
    frame = run.metrics(by=("step",), names=("tokens", "sequences", "log_ppl_rollout"))
    own = pl.DataFrame({"step": steps}).join(frame, on="step", how="left", maintain_order="left")

    def column(name: str) -> Floats:
        values = own[f"{gap}/{name}"] if f"{gap}/{name}" in own.columns else pl.Series([None] * len(own))
        return values.cast(pl.Float64).fill_null(np.nan).to_numpy()

    sequences = column("sequences")
    rows = run.rows_on_disk
    kept = np.array([rows.get(step, 0) for step in steps.tolist()], np.float64)
    with np.errstate(all="ignore"):
        return {
            "the mean surprisal of sampled tokens (an estimate of the entropy, nats)": column("log_ppl_rollout"),
            "the mean length (tokens)": column("tokens") / sequences,
            "the number of sequences": sequences,
            "the number of rows kept per sequence": kept / sequences,
        }


def plain_growth(growth: Growth) -> dict[str, Any]:
    """The growth as values that JSON can hold."""
    return {
        "gap": growth.gap,
        "steps": growth.steps,
        "because": growth.because,
        "least_factor": growth.least,
        "changes": [_plain_change(each) for each in growth.changes],
    }


def _plain_change(change: LastingChange) -> dict[str, Any]:
    own = change.course
    return {
        "kind": own.kind,
        "step": own.onset,
        "earliest": own.earliest,
        "latest": own.latest,
        "last": change.last,
        "factor": own.factor,
        "log_error": own.error,
        "falls": list(own.falls),
        "splits": [_plain_split(each) for each in change.splits],
        "looked_beside": [change.window.first, change.window.last],
        "beside": [asdict(each) for each in change.beside],
    }


def _plain_split(own: SliceSplit) -> dict[str, Any]:
    parts = own.split
    names = (
        "before",
        "after",
        "change_error",
        "composition",
        "composition_error",
        "size",
        "size_error",
        "share",
        "share_error",
    )
    columns = [values.tolist() for values in (*parts.shares, *parts.sizes, parts.compositions)]
    keys = ("part", "share_before", "share_after", "kl_k3_before", "kl_k3_after", "composition")
    return {
        "slice": own.slice,
        **{name: getattr(parts, name) for name in names},
        "tokens": list(parts.tokens),
        "steps": list(parts.steps),
        "parts": [dict(zip(keys, row, strict=True)) for row in zip(own.labels, *columns, strict=True)],
    }


@dataclass(frozen=True)
class RowFact:
    """A number of each sequence."""

    words: str
    columns: tuple[str, ...]
    """Columns of the Record that it is made of."""
    value: pl.Expr
    """The number, from those columns."""


def _plain(words: str, column: str) -> RowFact:
    return RowFact(words, (column,), pl.col(column).cast(pl.Float64))


def _mean(words: str, column: str) -> RowFact:
    return RowFact(words, (column,), pl.col(column).list.mean().cast(pl.Float64))


FACTS = (
    RowFact("the mean version lag (updates)", ("trainer_version", "rollout_version_min"),
            (pl.col("trainer_version") - pl.col("rollout_version_min")).cast(pl.Float64)),
    _mean("the recorded entropy (nats)", "entropy"),
    RowFact("the share of prompt tokens from a prefix cache", ("cached_tokens", "prompt_tokens"),
            pl.col("cached_tokens") / pl.col("prompt_tokens")),
    _plain("the share of sequences with router replay", "replayed"),
    _mean("the agreement of routers", "router_agreement"),
    _plain("the number of media per prompt", "media"),
    _mean("the share of tokens left in the loss", "loss_mask"),
    RowFact("the share of responses that end at the length limit", ("finish_reason",),
            (pl.col("finish_reason") == "length").cast(pl.Float64)),
    _plain("the mean reward", "reward"),
    _plain("the waiting time in the engine's queue (s)", "queue_seconds"),
    _plain("the time of generation (s)", "generation_seconds"),
)  # fmt: skip
"""Facts that are compared. The mix of probabilities, lengths, turns and replicas are compared in statistics."""


def row_facts(run: Run, onset: int, with_rows: Sequence[int]) -> Iterator[str]:
    """Each fact that differs between the sequences before the onset and from it on, in words.

    with_rows: the steps with token rows, ascending.
    """
    steps = run.steps
    at = int(np.searchsorted(steps, onset))
    low, high = steps[max(at - NEAR, 0)], steps[min(at + NEAR, len(steps)) - 1]
    before = [step for step in with_rows if low <= step < onset][-SIDE:]
    after = [step for step in with_rows if onset <= step <= high][:SIDE]
    if before and after:
        old, new = (_sequences(run, side) for side in (before, after))
        for fact, was, now in zip(FACTS, old, new, strict=True):
            if words := shift(was, now, few=FEW, clear=CLEAR):
                yield f"{fact.words} went from {words}"


def _sequences(run: Run, steps: Sequence[int]) -> list[Floats]:
    """The known values of each fact at these steps."""
    columns = tuple(dict.fromkeys(column for fact in FACTS for column in fact.columns))
    frames = [pl.DataFrame(columns_of(run, step, columns)).select(columns) for step in steps]
    rows = pl.concat(frames, how="diagonal_relaxed")
    values = rows.select(fact.value.alias(str(at)) for at, fact in enumerate(FACTS))
    return [column.filter(column.is_finite().fill_null(False)).to_numpy() for column in values]


def doubling_of(run: "Run", gap: str) -> Doubling | None:
    """The exponential growth of the gap that goes on at the newest step; None if none fits."""
    history = gap_history(run.metrics(by=("step",), names=READ), gap)
    return None if history is None else doubling(history)
