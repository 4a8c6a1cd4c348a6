"""CAUSES: every hypothesis about a gap, in the order in which equal ones are named."""

from collections.abc import Mapping

from .cause import Cause
from .causes import (
    alignment,
    first_tokens,
    last_tokens,
    no_log_probs,
    not_log_probs,
    numerics,
    onset,
    over_steps,
    recorded_labels,
    records,
    repeats,
    retokenisation,
    row_places,
    sources,
    switch_inside,
    temperature,
    third_reading,
    token_biases,
    truncation,
)

CAUSES: tuple[Cause, ...] = (
    *no_log_probs.CAUSES,
    *records.CAUSES,
    *not_log_probs.CAUSES,
    *alignment.CAUSES,
    *temperature.CAUSES,
    *truncation.CAUSES,
    *sources.CAUSES,
    *recorded_labels.CAUSES,
    *first_tokens.CAUSES,
    *last_tokens.CAUSES,
    *retokenisation.CAUSES,
    *repeats.CAUSES,
    *switch_inside.CAUSES,
    *onset.CAUSES,
    *row_places.CAUSES,
    *over_steps.CAUSES,
    *token_biases.CAUSES,
    *numerics.CAUSES,
)
CAUSE: Mapping[str, Cause] = {cause.code: cause for cause in (*third_reading.CAUSES, *CAUSES)}
"""Code -> cause, those among them that only a third reading shows."""
