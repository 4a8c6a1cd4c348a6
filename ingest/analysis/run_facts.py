"""The facts in run.json that decide which published measurements a run can be compared with. Nothing is guessed from defaults.

A model's name tells its size and kind: `Qwen3-30B-A3B` has 30 billion parameters in experts.
"""

import re
from collections.abc import Mapping
from typing import Any

from ratioscope.metrics.known.references import RunFacts

from .comparability import comparability
from .run_settings import settings

_MODEL_KEYS = (
    "config.model", "model_name_or_path", "model_name", "hf_checkpoint", "model.path", "actor.path", "model.name",
    "model_path", "pretrain",
)  # fmt: skip
"""Ends of the keys that contain the model's name, the surest first."""
_OTHER_MODELS = re.compile(r"\b(ref|reference|reward|critic|teacher|judge|draft|eval)", re.IGNORECASE)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
_MOE = re.compile(
    r"(?<![a-z0-9])a\d+(\.\d+)?b(?![a-z0-9])|moe|mixtral|\d+x\d+b|gpt-?oss|deepseek-?(v[234]|r1(?!-distill))|kimi-?k2|"
    r"glm-?(4\.[5-9]|5)|minimax-?m|moonlight|llama-?4|bailing|ling-|ring-"
)
_DENSE = re.compile(
    r"distill|qwen-?[23]|smollm|llama-?[23]|mistral-?7b|mistral-nemo|gemma-?[123]|phi-?[123]|olmo-?[123]|glm-?4-9b|"
    r"nemotron-?3-nano-4b|falcon-?3|internlm-?[23]|yi-|opt-|pythia|gpt2"
)
_HYBRID = re.compile(r"qwen3\.5|qwen3-next|nemotron-?3|nemotron-?h|mamba|falcon-h1|jamba|kimi-linear|granite-?4|lfm")
_VISION = re.compile(r"(?<![a-z])vl(?![a-z])|vision|llava|internvl|pixtral|omni")
_EXPERTS = re.compile(r"\.(num_experts|n_routed_experts|num_local_experts)$")
_REPLAY = re.compile(
    r"(rollout_routing_replay|moe_enable_routing_replay|router_replay|return_routed_experts)(\.mode|\.enabled)?$"
)
_EXACT = re.compile(
    r"(true_on_policy_mode|batch_invariant|enable_deterministic_inference|bitwise_parity)$", re.IGNORECASE
)
_FP4_KEYS = re.compile(r"quant|\.engine$", re.IGNORECASE)
_OFF = ("false", "0", "null", "none", "disable", "disabled", "")


def run_facts(info: Mapping[str, Any]) -> RunFacts:
    """The facts of a run, from its run.json. info: its content."""
    values = settings(info)
    name = _model(values)
    plain = "" if name is None else name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    engine, trainer = _precisions(info, values)
    return RunFacts(
        model=name,
        billions=_billions(plain),
        moe=_moe(plain, values),
        hybrid=_trait(plain, _HYBRID),
        vision=_trait(plain, _VISION),
        replay=_replay(values),
        engine=engine,
        trainer=trainer,
        exact=any(_EXACT.search(key) and _is_on(value) for key, value in values.items()),
    )


def _model(values: Mapping[str, str]) -> str | None:
    for end in _MODEL_KEYS:
        for key, value in values.items():
            named = key == end if end.startswith("config.") else key.endswith(f".{end}")
            if named and not _OTHER_MODELS.search(key) and value.lower() not in _OFF:
                return value
    return None


def _billions(name: str) -> float | None:
    match = _SIZE.search(name)
    return None if match is None else float(match[1]) * (1.0 if match[2] == "b" else 1e-3)


def _moe(name: str, values: Mapping[str, str]) -> bool | None:
    experts = [value for key, value in values.items() if _EXPERTS.search(key) and not _OTHER_MODELS.search(key)]
    if experts:
        return any(value not in ("0", "1") for value in experts)
    if _MOE.search(name):
        return True
    return False if _DENSE.search(name) else None


def _trait(name: str, pattern: re.Pattern[str]) -> bool | None:
    """Whether a name tells this trait. A name that tells neither the size nor the family tells nothing."""
    if pattern.search(name):
        return True
    return False if _DENSE.search(name) or _MOE.search(name) else None


def _replay(values: Mapping[str, str]) -> bool | None:
    values_of_replay = [value for key, value in values.items() if _REPLAY.search(key)]
    return any(_is_on(value) for value in values_of_replay) if values_of_replay else None


def _is_on(value: str) -> bool:
    return value.strip('"').lower() not in _OFF


def _precisions(info: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(precision of the engine's weights, precision of the trainer's arithmetic)."""
    compared = next(each for each in comparability(info) if each.name == "precision")
    engine = compared.rollout if compared.rollout.isalnum() else None
    if any(_FP4_KEYS.search(key) and "fp4" in value.lower() for key, value in values.items()):
        engine = "float4"
    if any(key.endswith("kv_cache_dtype") and "fp8" in value.lower() for key, value in values.items()):
        engine = "float8 cache" if engine in (None, "bfloat16") else engine
    return engine, _arithmetic(compared.trainer)


def _arithmetic(words: str) -> str | None:
    """The trainer's precision from the words of comparability: autocast decides over the weights."""
    for short, name in (("bf16 autocast", "bfloat16"), ("fp16 autocast", "float16")):
        if short in words:
            return name
    match = re.match(r"(bfloat16|float16|float32|float8|int8|int4)\b", words)
    return None if match is None else match[1]
