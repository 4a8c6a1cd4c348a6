"""The arms of a running server: requests alone or together, a prompt from the prefix cache or not, decode or prefill.

Nothing here changes a server: no cache is flushed, no weight or adapter is loaded. vLLM reads nothing of its prefix cache for a
request with `prompt_logprobs`: its cached arm is of decodes, with a `cache_salt` of their own. SGLang reads the tokens before
`logprob_start_len` from its cache, and none if that is 0 (vLLM 0.32, SGLang 0.5.23).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from ratioscope.arrays import Singles

from ..engines import Engine, checked, sglang_request, well_formed
from ..inputs import Sequence_
from ..server import answered
from .arm import Known, Pair, Plan, columns

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Untruncated and at temperature 1, whatever the server's own defaults are: log-probs are then of the scale of a prefill."""
UNCACHED = (
    "no token came from the prefix cache: it is off, or the prompts are shorter than its blocks (16 tokens in vLLM on a GPU, 128"
    " on a CPU)"
)


@dataclass(frozen=True)
class Decoded:
    """A response that a server has sampled."""

    sequence: Sequence_
    logprobs: Singles
    """Its log-probs as the decode gave them, in nats."""
    cached: int | None
    """Tokens of its prompt that came from the prefix cache; None if the server does not give the number."""


def decoded(
    engine: Engine, prompts: Sequence[tuple[int, ...]], tokens: Sequence[int], salts: Sequence[str] = ()
) -> list[Decoded]:
    """A response to each prompt, of at most so many tokens. vLLM: the same call samples with the same random numbers."""
    asked = [
        partial(_decode, engine, index, prompt, most, salts[index] if salts else "")
        for index, (prompt, most) in enumerate(zip(prompts, tokens, strict=True))
    ]
    return list(answered(asked, engine.in_flight))


