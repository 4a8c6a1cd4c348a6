"""The distance of a server from itself: log-probs that it gives while it decodes, beside its prefill of the same tokens.

The server goes on with recorded prompts, at temperature 1 and without truncation, as the run's engine did, and reads the result.
A salt of the call keeps it from reading prompts in its cache, which may be of older weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from ratioscope.errors import SourceError
from ratioscope.record import POLICIES

from .distance import ratio
from .engines import BYTES_OF_TOKEN, Engine
from .inputs import Sequence_
from .server import answered

PROMPTS, TOKENS = 16, 64
"""Prompts that the server goes on with, and tokens that it adds to each, at most. Conventions: the error is about a tenth."""
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


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


def own_distance(engine: Engine, sequences: Sequence[Sequence_]) -> OwnDistance:
    """The distance over some of these prompts. A server that does not generate, or gives no log-probs, has none."""
    few = sequences[:: -(-len(sequences) // PROMPTS)]
    longest = max(len(sequence.prompt) for sequence in few)
    room = TOKENS if engine.room.positions is None else min(TOKENS, engine.room.positions - longest)
    if room < 1:
        return OwnDistance(why=f"prompts of {longest} tokens leave {engine.room.name} no room to generate")
    try:
        (made,) = answered([partial(_decoded, engine, few, room)], 1)
        x = [np.asarray(made[index].recorded[POLICIES[0]]) - own for index, own in engine.scores(made)]
    except SourceError as error:
        return OwnDistance(why=str(error)[:300])
    return OwnDistance(*ratio(np.array([np.abs(own).sum() for own in x]), np.array([float(len(own)) for own in x])))


def _decoded(engine: Engine, sequences: Sequence[Sequence_], tokens: int) -> list[Sequence_]:
    """The prompts with what the server adds to them, and with the log-probs that it gives meanwhile."""
    path, body = _REQUESTS[engine.kind](engine, [list(sequence.prompt) for sequence in sequences], tokens)
    answer = engine.server.ask(path, body, most_bytes=(1 << 20) + BYTES_OF_TOKEN * tokens * len(sequences))
    try:
        pairs = [(tuple(map(int, ids)), list(map(float, found))) for ids, found in _PAIRS[engine.kind](answer)]
        made = [
            replace(sequence, response=ids, mask=None, recorded={POLICIES[0]: found})
            for sequence, (ids, found) in zip(sequences, pairs, strict=True)
            if len(ids) == len(found) and np.isfinite(found).all()
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"the tokens that it generated are of another form ({type(error).__name__})") from error
    if not (made := [each for each in made if each.response]):
        raise SourceError("it generated no token with a finite log-prob")
    return made


def _vllm_request(engine: Engine, prompts: list[list[int]], tokens: int) -> tuple[str, dict[str, Any]]:
    body = {"model": engine.served, "prompt": prompts, "max_tokens": tokens, "logprobs": 0, "return_token_ids": True}
    return "/v1/completions", {**body, **NEUTRAL, "seed": 0, "cache_salt": uuid4().hex}


def _sglang_request(engine: Engine, prompts: list[list[int]], tokens: int) -> tuple[str, dict[str, Any]]:
    adapter = {"lora_path": [engine.served] * len(prompts)} if engine.adapter else {}
    sampling = {**NEUTRAL, "max_new_tokens": tokens}
    body = {"input_ids": prompts, "sampling_params": sampling, "return_logprob": True, "extra_key": uuid4().hex}
    return "/generate", body | adapter


def _vllm_pairs(answer: Any) -> list[tuple[Any, Any]]:
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    return [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]


def _sglang_pairs(answer: Any) -> list[tuple[Any, Any]]:
    rows = [one["meta_info"]["output_token_logprobs"] for one in answer]
    return [([id for _, id, *_ in row], [logprob for logprob, *_ in row]) for row in rows]


_REQUESTS = {"vllm": _vllm_request, "sglang": _sglang_request}
_PAIRS = {"vllm": _vllm_pairs, "sglang": _sglang_pairs}
