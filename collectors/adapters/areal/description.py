"""The description of an AReaL run: its configuration, the source of versions, and why a policy is not recorded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...batch.tokenizer_copy import decoder
from .topology import data_parallel_rank, pipeline_stages

OLD_IS_ROLLOUT = (
    "AReaL uses the rollout log-probs as old with use_decoupled_loss=false and recompute_logprob=false, so mismatch is 0 by "
    "construction: old is not recorded, total is; actor.recompute_logprob=true records old"
)
OLD_IS_INTERPOLATED = (
    "AReaL computes no old log-probs with prox_logp_method=loglinear; it interpolates between rollout and current: old is not "
    "recorded, total is; actor.prox_logp_method=recompute (or metrics) records old"
)
OLD_IS_CURRENT = (
    "AReaL takes the detached current log-probs as old with prox_logp_method=reuse_train_logp, so there is no mismatch on "
    "record: old is not recorded, total is; actor.prox_logp_method=recompute for some steps records old"
)
WITHOUT_OLD = {"reuse_train_logp": ("old_is_current", OLD_IS_CURRENT)}
"""prox_logp_method -> the event and the words for a batch without old log-probs; any other interpolates."""
ROLLOUT_IS_LOST = (
    "AReaL overwrites rollout log-probs with recompute_logprob=true and use_decoupled_loss=false, and some sequences had no copy "
    "before: their rows have no rollout log-probs; run compute_advantages in the process that updates"
)
VERSIONS = (
    "AReaL's `versions`: per token, the client's count of updates of the engines' weights when the token came back"
)
NO_VERSIONS = "the workflow gives no `versions`, so staleness is unknown"


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
    """For run.json: name and version."""
    return f"areal {getattr(sys.modules.get('areal'), '__version__', 'unknown')}"
