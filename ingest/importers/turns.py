"""Calls of a model, one after the other, as the sequences that a trainer makes of them.

A call knows the whole prompt that it was given. It goes on with the sequence before it if that prompt begins with all tokens of
this sequence; what the prompt has beyond them came from the environment. A prompt that begins otherwise was encoded anew, or cut:
a sequence of its own begins there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .row import flat

OF_TURNS = """
    rollout_logprobs = logprobs !
    mask = mask
    token_ids = token_ids
    turns = turns
    prompt_ids = prompt_ids
"""
"""Lines of the table of a format whose rows are those of `sequences`."""


@dataclass(frozen=True)
class Turn:
    """One call of a model."""

    prompt_ids: Any
    """The tokens of the whole prompt; None where the file does not hold them."""
    token_ids: Any
    """The sampled tokens; None where the file does not hold them."""
    logprobs: Any
    """The engine's log-prob of each sampled token, nats."""


def sequences(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Columns of each sequence: token_ids, logprobs (NaN at tokens that were not sampled), mask, turns (the number of the call
    that sampled the token, or that saw it first), prompt_ids, and `place`, the number of the first call.

    A call without token ids becomes a sequence with logprobs and place alone. FieldError where a list is no list of numbers,
    ValueError where a call has another number of log-probs than of tokens.
    """
    parts: list[dict[str, Any]] = []
    held = np.zeros(0, np.int64)
    for place, turn in enumerate(turns):
        logprobs = flat(turn.logprobs, "the log-probs")
        if turn.token_ids is None:  # then nobody can see which call goes on with which
            yield from map(_joined, [parts] if parts else [])
            yield {"logprobs": logprobs, "place": place}
            parts, held = [], held[:0]
            continue
        ids = flat(turn.token_ids, "the sampled tokens")
        if len(ids) != len(logprobs):
            raise ValueError(f"call {place} has {len(ids)} sampled tokens and {len(logprobs)} log-probs")
        prompt = None if turn.prompt_ids is None else flat(turn.prompt_ids, "the prompt")
        goes_on = bool(parts) and prompt is not None and np.array_equal(prompt[: len(held)], held)
        if parts and not goes_on:
            yield _joined(parts)
            parts = []
        if goes_on and prompt is not None:
            parts.append(_part(prompt[len(held) :], None, place))
        parts.append(_part(ids, logprobs, place) | ({} if goes_on else {"prompt_ids": prompt, "place": place}))
        held = np.concatenate([ids[:0] if prompt is None else prompt, ids])
    if parts:
        yield _joined(parts)


def _part(ids: Any, logprobs: Any, turn: int) -> dict[str, Any]:
    return {
        "token_ids": ids,
        "logprobs": np.full(len(ids), np.nan) if logprobs is None else logprobs,
        "mask": np.full(len(ids), logprobs is not None),
        "turns": np.full(len(ids), turn),
    }


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    first = parts[0]
    columns = {
        name: np.concatenate([part[name] for part in parts]) for name in ("token_ids", "logprobs", "mask", "turns")
    }
    return columns | {"prompt_ids": first["prompt_ids"], "place": first["place"]}
