"""LiveScalars: metrics of the newest recorded steps, for the trainer's own logger, if the user asks for them.

The writer's thread computes them from the statistics that it writes anyway. The trainer's thread takes what is ready and never
waits. The values of a step are ready when the writer has finished the step. The trainer may have logged the step by then: its
values then go into the trainer's next log, and `ratioscope/step` names the step that they belong to.
"""

from collections.abc import Callable, Collection

import pyarrow as pa

from ratioscope.metrics.engines.step_values import step_values

PREFIX = "ratioscope"
STEP = f"{PREFIX}/step"
LOGGED = (
    "tokens", "sequences", "kl_direct", "kl_k3", "abs_log_ratio", "max_abs_log_ratio", "log_ppl_gap", "ppl_ratio",
    "chi2_token", "ess_token", "ess_sequence", "mean_weight_token", "mean_weight_token_z", "pareto_k_token", "prob_diff",
    "prob_correlation", "surprisal_gap_z", "non_finite",
)  # fmt: skip
"""Metrics that deserve a chart in a logger. All others are in the run folder."""
_KEPT = 4


class LiveScalars:
    """The values of the newest steps.

    dialect: of the trainer, whose own metrics are added under its names. ready: called with the values of each step, in a
    writer's process; without it they are kept for `newest`.
    """

    def __init__(
        self, dialect: str | None = None, ready: Callable[[int, dict[str, float]], None] | None = None
    ) -> None:
        self._dialect, self._hand_over = dialect, ready or self.ready
        self._parts: dict[int, list[pa.Table]] = {}
        self._ready: dict[int, dict[str, float]] = {}
        self._returned = -1

    def take(self, step: int, statistics: pa.Table, rows: pa.Table) -> None:
        """Takes the statistics of a step, or of a further part of it, and all its rows so far. For the writer's thread."""
        self._parts.setdefault(step, []).append(statistics)
        values = step_values(pa.concat_tables(self._parts[step]), LOGGED)
        made = {f"{PREFIX}/{name}": value for name, value in values.items()} | self._theirs(rows)
        self._hand_over(step, made)
        for old in sorted(self._parts)[:-_KEPT]:
            del self._parts[old]

    def ready(self, step: int, values: dict[str, float]) -> None:
        """Keeps the values of a step for `newest`."""
        if step > self._returned:
            self._ready[step] = values
        for old in sorted(list(self._ready))[:-_KEPT]:
            self._ready.pop(old, None)

    def newest(self, step: int, known: Collection[str] = ()) -> dict[str, float]:
        """Values of the newest step that is ready, no later than `step` and not returned before; without names in `known`."""
        ready = max((each for each in list(self._ready) if self._returned < each <= step), default=None)
        values = None if ready is None else self._ready.pop(ready, None)
        if ready is None or values is None:
            return {}
        self._returned = ready
        return {STEP: float(ready), **{name: value for name, value in values.items() if name not in known}}

    def _theirs(self, rows: pa.Table) -> dict[str, float]:
        """The metrics that the trainer's own code would log, under its names; {} if the rows lack a policy or a token."""
        if self._dialect is None:
            return {}
        from ratioscope.errors import RatioscopeError
        from ratioscope.metrics.dialects import dialect
        from ratioscope.metrics.dialects.batch import batch_arrays
        from ratioscope.metrics.engines.join import joined

        try:
            batch = batch_arrays(joined(rows))
            return dict(dialect(self._dialect).evaluate(batch, {}).metrics) if batch.mask.any() else {}
        except RatioscopeError:
            return {}
