"""The odd one of three log-probs of the same tokens: rollout, old, and current before the first update of a step.

Old and current are then of the same weights. Squared log-ratios of independent steps add up, so that one policy lies in the
middle: the other two are as far from each other as from it together. Rollout in the middle: the trainer reads the same tokens
twice and disagrees with itself. Current in the middle, where rollout is: old is the odd one. Old in the middle: an update came.
"""

from collections.abc import Sequence

import polars as pl

from ratioscope.metrics.diagnosis.on_record import DELIVERY, STALENESS, OnRecord
from ratioscope.metrics.digits import digits
from ratioscope.record import GAPS

from ..run import Run

LEAST = 0.005
"""Half mean square in nats/token below which batches of another shape may move a trainer in 16 bits. A convention."""
LEAST_STEPS = 2
"""Fewer steps show nothing that lasts. A convention."""
NEAR, APART, EVEN = 0.2, 0.35, 1.5
"""Current is where rollout is if it is nearer by this part than old; the way through the middle may be longer or shorter by the
part APART; the trainer's two passes are as far from rollout as each other, up to a factor of EVEN. Conventions."""


def odd_policy(run: Run, gap: str, steps: Sequence[int], size: float) -> OnRecord:
    """The facts that three policies decide; empty where they do not, or the gap is small. size: K3 of the gap, nats/token."""
    if gap != "mismatch" or size < LEAST or not {*GAPS} <= {*run.gaps} or "minibatch" not in run.columns:
        return OnRecord()
    frame = run.metrics(("step", "minibatch"), steps=frozenset(steps), names=("kl_k2", "tokens"))
    columns = [f"{name}/{what}" for name in GAPS for what in ("kl_k2", "tokens")]
    if not {*columns} <= {*frame.columns}:
        return OnRecord()
    own = frame.filter(pl.col("minibatch").cast(pl.String) == "0").drop_nulls(columns)
    own = own.filter(pl.col("mismatch/tokens") == pl.min_horizontal("total/tokens", "drift/tokens"))
    if len(own) < LEAST_STEPS:
        return OnRecord()
    weight = pl.col("mismatch/tokens")
    old, current, between = own.select((pl.col(f"{name}/kl_k2") * weight).sum() / weight.sum() for name in GAPS).row(0)
    shifted = own.select((pl.col("drift/kl_k2") > pl.max_horizontal("mismatch/kl_k2", "total/kl_k2")).all()).item()
    sizes = f"{digits(old)} from rollout to old, {digits(current)} from rollout to current, {digits(between)} between the two"
    words = f"before the first update of a step, half the mean square of the log-ratio is {sizes} (nats/token)"
    if shifted and LEAST < max(old, current) < EVEN * min(old, current) and _adds_up(between, old, current):
        told = f"{words}: at the same weights the trainer disagrees with itself, around the sampler"
        return OnRecord(shown={"train_mode": told}, side="trainer", side_because=told, side_of=("train_mode",))
    if old > LEAST and current < NEAR * old and _adds_up(old, current, between):
        told = f"{words}: the sampler agrees with what trains, and old is the odd one"
        return OnRecord(
            {code: told for code in (*STALENESS, *DELIVERY, "different_prompt")}, side="trainer", side_because=told
        )
    return OnRecord()


def _adds_up(whole: float, *ways: float) -> bool:
    return abs(whole - sum(ways)) < APART * sum(ways)