def together_or_alone(engine: Engine, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Requests of one sequence, one at a time, and requests of many."""
    if len(sequences) < 2:
        return "there is one sequence alone"
    alone = columns(replace(engine, in_flight=1, request_tokens=1), sequences)
    whole = replace(engine, in_flight=1, request_tokens=sys.maxsize)
    parts = [sequences[first : first + plan.together] for first in range(0, len(sequences), plan.together)]
    together = [own for part in parts for own in columns(whole, part)]
    doubt = (
        f"a server chooses its batches itself: requests of one sequence, one at a time, and requests of"
        f" {min(plan.together, len(sequences))} stand for them"
    )
    return [Pair("alone", f"{plan.together} together", (alone, together), doubt=doubt)]


def decode_or_prefill(engine: Engine, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Responses sampled anew, with the log-probs of the decode, and the prefill of the same ids."""
    own = decoded(engine, *_asked(sequences, plan))
    again = [each.sequence for each in own]
    alone = replace(engine, request_tokens=1)  # as the decode: a batch is the difference of another arm
    pair = [each.logprobs for each in own], columns(alone, again)
    return [Pair("decode", "prefill", pair, again, doubt="of tokens that the server sampled anew")]


def cached_or_not(engine: Engine, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Prompts that come from the prefix cache, and the same ones that do not."""
    return {"vllm": _vllm_cached, "sglang": _sglang_cached}[engine.kind](engine, sequences, plan)


def _vllm_cached(engine: Engine, sequences: Sequence[Sequence_], plan: Plan) -> list[Pair] | str:
    salts = [uuid4().hex for _ in sequences]
    cold, warm = (decoded(engine, *_asked(sequences, plan), salts) for _ in range(2))
    hits = [each.cached for each in warm]
    if not any(hits) and None not in hits:
        return UNCACHED
    same = [_in_common(a.sequence.response, b.sequence.response) for a, b in zip(cold, warm, strict=True)]
    parted = sum(number < len(each.logprobs) for number, each in zip(same, cold, strict=True))
    notes = ["of decodes: vLLM reads no cache when it scores given tokens"]
    notes += [f"{parted} sequences went on with other tokens once cached: compared up to there"] if parted else []
    if not any(hits):
        notes += ["not certain that the cache was read: start the server with --enable-prompt-tokens-details"]
    pair = tuple([each.logprobs[:number] for number, each in zip(same, own, strict=True)] for own in (cold, warm))
    again = [
        replace(each.sequence, response=each.sequence.response[:number])
        for number, each in zip(same, cold, strict=True)
    ]
    return [Pair("not cached", "prefix cached", (pair[0], pair[1]), again, doubt="; ".join(notes))]


def _sglang_cached(engine: Engine, sequences: Sequence[Sequence_], plan: Plan) -> list[Pair] | str:
    cold, warm = (
        list(answered((partial(_sglang_read, engine, own, cached) for own in sequences), engine.in_flight))
        for cached in (False, True)
    )
    if not any(cached for _, cached in warm):
        return UNCACHED
    return [Pair("not cached", "prefix cached", ([own for own, _ in cold], [own for own, _ in warm]))]


def _sglang_read(engine: Engine, sequence: Sequence_, cached: bool) -> tuple[Singles, int]:
    """(log-probs, tokens from the cache) of one sequence. cached: the cache may be read up to the last token of the prompt."""
    path, body = sglang_request(engine, [sequence])
    body |= {} if cached else {"logprob_start_len": [0]}
    answer = engine.ask(path, body, sequence.length)
    with well_formed(engine, path):
        (one,) = answer
        own = one["meta_info"]["input_token_logprobs"][-len(sequence.response) :]
        pairs = [(id, logprob) for logprob, id, *_ in own]
        return checked(sequence, pairs), int(one["meta_info"].get("cached_tokens") or 0)


def _decode(engine: Engine, index: int, prompt: tuple[int, ...], most: int, salt: str) -> Decoded:
    path, body = _DECODES[engine.kind](engine, index, prompt, most, salt)
    answer = engine.ask(path, body, len(prompt) + most)
    with well_formed(engine, path):
        pairs, cached = _DECODED[engine.kind](answer)
        if not 0 < len(pairs) <= most:
            raise ValueError(f"{len(pairs)} sampled tokens, wanted 1 to {most}")
        sequence = Sequence_(0, 0, f"sampled-{index}", prompt, tuple(id for id, _ in pairs))
        return Decoded(sequence, checked(sequence, pairs), cached)


def _vllm_decode(
    engine: Engine, index: int, prompt: tuple[int, ...], most: int, salt: str
) -> tuple[str, dict[str, Any]]:
    body = {"model": engine.served, "prompt": [prompt], "max_tokens": most, "seed": index, "logprobs": 1}
    body |= {"return_tokens_as_token_ids": True, **SAMPLING} | ({"cache_salt": salt} if salt else {})
    return "/v1/completions", body


def _sglang_decode(
    engine: Engine, index: int, prompt: tuple[int, ...], most: int, salt: str
) -> tuple[str, dict[str, Any]]:
    adapter = {"lora_path": [engine.served]} if engine.adapter else {}
    sampling = SAMPLING | {"max_new_tokens": most}
    return "/generate", adapter | {"input_ids": [prompt], "sampling_params": sampling, "return_logprob": True}


def _vllm_decoded(answer: Any) -> tuple[list[tuple[int, float]], int | None]:
    (choice,) = answer["choices"]
    own, details = choice["logprobs"], (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    ids = [int(token.removeprefix("token_id:")) for token in own["tokens"]]
    cached = details.get("cached_tokens")
    return list(zip(ids, own["token_logprobs"], strict=True)), None if cached is None else int(cached)


def _sglang_decoded(answer: Any) -> tuple[list[tuple[int, float]], int | None]:
    (one,) = answer
    about = one["meta_info"]
    return [(id, logprob) for logprob, id, *_ in about["output_token_logprobs"]], int(about.get("cached_tokens") or 0)


_DECODES = {"vllm": _vllm_decode, "sglang": _sglang_decode}
_DECODED = {"vllm": _vllm_decoded, "sglang": _sglang_decoded}


def _asked(sequences: Sequence[Sequence_], plan: Plan) -> tuple[list[tuple[int, ...]], list[int]]:
    """The prompts, and how many tokens to sample for each."""
    return [own.prompt for own in sequences], [min(plan.sampled, len(own.response)) for own in sequences]


def _in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens at the beginning that both have in common."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
