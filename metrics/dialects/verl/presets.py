"""The generations of verl's correction settings: their keys, YAML defaults and presets.

A preset is the full mapping that verl's factory of that name returns with its default arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Generation:
    """One generation of verl's correction."""

    version: str
    """The version of verl, or the pull request, that begins it."""
    rejection: Literal["divergence", "ratio"]
    """From 0.7.1 on rejection bounds divergences K1, K2, K3; before, ratios, with a lower bound and a token veto."""
    reports: Literal["applied", "raw"]
    """From 0.8.0 on (with IcePop) the importance metrics use the applied weights; before, the raw ratios."""
    defaults: Config
    """The keys of the generation with their YAML defaults."""
    bypass_loss: bool = True
    """Whether there is a bypass loss; its `loss_type` chooses between PPO-clip and REINFORCE."""


_SHARED = {"rollout_is": None, "rollout_is_threshold": 2.0, "rollout_rs": None, "rollout_rs_threshold": None}
_RATIO = {**_SHARED, "rollout_rs_threshold_lower": None, "rollout_token_veto_threshold": None}
_MODE = {"rollout_is_batch_normalize": False, "bypass_mode": False, "loss_type": "ppo_clip"}
_OLD_MODE = {"bypass_old_logprob_for_rollout": False, "use_pure_rollout_correction": False}

GENERATIONS = {
    each.version: each
    for each in (
        Generation("0.9.1", "divergence", "applied", {**_SHARED, **_MODE}),
        Generation("0.7.1", "divergence", "raw", {**_SHARED, **_MODE}),
        Generation("0.7.0", "ratio", "raw", {**_RATIO, **_MODE}),
        Generation("PR-3984", "ratio", "raw", {**_RATIO, **_OLD_MODE}, bypass_loss=False),
    )
}

_TOKEN, _SEQUENCE = {"rollout_is": "token"}, {"rollout_is": "sequence"}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
_GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_SEQ_RS = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.0"}
_BYPASS = {"bypass_mode": True}
_REINFORCE = {"bypass_mode": True, "loss_type": "reinforce"}

_DIVERGENCE_PRESETS: Mapping[str, Config] = {
    "decoupled_token_is": _TOKEN,
    "decoupled_seq_is": _SEQUENCE,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": {**_SEQUENCE, **_SEQ_RS},
    "decoupled_geo_rs": _GEO,
    "decoupled_geo_rs_seq_tis": {**_SEQUENCE, **_GEO},
    "decoupled_geo_rs_token_tis": {**_TOKEN, **_GEO},
    "decoupled_k3_rs": _K3,
    "decoupled_k3_rs_seq_tis": {**_SEQUENCE, **_K3},
    "decoupled_k3_rs_token_tis": {**_TOKEN, **_K3},
    "bypass_ppo_clip": _BYPASS,
    "bypass_ppo_clip_geo_rs": {**_BYPASS, **_GEO},
    "bypass_ppo_clip_k3_rs": {**_BYPASS, **_K3},
    "bypass_pg_is": {**_SEQUENCE, **_REINFORCE},
    "bypass_pg_token_icepop": {**_ICEPOP, **_REINFORCE},
    "bypass_pg_geo_rs": {**_GEO, **_REINFORCE},
    "bypass_pg_geo_rs_seq_tis": {**_SEQUENCE, **_GEO, **_REINFORCE},
    "bypass_pg_geo_rs_token_tis": {**_TOKEN, **_GEO, **_REINFORCE},
    "disabled": {},
}

_OLD_GEO = {"rollout_rs": "geometric", "rollout_rs_threshold": 1.001, "rollout_token_veto_threshold": 1e-4}
_OLD_SEQ_RS = {"rollout_rs": "sequence", "rollout_rs_threshold": 2.0}

_RATIO_PRESETS: Mapping[str, Config] = {
    "decoupled_token_is": _TOKEN,
    "decoupled_seq_is": _SEQUENCE,
    "decoupled_seq_is_rs": {**_SEQUENCE, **_OLD_SEQ_RS},
    "decoupled_geo_rs": _OLD_GEO,
    "geo_rs_seq_tis": {**_SEQUENCE, **_OLD_GEO},
    "bypass_ppo_clip": _BYPASS,
    "bypass_ppo_clip_geo_rs": {**_BYPASS, **_OLD_GEO},
    "bypass_pg_is": {**_SEQUENCE, **_REINFORCE},
    "bypass_pg_rs": {**_OLD_GEO, **_REINFORCE},
    "bypass_pg_geo_rs_seq_tis": {**_SEQUENCE, **_OLD_GEO, **_REINFORCE},
    "disabled": {},
}

_PR_3984_PRESETS: Mapping[str, Config] = {
    "token_is": _TOKEN,
    "token_tis": _TOKEN,
    "seq_is": _SEQUENCE,
    "seq_is_rs": {**_SEQUENCE, **_OLD_SEQ_RS},
    "seq_mis": {**_SEQUENCE, **_OLD_SEQ_RS, "rollout_rs_threshold_lower": 0},
    "geo_rs": _OLD_GEO,
    "geo_mis": {**_OLD_GEO, "rollout_rs_threshold_lower": 0.999},
    "ppo_is_bypass": {**_TOKEN, "bypass_old_logprob_for_rollout": True},
    "pure_is": {**_SEQUENCE, "bypass_old_logprob_for_rollout": True, "use_pure_rollout_correction": True},
    "disabled": {},
}


def _complete(version: str, presets: Mapping[str, Config]) -> dict[str, Config]:
    return {name: {**GENERATIONS[version].defaults, **changes} for name, changes in presets.items()}


PRESETS_OF: Mapping[str, Mapping[str, Config]] = {
    "0.9.1": _complete("0.9.1", _DIVERGENCE_PRESETS),
    "0.7.1": _complete("0.7.1", {k: v for k, v in _DIVERGENCE_PRESETS.items() if "icepop" not in k}),
    "0.7.0": _complete("0.7.0", _RATIO_PRESETS),
    "PR-3984": _complete("PR-3984", _PR_3984_PRESETS),
}
"""version -> preset name -> full configuration."""
