"""MeasuredSteps: the statistics of the steps that a writer is given, added to its segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.parts import gathered

from ..batch.records import tokens_of
from ..process.counts import reason_of
from ..process.notice import warn
from .first_rows import first_rows_note
from .live_scalars import LiveScalars
from .measured_sequences import MeasuredSequences
from .positive_logprobs import positive_note
from .segments import Segments
from .sink import StepRows
from .step_statistics import part_statistics

LoopsFor = Callable[[int], Loops]
"""(tokens that the writer has measured) -> the engine's loops for the next ones."""


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
            self._has_warned = True
            note = positive_note(each.every_part)
            warn("step %d: %s. A log-prob is at most 0. More of this is only counted.", each.step, note)


def _of_step(statistics: pa.Table, step: int) -> pa.Table:
    return statistics.filter(pa.array(np.asarray(statistics["step"]) == step))
