"""Responses that a server samples, with the log-probs of its decode, and how far these are from its prefill of the same tokens.

It samples at temperature 1 and without truncation, whatever its own defaults are: log-probs are then of the scale of a prefill.
One of these settings may be another, to measure the distance under it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from ratioscope.arrays import Floats, Singles
from ratioscope.errors import SourceError

from .distance import ratio
from .engines import Engine, Pairs, checked, well_formed
from .inputs import Sequence_
from .likeliest import Setting, between
from .server import answered

PROMPTS, TOKENS = 16, 64
"""Prompts that the server goes on with, and tokens that it adds to each, at most. Conventions: the error is about a tenth."""
NEUTRAL: Mapping[str, float]
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
Prompts = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Sampled:
    """A response that a server has sampled."""

    sequence: Sequence_
    logprobs: Singles
    """Its log-probs as the decode gave them, in nats."""
    cached: int | None
    """Tokens of the request's prompts that came from the prefix cache; None if the server does not give the number."""


def sampled(
    engine: Engine, prompts: Prompts, tokens: int, salt: str = "", sampling: Mapping[str, float] = NEUTRAL
) -> list[Sampled]:
    """A response to each prompt of one request, of at most so many tokens. SourceError for an answer of another form.

    vLLM: the same request samples with the same random numbers. salt: its own part of the prefix cache; "": that of all.
    """
    path, body = _REQUESTS[engine.kind](engine, prompts, tokens, sampling)
    body |= {_SALTS[engine.kind]: salt} if salt else {}
    answer = engine.ask(path, body, sum(len(prompt) + tokens for prompt in prompts))
    with well_formed(engine, path):
        found = _FOUND[engine.kind](answer)
        return [_sampled(prompt, tokens, *each) for prompt, each in zip(prompts, found, strict=True)]


def sampled_apart(engine: Engine, prompts: Prompts, tokens: Sequence[int], salts: Sequence[str] = ()) -> list[Sampled]:
    """The same by a request for each prompt, with its own number of tokens and its own salt."""
    own = zip(prompts, tokens, salts or [""] * len(prompts), strict=True)
    asked = (partial(sampled, engine, [prompt], most, salt) for prompt, most, salt in own)
    return [one for each in answered(asked, engine.in_flight) for one in each]


def _sampled(prompt: tuple[int, ...], most: int, pairs: Pairs, cached: int | None) -> Sampled:
    if not 0 < len(pairs) <= most:
        raise ValueError(f"{len(pairs)} sampled tokens, wanted 1 to {most}")
    sequence = Sequence_(0, 0, "sampled", prompt, tuple(int(id) for id, _ in pairs))
    return Sampled(sequence, checked(sequence, pairs), cached)


def _vllm_request(
    engine: Engine, prompts: Prompts, tokens: int, own: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    body = {"model": engine.served, "prompt": prompts, "max_tokens": tokens, "logprobs": 0, "return_token_ids": True}
    return "/v1/completions", body | {"seed": 0, **own}


def _sglang_request(
    engine: Engine, prompts: Prompts, tokens: int, own: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    body = {"input_ids": prompts, "sampling_params": {**own, "max_new_tokens": tokens}, "return_logprob": True}
    return "/generate", body | engine.adapters(len(prompts))


def _vllm_found(answer: Any) -> list[tuple[Pairs, int | None]]:
    cached = ((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    pairs = [list(zip(own["token_ids"], own["logprobs"]["token_logprobs"], strict=True)) for own in choices]
    return [(each, None if cached is None else int(cached)) for each in pairs]


def _sglang_found(answer: Any) -> list[tuple[Pairs, int | None]]:
    about = [one["meta_info"] for one in answer]
    pairs = ([(id, logprob) for logprob, id, *_ in own["output_token_logprobs"]] for own in about)
    return [(each, int(own.get("cached_tokens") or 0)) for each, own in zip(pairs, about, strict=True)]


_REQUESTS = {"vllm": _vllm_request, "sglang": _sglang_request}
_SALTS = {"vllm": "cache_salt", "sglang": "extra_key"}
_FOUND = {"vllm": _vllm_found, "sglang": _sglang_found}


@dataclass(frozen=True)
class OwnDistance:
    """mean |x| of a reading from itself: between decode and prefill of a server, or between two precisions of a model."""

    mean: float = float("nan")
    """nats/token; NaN where it was not measured."""
    error: float = float("nan")
    """Its standard error over sequences; NaN below two, 0 where the tokens are those of the column."""
    why: str = ""
    """The reason why it was not measured."""

    @property
    def least(self) -> float:
        """The mean less its error: a floor that is too high would prove too much."""
        return self.mean - self.error


def own_distance(engine: Engine, sequences: Sequence[Sequence_], setting: Setting | None = None) -> OwnDistance:
    """The distance over some of these prompts. A server that does not generate, or gives no log-probs, has none.

    A salt of the call keeps it from reading prompts in its cache, which may be of older weights. setting: that under which
    both are read.
    """
    few = [sequence.prompt for sequence in sequences[:: -(-len(sequences) // PROMPTS)]]
    longest = max(map(len, few))
    room = TOKENS if engine.room.positions is None else min(TOKENS, engine.room.positions - longest)
    if room < 1:
        return OwnDistance(why=f"prompts of {longest} tokens leave {engine.room.name} no room to generate")
    try:
        sampling = {**NEUTRAL, **({} if setting is None else dict([setting]))}
        (made,) = answered([partial(sampled, engine, few, room, uuid4().hex, sampling)], 1)
        ways = _apart(engine, made) if setting is None else _apart_under(engine, made, setting)
    except SourceError as error:
        return OwnDistance(why=str(error)[:300])
    return min((_mean(x) for x in ways), key=lambda own: own.mean)


def _apart(engine: Engine, made: Sequence[Sampled]) -> tuple[list[Floats]]:
    """Decode minus prefill of each response."""
    prefill = dict(engine.scores([each.sequence for each in made]))
    return ([each.logprobs.astype(np.float64) - prefill[index] for index, each in enumerate(made)],)


def _apart_under(engine: Engine, made: Sequence[Sampled], setting: Setting) -> tuple[list[Floats], list[Floats]]:
    """The same under a setting, for both modes of the decode's log-probs; the nearer one is the server's.

    Raw ones are compared at temperature 1 and divided by the temperature, as if the sum that normalises did not round.
    """
    power = 1 / setting[1] if setting[0] == "temperature" else 1.0
    raw, processed = list[Floats](), list[Floats]()
    for index, known in engine.likeliest([each.sequence for each in made]):
        low, high = between(known, setting)
        raw.append(power * (made[index].logprobs - known.own))
        processed.append(made[index].logprobs - (low + high) / 2)
    return raw, processed


def _mean(x: Sequence[Floats]) -> OwnDistance:
    return OwnDistance(*ratio(np.array([np.abs(own).sum() for own in x]), np.array([float(len(own)) for own in x])))
