"""What is said of an AReaL run: its configuration, where versions come from, and why a policy is not on record."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...batch.tokenizer_copy import decoder
from .topology import data_parallel_rank, pipeline_stages

OLD_IS_ROLLOUT = (
    "AReaL takes the rollout log-probs as old ones with use_decoupled_loss=false and recompute_logprob=false, so that mismatch "
    "is 0 by construction: old is not recorded, and total is the gap on record; actor.recompute_logprob=true records old"
)
OLD_IS_INTERPOLATED = (
    "AReaL computes no old log-probs with prox_logp_method=loglinear but interpolates them between rollout and current: old is "
    "not recorded, and total is the gap on record; actor.prox_logp_method=recompute (or metrics) records old"
)
ROLLOUT_IS_LOST = (
    "AReaL overwrites rollout log-probs with recompute_logprob=true and use_decoupled_loss=false, and those of some sequences "
    "were not seen before it did: their rows have none; compute_advantages must run in the process that updates"
)
VERSIONS = (
    "AReaL's `versions`: per token, what its client had when the token came back, in updates of the engines' weights"
)
NO_VERSIONS = "the workflow gives no `versions`, so that staleness is unknown"


def description(actor: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Recording.describe. data: the first batch."""
    engine = actor.engine
    tokenizer = getattr(engine, "tokenizer", None)
    parallel = {
        "data_parallel_ranks": getattr(engine, "data_parallel_world_size", None),
        "pipeline_stages": pipeline_stages(engine),
    }
    return {
        "trainer": version(),
        "config": {"actor": actor.config, "engine": type(engine).__name__, "parallel": parallel},
        "rank": data_parallel_rank(engine),
        "decode": None if tokenizer is None else decoder(tokenizer),
        "versions": NO_VERSIONS if data.get("versions") is None else VERSIONS,
    }


def version() -> str:
    return f"areal {getattr(sys.modules.get('areal'), '__version__', 'unknown')}"
