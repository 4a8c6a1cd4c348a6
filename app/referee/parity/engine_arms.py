"""The arms of a running server: requests alone or together, a prompt from the prefix cache or not, decode or prefill.

Nothing here changes a server: no cache is flushed, no weight or adapter is loaded. vLLM reads nothing of its prefix cache for a
request with `prompt_logprobs`: its cached arm is of decodes, with a `cache_salt` of their own. SGLang reads the tokens before
`logprob_start_len` from its cache, and none if that is 0 (vLLM 0.32, SGLang 0.5.23).
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from ratioscope.arrays import Singles

from ..engines import Engine, checked, sglang_request, well_formed
from ..inputs import Sequence_
from ..sampled import sampled_apart
from ..server import answered
from .arm import Known, Pair, Plan, columns

UNCACHED = (
    "no token came from the prefix cache: it is off, or the prompts are shorter than its blocks (16 tokens in vLLM on a GPU, 128"
    " on a CPU)"
)


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
    own = sampled_apart(engine, *_asked(sequences, plan))
    again = [each.sequence for each in own]
    alone = replace(engine, request_tokens=1)  # as the decode: a batch is the difference of another arm
    pair = [each.logprobs for each in own], columns(alone, again)
    return [Pair("decode", "prefill", pair, again, doubt="of tokens that the server sampled anew")]


def cached_or_not(engine: Engine, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Prompts that come from the prefix cache, and the same ones that do not."""
    return {"vllm": _vllm_cached, "sglang": _sglang_cached}[engine.kind](engine, sequences, plan)


def _vllm_cached(engine: Engine, sequences: Sequence[Sequence_], plan: Plan) -> list[Pair] | str:
    salts = [uuid4().hex for _ in sequences]
    cold, warm = (sampled_apart(engine, *_asked(sequences, plan), salts) for _ in range(2))
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


def _asked(sequences: Sequence[Sequence_], plan: Plan) -> tuple[list[tuple[int, ...]], list[int]]:
    """The prompts, and how many tokens to sample for each."""
    return [own.prompt for own in sequences], [min(plan.sampled, len(own.response)) for own in sequences]


def _in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens at the beginning that both have in common."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
