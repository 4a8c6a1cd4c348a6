"""verl's correction of a batch: importance weights, rejection, and the metrics of both."""

from dataclasses import dataclass

from ratioscope.arrays import Array, Booleans, Reals
from ratioscope.errors import SchemaError

from .diagnostics import off_policy_metrics
from .legacy import reject_by_ratio, veto
from .ratio import log_ratio
from .rejection import reject_by_divergence
from .settings import VerlSettings
from .weights import importance_weights


@dataclass(frozen=True)
class CorrectedBatch:
    """The correction of one batch."""

    metrics: dict[str, float]
    """verl's full metric name -> value."""
    weights: Array | None
    """None if the settings form no weights."""
    mask: Booleans
    """The tokens that rejection leaves."""


def corrected_batch(train: Reals, rollout: Reals, mask: Booleans, settings: VerlSettings) -> CorrectedBatch:
    """Weights and rejection from the trainer's log-probs against the rollout's, (rows, positions).

    Both use the mask before rejection, so rejection changes neither the weights nor their metrics.
    """
    some_valid(mask)
    ratio = log_ratio(train, rollout, mask)
    weights, metrics = (None, {}) if settings.is_level is None else importance_weights(ratio, settings)
    if settings.generation.rejection == "ratio":
        mask, rejected = reject_by_ratio(ratio, settings.rejections)
        stays, vetoed = veto(ratio, settings.veto)
        mask, metrics = mask & stays, metrics | rejected | vetoed
    elif settings.rejections:
        mask, rejected = reject_by_divergence(ratio, settings.rejections)
        metrics = metrics | rejected
    named = {f"rollout_corr/{name}": value for name, value in metrics.items()}
    return CorrectedBatch(named | off_policy_metrics(train, rollout, ratio.mask), weights, mask)


def some_valid(mask: Booleans) -> None:
    """SchemaError for a mask without a valid token; verl raises too."""
    if not mask.any():
        raise SchemaError("'mask' has no valid token in the whole batch; verl's correction needs at least one")
