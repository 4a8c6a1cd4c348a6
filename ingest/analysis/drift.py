"""The answer to "why are old and current apart?": the size of the drift, and why no cause of a gap is looked for in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.metrics.diagnosis.marked import counted
from ratioscope.metrics.digits import digits

from ..run import Run

MEANS = ("ppo_kl", "abs_log_ratio", "share_outside_0.8_1.2")
LARGEST = "max_abs_log_ratio"
OF_TRAINER = (
    "Both sides are the trainer's, so no cause of a gap between an engine and a trainer is looked for. Optimizer steps between "
    "old and current move them apart by design. Before the first of them the drift must be 0, or as small as rounding is"
)
OF_COPY = "Old equals rollout at every token, so the drift is the total gap: diagnose that with --gap total"


@dataclass(frozen=True)
class Drift:
    """The drift of some steps, as `metrics` has it."""

    steps: tuple[int, ...]
    """Steps that have tokens with both sides, ascending."""
    tokens: int
    values: Mapping[str, float]
    """Metric of the gap -> its value over all tokens of these steps."""
    is_total: bool
    """True if old equals rollout at all of them."""

    @property
    def words(self) -> str:
        """The size of the drift and the reason, in sentences."""
        of = f"{counted(self.tokens, 'token')} of {counted(len(self.steps), 'step')}"
        if self.values[LARGEST] == 0:
            size = f"Old and current are equal at all {of}"
        else:
            mean, apart, share = (self.values[name] for name in MEANS)
            size = (
                f"Over {of} the mean |current - old| is {digits(apart)} nats, at most {digits(self.values[LARGEST])}; the mean "
                f"of old - current (ppo_kl) is {digits(mean)} nats/token; {share:.2%} of the tokens have a ratio outside 0.8 "
                "to 1.2"
            )
        return f"{size}. {OF_COPY if self.is_total else OF_TRAINER}."


def drift_of(run: Run, steps: Sequence[int] | None = None) -> Drift:
    """The drift of these steps; None: of all. SourceError if none has a token with finite log-probs of both sides."""
    frame = run.metrics(by=("step",), names=(*MEANS, LARGEST, "tokens"))
    asked = frame if steps is None else frame.filter(pl.col("step").is_in(list(steps)))
    n = pl.col("drift/tokens").cast(pl.Float64)
    known = asked.filter(n > 0) if "drift/tokens" in asked.columns else asked.clear()
    if known.is_empty():
        raise SourceError(f"the run {run.name} has no token with finite log-probs of old and of current at these steps")
    whole = known.select(
        pl.col("drift/tokens").sum(),
        *((pl.col(f"drift/{name}") * n).sum() / n.sum() for name in MEANS),
        pl.col(f"drift/{LARGEST}").max(),
    ).row(0)
    values: dict[str, float] = dict(zip((*MEANS, LARGEST), whole[1:], strict=True))
    mismatch = f"mismatch/{LARGEST}"
    is_total = mismatch in known.columns and bool((known[mismatch] == 0).fill_null(False).all())
    return Drift(tuple(known["step"].unique().sort()), int(whole[0]), values, is_total)


def plain_drift(drift: Drift) -> dict[str, Any]:
    """The answer as values that JSON can hold, under the names of `plain_diagnosis`."""
    return {
        "answer": drift.words, "healthy": None, "gap": "drift", "kl_k3": None, "likely": [], "excluded": [], "cannot_tell": [],
        "measured": dict(drift.values), "steps_read": list(drift.steps), "tokens": drift.tokens,
    }  # fmt: skip
