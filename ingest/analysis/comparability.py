"""Compares the settings of engine and trainer in run.json: sampling, precision, log-prob mode, versions.

Settings that differ cause a gap. A setting that is not on record is unknown; nothing is guessed from a trainer's defaults.
The facts in run.json that decide which published measurements a run can be compared with. Nothing is guessed from defaults.

A model's name tells its size and kind: `Qwen3-30B-A3B` has 30 billion parameters in experts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ratioscope.metrics.known.references import RunFacts
from ratioscope.redaction import REDACTED

from ..files.quarantine import printable
from .run_settings import settings

SettingState = Literal["ok", "expected", "differs", "unknown"]
"""expected: a normal difference, which explains a small gap."""
Handling = Literal["applies", "ignores"]

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
_OFF_WORDS = ("false", "0", "null", "none", "disable", "disabled", "")


@dataclass(frozen=True)
class ComparedSetting:
    """One setting on both sides."""

    name: str
    rollout: str
    """The engine's value, in words."""
    trainer: str
    """The trainer's value, in words."""
    state: SettingState
    why: str
    """Effect of a difference on a gap."""
    source: str = ""
    """The key of run.json that it was read from."""
    record: str = ""
    """The part of `config` that would make an unknown setting known, as Python."""


@dataclass(frozen=True)
class _LogitTreatment:
    """Treatment of the logits when a trainer scores tokens, from its source code. None: not known."""

    temperature: Handling | None = None
    """Division of its logits by the sampling temperature."""
    truncation: Handling | None = None
    """Truncation by top-p, top-k and min-p."""


_TRAINERS: Mapping[str, _LogitTreatment] = {
    "trl": _LogitTreatment("applies", "ignores"),
    "verl": _LogitTreatment("applies", "ignores"),
    "slime": _LogitTreatment("applies", "applies"),
    "nemo-rl": _LogitTreatment("applies", "applies"),
    "areal": _LogitTreatment("applies", "ignores"),
    "skyrl": _LogitTreatment("applies"),
    "roll": _LogitTreatment("ignores", "ignores"),
    "prime-rl": _LogitTreatment("applies"),
}
_SAMPLING = ("sampling", "rollout", "generation", "gconfig", "generator", "generating_args")
"""Parts of a key that contains the engine's sampling settings."""
_ELSEWHERE = ("eval", "val", "validation", "val_kwargs", "reward_model", "critic", "ref")
_NOT_ON_RECORD = "not on record"
_OFF = "off"


@dataclass(frozen=True)
class _Cut:
    """A sampling setting that truncates or changes the distribution."""

    name: str
    keys: tuple[str, ...]
    """Its names in configurations."""
    neutral: tuple[float, ...]
    """Values at which it does nothing."""
    why: str
    """Effect of the setting on a gap."""


_CUTS = (
    _Cut("top-p", ("top_p", "rollout_top_p"), (1.0,),
         "The engine renormalises over the tokens it keeps: its log-probs are too high by up to −log p at every token."),
    _Cut("top-k", ("top_k", "rollout_top_k"), (0.0, -1.0),
         "As top-p: the flatter a distribution is, the more its log-probs are too high."),
    _Cut("min-p", ("min_p",), (0.0,), "As top-p: the engine renormalises over the tokens it keeps."),
    _Cut("repetition penalty", ("repetition_penalty",), (1.0,),
         "The engine lowers tokens that have occurred; the trainer finds those more likely and new ones less."),
)  # fmt: skip
_TEMPERATURE = "A trainer that scores at another temperature finds every log-ratio bent by it: a slope, not noise."
_DTYPE = "Other precision rounds every logit differently: normal, and the usual cause of the small gap that is left at lag 0."
_FLOATS = frozenset({"bfloat16", "float16", "float32"})
"""Precisions of which any two may differ between engine and trainer: the usual setup."""
_MODE = (
    "Raw log-probs are those before temperature and truncation, processed ones after; both sides have to mean the same."
)
VERSIONS = "Kernels change between releases: look here if the gap began with an upgrade."
ENGINES = ("vllm", "sglang")
LIBRARIES = ("trl", "verl", "slime", "skyrl", "nemo-rl", "areal", "openrlhf", "torch", "transformers")


