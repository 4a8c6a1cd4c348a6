"""The arms of a running server: requests alone or together, a prompt from the prefix cache or not, decode or prefill.

Nothing here changes a server: no cache is flushed, no weight or adapter is loaded. vLLM reads nothing of its prefix cache for a
request with `prompt_logprobs`: its cached arm is of decodes, with a `cache_salt` of their own. SGLang reads the tokens before
`logprob_start_len` from its cache, and none if that is 0 (vLLM 0.32, SGLang 0.5.23).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from os.path import commonprefix
from uuid import uuid4

from ratioscope.arrays import Singles

from ..engines import Engine, checked, sglang_request, well_formed
from ..inputs import Sequence_
from ..sampled import Sampled, sampled_apart
from ..server import answered
from .comparison import Arm, Pair, Reader, columns

UNCACHED = (
    "no token came from the prefix cache: it is off, or the prompts are shorter than its blocks (16 tokens in vLLM on a GPU, 128"
    " on a CPU)"
)


def _batch(own: Reader) -> list[Pair]:
    alone = columns(replace(own.scorer, in_flight=1, request_tokens=1), own.sequences)
    together = own.batched(replace(own.scorer, in_flight=1, request_tokens=sys.maxsize))
    doubt = (
        f"a server chooses its batches itself: requests of one sequence, one at a time, and requests of"
        f" {min(own.together, len(own.sequences))} stand for them"
    )
    return [Pair("alone", f"{own.together} together", (alone, together), doubt=doubt)]


def _decode(own: Reader) -> list[Pair]:
    made = _sampled(own)
    alone = replace(own.scorer, request_tokens=1)  # as the decode: a batch is the difference of another arm
    pair = [each.logprobs for each in made], columns(alone, [each.sequence for each in made])
    return [Pair("decode", "prefill", pair, is_of_others=True, doubt="of tokens that the server sampled anew")]


def _sampled(own: Reader, salts: Sequence[str] = ()) -> list[Sampled]:
    most = [min(own.sampled, len(each.response)) for each in own.sequences]
    return sampled_apart(own.scorer, [each.prompt for each in own.sequences], most, salts)


def _prefix(own: Reader) -> list[Pair] | str:
    return _vllm_prefix(own) if own.scorer.kind == "vllm" else _sglang_prefix(own)


def _vllm_prefix(own: Reader) -> list[Pair] | str:
    salts = [uuid4().hex for _ in own.sequences]
    cold, warm = (_sampled(own, salts) for _ in range(2))
    hits = [each.cached for each in warm]
    if not any(hits) and None not in hits:
        return UNCACHED
    same = [len(commonprefix([a.sequence.response, b.sequence.response])) for a, b in zip(cold, warm, strict=True)]
    parted = sum(number < len(each.logprobs) for number, each in zip(same, cold, strict=True))
    notes = ["of decodes: vLLM reads no cache when it scores given tokens"]
    notes += [f"{parted} sequences went on with other tokens once cached: compared up to there"] if parted else []
    if not any(hits):
        notes += ["not certain that the cache was read: start the server with --enable-prompt-tokens-details"]
    one, two = ([each.logprobs[:number] for number, each in zip(same, made, strict=True)] for made in (cold, warm))
    return [Pair("not cached", "prefix cached", (one, two), is_of_others=True, doubt="; ".join(notes))]


def _sglang_prefix(own: Reader) -> list[Pair] | str:
    cold, warm = (
        list(
            answered((partial(_sglang_read, own.scorer, each, cached) for each in own.sequences), own.scorer.in_flight)
        )
        for cached in (False, True)
    )
    if not any(cached for _, cached in warm):
        return UNCACHED
    return [Pair("not cached", "prefix cached", ([each for each, _ in cold], [each for each, _ in warm]))]


def _sglang_read(engine: Engine, sequence: Sequence_, cached: bool) -> tuple[Singles, int]:
    """(log-probs, tokens from the cache) of one sequence. cached: the cache may be read up to the last token of the prompt."""
    path, body = sglang_request(engine, [sequence])
    answer = engine.ask(path, body if cached else body | {"logprob_start_len": [0]}, sequence.length)
    with well_formed(engine, path):
        (about,) = (one["meta_info"] for one in answer)
        own = about["input_token_logprobs"][-len(sequence.response) :]
        return checked(sequence, [(id, logprob) for logprob, id, *_ in own]), int(about.get("cached_tokens") or 0)


ARMS: Mapping[str, Arm] = {"batch": _batch, "prefix": _prefix, "decode": _decode}
