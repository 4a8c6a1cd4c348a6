"""MeasuredSteps: the statistics of the steps that a writer is given, added to its segments.

The measured sequences of the newest steps, for steps whose rows take too much memory to be kept until the step ends.

A sequence may come again with log-probs of another policy. It can then only be measured together with its earlier rows.
The first rows that reach the disk, in one sentence: how many, of which policies, and whether their two sides line up.
Log-probs above 0, in one sentence while training: the form that they most likely have, and what to log instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Floats
from ratioscope.metrics.columns import ROUNDING, SHIFTS
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.parts import gathered
from ratioscope.metrics.engines.step_values import step_values
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS, POLICIES

from ..batch.breaths import listed
from ..batch.records import tokens_of
from ..process.counts import reason_of
from ..process.notice import warn
from .live_scalars import LiveScalars
from .segments import Segments
from .sink import StepRows
from .step_statistics import part_statistics

LoopsFor = Callable[[int], Loops]
"""(tokens that the writer has measured) -> the engine's loops for the next ones."""

_STEPS = 8
_MOST = 1 << 20
"""Number of steps that are remembered, and of sequences of each: at most some 60 MB."""

_CORRELATIONS = {0: "logprob_correlation"} | {shift: f"shift_correlation_{shift:+d}" for shift in SHIFTS}
_ALIKE = 0.5
_FEW = 30  # tokens; a correlation of fewer says nothing


def numpy_alone(_tokens: int) -> Loops:
    """Numpy's loops: in a trainer's own process nothing is compiled."""
    return NUMPY_LOOPS


class MeasuredSteps:
    """Measures steps and parts of steps.

    note: called once with the step and a sentence on the first rows; None if nobody wants it. versions: their source, in words.
    """

    def __init__(
        self,
        segments: Segments,
        live: LiveScalars | None,
        loops_for: LoopsFor,
        note: Callable[[int, str], None] | None,
        versions: str | None,
    ) -> None:
        self._segments, self._live, self._loops_for = segments, live, loops_for
        self._note, self._versions = note, versions
        self._tokens = 0
        self._unmeasured: int | None = None
        self._has_warned = False
        self._sequences = MeasuredSequences()

    def is_given_up(self, step: int) -> bool:
        """True if the statistics of the step are left to the reader, who computes them from rows."""
        return self._sequences.is_given_up(step)

    def add(self, steps: Sequence[StepRows]) -> list[str]:
        """Adds the statistics of the steps to those that wait for the disk. Returns why some could not be measured.

        Whole steps are measured together: a hundred small ones cost little more than one.
        """
        able = [each for each in steps if self._may_measure(each)]
        further = [[each] for each in able if self._is_further(each)]
        whole = [each for each in able if not self._is_further(each)]
        return [failure for group in [*further, whole] for failure in self._added(group)]

    def _may_measure(self, part: StepRows) -> bool:
        if self._sequences.may_measure(part.step, part.rows["sequence_id"], alone=part.earlier is None):
            return True
        self._segments.forget(part.step)
        return False

    def _is_further(self, part: StepRows) -> bool:
        return part.earlier is not None or part.step == self._unmeasured

    def _added(self, parts: Sequence[StepRows]) -> list[str]:
        """Adds the statistics of whole steps, or of one further part. If that fails, each of several steps is measured alone."""
        if not parts:
            return []
        try:
            fresh = self._measured(parts)
        except Exception as error:
            if len(parts) > 1:
                return [failure for each in parts for failure in self._added([each])]
            return [f"statistics: {reason_of(error)}"]
        try:
            self._show(parts, fresh)
        except Exception as error:
            return [f"statistics: {reason_of(error)}"]
        return []

    def _measured(self, parts: Sequence[StepRows]) -> pa.Table:
        """The statistics of the parts, which are now in the segments.

        A step has statistics of all its parts or of none. A reader cannot see that a part is missing, but where there are none
        it computes them from token rows. So if one part cannot be measured, the statistics of the step are removed, and the next
        part measures all parts again. They are removed for good if a sequence of the step comes again after the step's earlier
        rows were let go.
        """
        first = parts[0]
        try:
            rows = first.rows if len(parts) == 1 else pa.concat_tables([each.rows for each in parts])
            given = (first.every_part, None) if self._unmeasured == first.step else (rows, first.earlier)
            fresh = part_statistics(*given, self._loops_for(self._tokens))
            self._tokens += tokens_of(rows)
            if len(parts) > 1:
                fresh = fresh.take(np.argsort(np.asarray(fresh["step"]), kind="stable"))
            self._segments.add(fresh)
        except Exception:
            self._unmeasured = first.step
            for each in parts:
                self._segments.forget(each.step)
            raise
        self._unmeasured = None
        return fresh

    def _show(self, parts: Sequence[StepRows], fresh: pa.Table) -> None:
        """Hands on the metrics of each step, and once a note on what the first rows look like."""
        self._warn_of_positive(parts, fresh)
        for each in parts:
            if self._live is not None:
                self._live.take(each.step, _of_step(fresh, each.step), each.every_part)
            if self._note is not None and tokens_of(each.rows):
                say, self._note = self._note, None
                rows = gathered(each.every_part)
                say(each.step, first_rows_note(rows, _of_step(fresh, each.step), self._versions))

    def _warn_of_positive(self, parts: Sequence[StepRows], fresh: pa.Table) -> None:
        """Warns of the first step with log-probs above 0."""
        if self._has_warned:
            return
        steps = set(fresh.filter(pc.greater(fresh["positive_logprobs"], 0))["step"].to_pylist())
        for each in (part for part in parts if part.step in steps and not self._has_warned):
            note = "; ".join(_clauses(each.every_part))
            self._has_warned = bool(note)  # +inf is counted as no finite number
            if note:
                warn("step %d: %s. A log-prob is at most 0. More of this is only counted.", each.step, note)