def comparability(info: Mapping[str, Any]) -> tuple[ComparedSetting, ...]:
    """Each setting on both sides, from run.json. info: its content."""
    config = info.get("config")
    values = tuple(_leaves(config, ())) if isinstance(config, dict) else ()
    trainer = next(
        (known for name, known in _TRAINERS.items() if str(info.get("trainer", "")).lower().startswith(name)),
        _LogitTreatment(),
    )
    temperature = _temperature(values, trainer)
    cuts = tuple(_cut(cut, values, trainer) for cut in _CUTS)
    compared = (temperature, *cuts, _mode(values, (temperature, *cuts)), _dtype(values), _versions(info))
    return tuple(
        replace(each, record=_RECORD.get(each.name, "")) if each.state == "unknown" else each for each in compared
    )


def recorded_values(info: Mapping[str, Any]) -> dict[str, float]:
    """Name of a sampling setting, or prompt length -> its value on record. info: the content of run.json."""
    length = next((value for key, value in settings(info).items() if _LENGTH.search(key)), "")
    lengths = dict.fromkeys(("prompt length", "padded length"), _number_in(length))
    return {name: number for name, number in (_sampled_numbers(info) | lengths).items() if number}


def greedy_words(info: Mapping[str, Any]) -> str:
    """That decoding takes the likeliest token by the settings on record, in words; empty if they do not tell. info: run.json."""
    values = _sampled_numbers(info)
    told = (name for name, number in (("temperature", 0), ("top-k", 1)) if values.get(name) == number)
    return next((f"decoding is greedy by the record, {name} {values[name]:g}" for name in told), "")


def _sampled_numbers(info: Mapping[str, Any]) -> dict[str, float | None]:
    """Name of a setting of the sampler -> its number; None where it has none."""
    return {each.name: _number_in(each.rollout.partition(",")[0]) for each in comparability(info)}


