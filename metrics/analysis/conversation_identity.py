"""Conversation identity: are the ids that were trained those that rendering the conversation with its chat template gives?

The classes are those by which TRL's AsyncGRPO reconciles the turns of a conversation (trl 1.16, async_rollout_worker.py). There
a prompt that was encoded again is compared with the ids that are held. Here ids on record are compared with rendered ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

TurnClass = Literal["clean", "realigned", "forked"]
"""clean: rendering gives the ids of the turn. realigned: it gives the ids before the answer, and others within the answer.
forked: it gives others before the answer, or the answer would lose FORK_TOKENS or more."""
CLASSES: tuple[TurnClass, ...] = ("clean", "realigned", "forked")
FORK_TOKENS = 1024
"""Ids from the first difference to the end of an answer from which on it is forked. TRL's own fork_threshold_tokens."""
Ids = Sequence[int]
Span = tuple[int, int]
"""The places of an answer in the ids of its sequence: first, and one past the last."""


@dataclass(frozen=True)
class Drift:
    """A difference between the ids on record and those that rendering gives."""

    turn: int
    """The turn, from 0, that is not clean for it."""
    kind: TurnClass
    place: int | None
    """The first differing place in the ids of the sequence, from 0; None where rendering changes turns before this one."""
    lost: tuple[int, ...]
    """Ids on record from there on that rendering does not give; ids at the end that both have are left out."""
    gained: tuple[int, ...]
    """Ids that rendering gives in their place."""


def answers_in(mask: Sequence[bool] | None, begin: int, length: int) -> list[Span]:
    """The runs of sampled tokens in a response of so many ids. mask: of the response; None: all are sampled. begin: its place.

    >>> answers_in([True, True, False, True], 10, 4)
    [(10, 12), (13, 14)]
    """
    if mask is None:
        return [(begin, begin + length)] if length else []
    runs, at = list[Span](), begin
    for is_sampled, own in groupby(mask):
        size = len(list(own))
        runs += [(at, at + size)] if is_sampled else []
        at += size
    return runs


def drifts(ids: Ids, answers: Sequence[Span], rendered: Sequence[Ids], *, ends: bool = False) -> Iterator[Drift]:
    """The differences, in the order of the turns.

    ids: of the whole sequence. rendered: the ids that rendering gives before each answer, and those of all messages as its last
    entry. An answer may begin with ids that were given: then the rendered ids are fewer. ends: the last answer is known to be
    whole, so that the ids which end it must be there. After a difference the rendered ids are held in place of those on record,
    so that one difference is not found again in each later turn.
    """
    base, since = list[int](), 0
    for turn, made in enumerate(rendered):
        until = answers[turn][0] if turn < len(answers) else answers[-1][1]
        held = [*base, *ids[since:until]]
        same = common_prefix(held, made)
        found = list(_at(ids, answers, turn, made, held, (same, since - len(base))))
        if same == len(held) and turn == len(answers) and ends and same < len(made):
            found = [Drift(turn - 1, "realigned", until, (), tuple(made[same:]))]
        yield from found
        base, since = (list(made) if found else held), until


def _at(ids: Ids, answers: Sequence[Span], turn: int, made: Ids, held: Ids, where: tuple[int, int]) -> Iterator[Drift]:
    """The differences that the rendering before an answer shows. where: (equal ids, what to add for the place on record)."""
    same, shift = where
    until, is_last = len(held) + shift, turn == len(answers)
    if same == len(held):
        more = made[same:]
        if not is_last and list(ids[until : until + len(more)]) != list(more):
            yield Drift(turn, "forked", until, (), tuple(more))
        return
    if same == len(made) and not is_last:  # the rest of the prompt is the beginning of the answer, which was given
        return
    begin, end = answers[turn - 1] if turn else (0, 0)
    changed = differing(held, made, same)
    place = same + shift
    if begin <= place < end:
        yield Drift(turn - 1, "realigned" if end - place < FORK_TOKENS else "forked", place, *changed)
        between = list(ids[end:until])
        if not is_last and between and list(made[-len(between) :]) != between:
            yield Drift(turn, "forked", end, (), ())
    else:
        yield Drift(min(turn, len(answers) - 1), "forked", place if place >= end else None, *changed)


def handed_on(held: Ids, answer: Span, prompt: Ids) -> TurnClass:
    """The class of a turn whose prompt was recorded anew, beside the ids that are held: TRL's own rule.

    >>> handed_on([1, 2, 3], (2, 3), [1, 2, 3, 4]), handed_on([1, 2, 3], (2, 3), [1, 2, 9]), handed_on([1, 2, 3], (2, 3), [9])
    ('clean', 'realigned', 'forked')
    """
    same = common_prefix(held, prompt)
    if same == len(held):
        return "clean"
    return "realigned" if same >= answer[0] and len(held) - same < FORK_TOKENS else "forked"


def common_prefix(one: Ids, other: Ids) -> int:
    """Number of equal ids at the beginning of both."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def differing(one: Ids, other: Ids, same: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of both behind their equal beginning, without their equal end.

    >>> differing([1, 2, 3, 9], [1, 5, 9], 1)
    ((2, 3), (5,))
    """
    end = common_prefix(one[same:][::-1], other[same:][::-1])
    return tuple(one[same : len(one) - end]), tuple(other[same : len(other) - end])