def _of_step(statistics: pa.Table, step: int) -> pa.Table:
    return statistics.filter(pa.array(np.asarray(statistics["step"]) == step))


class MeasuredSequences:
    """Remembers sequences by a hash of their id. If two share a hash, a reader has to compute the statistics from rows."""

    def __init__(self) -> None:
        self._known: dict[int, set[int]] = {}
        self._given_up: dict[int, None] = {}

    def is_given_up(self, step: int) -> bool:
        """True if the statistics of the step are left to the reader, who computes them from rows."""
        return step in self._given_up

    def may_measure(self, step: int, sequence_ids: Any, *, alone: bool) -> bool:
        """True if rows with these ids, an Arrow column, can be measured. alone: no earlier rows of the step are at hand."""
        if step in self._given_up:
            return False
        known, ids = self._known.pop(step, set[int]()), set(map(hash, listed(sequence_ids)))
        if alone and (len(known) >= _MOST or not known.isdisjoint(ids)):
            self._given_up[step] = None
            while len(self._given_up) > _MOST // 1024:
                self._given_up.pop(next(iter(self._given_up)))
            return False
        self._known[step] = known | ids if known else ids
        while len(self._known) > _STEPS:
            self._known.pop(next(iter(self._known)))
        return True


def first_rows_note(rows: pa.Table, statistics: pa.Table, versions: str | None) -> str:
    """The sentence. statistics: those of `rows`. versions: where policy versions come from, if the adapter said so."""
    policies = [policy for policy in POLICIES if rows[f"{policy}_logprobs"].null_count < len(rows)]
    absent = [policy for policy in POLICIES if policy not in policies]
    parts = [
        f"{len(rows)} rows, {tokens_of(rows)} tokens, of {_listed(policies)}",
        *([f"{_listed(absent)} not in them"] if absent else []),
        _versions(rows, versions),
        _alignment(step_values(statistics, ("tokens", *_CORRELATIONS.values()))),
    ]
    return "; ".join(parts)


def _alignment(values: Mapping[str, float]) -> str:
    gap = next((gap for gap in SAMPLED if f"{gap}/{_CORRELATIONS[0]}" in values), None)
    if gap is None or values.get(f"{gap}/tokens", 0) < _FEW:
        return "alignment cannot be told from one policy or from so few tokens"
    correlations = {shift: values.get(f"{gap}/{name}", -1.0) for shift, name in _CORRELATIONS.items()}
    best = max(correlations, key=lambda shift: correlations[shift])
    others = max(value for shift, value in correlations.items() if shift != 0)
    measured = f"correlation {correlations[0]:.3f} at shift 0, at most {others:.3f} at -2..2"
    sides = " and ".join(GAPS[gap])
    doubt = 2 / values[f"{gap}/tokens"] ** 0.5  # two standard errors of a small correlation
    if best != 0 and correlations[best] > max(_ALIKE, correlations[0] + doubt):
        return f"{sides} LOOK SHIFTED by {best:+d} tokens ({measured})"
    if correlations[0] > _ALIKE:
        return f"{sides} look aligned ({measured})"
    if correlations[0] + doubt > _ALIKE:
        return f"alignment cannot be told from so few tokens ({measured})"
    return f"{sides} correlate little: other tokens, other weights, or log-probs that hardly vary ({measured})"


def _versions(rows: pa.Table, source: str | None) -> str:
    known = rows["rollout_version_min"].null_count < len(rows)
    if not known:
        return f"rollout versions unknown{f': {source}' if source else ''}"
    lags = rows["trainer_version"].null_count < len(rows)
    return f"rollout versions {f'from {source}' if source else 'recorded'}{'' if lags else ', trainer version unknown'}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "no policy"


def _clauses(rows: pa.Table) -> Iterator[str]:
    for policy in POLICIES:
        column = f"{policy}_logprobs"
        whole = rows.filter(pc.is_valid(rows[column]))
        values, mask = (pc.list_flatten(whole[name]).to_numpy() for name in (column, "mask"))
        values = values[mask.astype(bool)] if len(mask) == len(values) else values
        values = np.asarray(values[np.isfinite(values)], np.float64)
        above = int((values > ROUNDING).sum())
        if above:
            yield f"{above} of {len(values)} {policy}_logprobs are above 0, up to {values.max():.3g}: {_form(values)}"


def _form(values: Floats) -> str:
    if values.min() < 0:
        return "others are below, so log each with its own sign, and no probability among them"
    if values.max() <= 1:
        return "all lie between 0 and 1, as probabilities (exp(logp)) do; log their logarithm"
    return "none is below, as with negated log-probs (-logp); log them with their own sign"