def _number_in(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_LENGTH = re.compile(r"(^|\.)max_prompt_length$")
_RECORD: Mapping[str, str] = {
    "temperature": '{"sampling": {"temperature": 1.0}}',
    **{cut.name: f'{{"sampling": {{"{cut.keys[0]}": {cut.neutral[0]:g}}}}}' for cut in _CUTS},
    "log-prob mode": '{"logprobs_mode": "processed_logprobs"}',
    "precision": '{"rollout": {"dtype": "bfloat16"}, "model_dtype": "float32"}',
}
"""Setting -> a configuration that tells it; the reader writes its own values."""

_Leaf = tuple[tuple[str, ...], Any]


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[_Leaf]:
    if isinstance(value, dict) and len(path) < 12:
        for name, part in value.items():
            yield from _leaves(part, (*path, *str(name).split(".")))
    else:
        yield path, value


def _sampled(values: Sequence[_Leaf], keys: Sequence[str]) -> tuple[str, Any] | None:
    """(key, value) of a sampling setting of the engine; None where run.json has none."""
    own = [(path, value) for path, value in values if path and path[-1] in keys and not set(path) & set(_ELSEWHERE)]
    below = [leaf for leaf in own if set(leaf[0][:-1]) & set(_SAMPLING)]
    others = [leaf for leaf in own if len(leaf[0]) == 1 or leaf[0][0] == "args"]
    chosen = (below or others)[:1]
    return (printable(".".join(chosen[0][0])), chosen[0][1]) if chosen else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _temperature(values: Sequence[_Leaf], trainer: _LogitTreatment) -> ComparedSetting:
    temperatures = _sampled(values, ("temperature", "rollout_temperature"))
    if temperatures is None or (number := _number(temperatures[1])) is None:
        return ComparedSetting("temperature", _NOT_ON_RECORD, _NOT_ON_RECORD, "unknown", _TEMPERATURE)
    shown = f"{number:g}"
    own = (f"{shown}, it divides its logits by it", "1, it does not apply it")
    scored, state = _handled(trainer.temperature, *own)
    if number == 1:
        scored, state = "1: nothing to apply", "ok"
    return ComparedSetting("temperature", shown, scored, state, _TEMPERATURE, temperatures[0])


def _handled(handling: Handling | None, applies: str, ignores: str) -> tuple[str, SettingState]:
    """The words for a trainer that handles a setting so, and the state that follows."""
    if handling is None:
        return "not known of this trainer", "unknown"
    return (applies, "ok") if handling == "applies" else (ignores, "differs")


def _cut(cut: _Cut, values: Sequence[_Leaf], trainer: _LogitTreatment) -> ComparedSetting:
    sampled = _sampled(values, cut.keys)
    number = None if sampled is None else _number(sampled[1])
    if sampled is None or (sampled[1] is not None and number is None):
        return ComparedSetting(cut.name, _NOT_ON_RECORD, _NOT_ON_RECORD, "unknown", cut.why)
    if number is None or number in cut.neutral:
        return ComparedSetting(
            cut.name, _OFF if number is None else f"{number:g}, {_OFF}", _OFF, "ok", cut.why, sampled[0]
        )
    scored, state = _handled(trainer.truncation, "it applies the same", "it scores without it")
    return ComparedSetting(cut.name, f"{number:g}", scored, state, cut.why, sampled[0])


def _mode(values: Sequence[_Leaf], sampling: Sequence[ComparedSetting]) -> ComparedSetting:
    setting = next(((path, value) for path, value in values if path and path[-1] == "logprobs_mode"), None)
    mode = _NOT_ON_RECORD if setting is None else printable(str(setting[1]))
    source = "" if setting is None else printable(".".join(setting[0]))
    plain = sampling[0].rollout == "1" and all(_OFF in each.rollout for each in sampling[1:])
    if plain:
        words = "the same either way: temperature is 1 and nothing is cut off"
        return ComparedSetting("log-prob mode", mode, words, "ok", _MODE, source)
    if setting is None:
        return ComparedSetting("log-prob mode", mode, _NOT_ON_RECORD, "unknown", _MODE)
    agree = all(each.state == "ok" for each in sampling)
    state: SettingState = (
        "ok" if mode.startswith("processed") and agree else "unknown" if not mode.startswith("raw") else "differs"
    )
    return ComparedSetting("log-prob mode", mode, "after what it applies itself, see above", state, _MODE, source)


_PRECISIONS = (
    ("float8", r"fp8|float8|e4m3|e5m2"), ("int8", r"int8|w8a8"), ("int4", r"int4|awq|gptq"), ("bfloat16", r"bf16|bfloat16"),
    ("float16", r"fp16|float16|\bhalf\b"), ("float32", r"fp32|float32|\bfloat\b"),
)  # fmt: skip


def _precision(text: object) -> str | None:
    return next((name for name, pattern in _PRECISIONS if re.search(pattern, str(text).lower())), None)


def _dtype(values: Sequence[_Leaf]) -> ComparedSetting:
    engine = _precision_of(
        values, ("dtype", "quantization", "precision"), (*_SAMPLING, "actor_infer")
    ) or _precision_of(values, ("engine", "vllm_dtype", "sglang_dtype"), ())
    trainer = (
        _precision_of(values, ("model_dtype", "param_dtype", "torch_dtype"), ())
        or _precision_of(values, ("precision",), ("policy",))
        or _precision_of(values, ("dtype",), ("actor_train",))
    )
    autocast = [
        name for name in ("bf16", "fp16") if any(path[-1:] == (name,) and value is True for path, value in values)
    ]
    scored = (
        _NOT_ON_RECORD if trainer is None else trainer[1] + (f" weights, {autocast[0]} autocast" if autocast else "")
    )
    if trainer is None and autocast:
        scored, trainer = f"{_precision(autocast[0])}, by {autocast[0]}", ("", str(_precision(autocast[0])))
    sampled = _NOT_ON_RECORD if engine is None else engine[1]
    state: SettingState = "unknown"
    if engine is not None and trainer is not None:
        both = {engine[1], trainer[1]}
        state = "ok" if len(both) == 1 else "expected" if both <= _FLOATS else "differs"
    return ComparedSetting(
        "precision",
        sampled,
        scored,
        state,
        _DTYPE,
        ", ".join(each[0] for each in (engine, trainer) if each and each[0]),
    )


def _precision_of(values: Sequence[_Leaf], keys: Sequence[str], below: Sequence[str]) -> tuple[str, str] | None:
    """(key, precision) of the first of these keys with a value that names a precision."""
    for path, value in values:
        if path and path[-1] in keys and (not below or set(path[:-1]) & set(below)) and not set(path) & set(_ELSEWHERE):
            if isinstance(value, str) and (precision := _precision(value)):
                return printable(".".join(path)), precision
    return None


def _versions(info: Mapping[str, Any]) -> ComparedSetting:
    versions = info.get("versions")
    known = versions if isinstance(versions, dict) else {}
    engine, trainer = (
        ", ".join(f"{name} {printable(str(known[name]))}" for name in names if name in known)
        for names in (ENGINES, LIBRARIES)
    )
    if not (engine and trainer):
        return ComparedSetting("versions", engine or _NOT_ON_RECORD, trainer or _NOT_ON_RECORD, "unknown", VERSIONS)
    return ComparedSetting("versions", engine, trainer, "ok", VERSIONS, "versions")


def run_facts(info: Mapping[str, Any]) -> RunFacts:
    """The facts of a run, from its run.json. info: its content."""
    values = settings(info)
    name = _model(values)
    plain = "" if name is None else name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    engine, trainer = _precisions(info, values)
    match = _SIZE.search(plain)
    values_of_replay = [value for key, value in values.items() if _REPLAY.search(key)]
    return RunFacts(
        model=name,
        billions=None if match is None else float(match[1]) * (1.0 if match[2] == "b" else 1e-3),
        moe=_moe(plain, values),
        hybrid=_trait(plain, _HYBRID),
        vision=_trait(plain, _VISION),
        replay=any(_is_on(value) for value in values_of_replay) if values_of_replay else None,
        engine=engine,
        trainer=trainer,
        exact=any(_EXACT.search(key) and _is_on(value) for key, value in values.items()),
    )


def _model(values: Mapping[str, str]) -> str | None:
    for end in _MODEL_KEYS:
        for key, value in values.items():
            named = key == end if end.startswith("config.") else key.endswith(f".{end}")
            if named and not _OTHER_MODELS.search(key) and value.lower() not in _OFF_WORDS:
                return value
    return None


def _moe(name: str, values: Mapping[str, str]) -> bool | None:
    experts = [value for key, value in values.items() if _EXPERTS.search(key) and not _OTHER_MODELS.search(key)]
    if experts:
        return any(value not in ("0", "1") for value in experts)
    return _trait(name, _MOE)


def _trait(name: str, pattern: re.Pattern[str]) -> bool | None:
    """Whether a name tells this trait. A name that tells neither the size nor the family tells nothing."""
    if pattern.search(name):
        return True
    return False if _DENSE.search(name) or _MOE.search(name) else None


def _is_on(value: str) -> bool:
    return value.strip('"').lower() not in _OFF_WORDS


def _precisions(info: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(precision of the engine's weights, precision of the trainer's arithmetic)."""
    if scorers := scorers_of(info):
        engine, trainer = (str(own["dtype"]) if "dtype" in own else None for own in (scorers[0], scorers[-1]))
        return engine, trainer
    compared = next(each for each in comparability(info) if each.name == "precision")
    engine = compared.rollout if compared.rollout.isalnum() else None
    if any(_FP4_KEYS.search(key) and "fp4" in value.lower() for key, value in values.items()):
        engine = "float4"
    if any(key.endswith("kv_cache_dtype") and "fp8" in value.lower() for key, value in values.items()):
        engine = "float8 cache" if engine in (None, "bfloat16") else engine
    return engine, _arithmetic(compared.trainer)


def scorers_of(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The facts of the scorers of `ratioscope parity` that stand for engine and trainer; one for both, none for other runs.

    A scorer has its name among its facts. Older runs have it as a key, under which a name such as hf made secrets of them.
    """
    config = info.get("config")
    made_of = config.get("parity") if isinstance(config, dict) else None
    if isinstance(made_of, dict):
        made_of = [{**own, "name": name} for name, own in made_of.items() if isinstance(own, dict)]
    own_facts = [own for own in made_of if isinstance(own, dict)] if isinstance(made_of, list) else []
    found = [{key: value for key, value in own.items() if value != REDACTED} for own in own_facts]
    return found if len(found) in (1, 2) else []


def _arithmetic(words: str) -> str | None:
    """The trainer's precision from the words of comparability: autocast decides over the weights."""
    for short, name in (("bf16 autocast", "bfloat16"), ("fp16 autocast", "float16")):
        if short in words:
            return name
    match = re.match(r"(bfloat16|float16|float32|float8|int8|int4)\b", words)
    return None if match is None else match[1]
