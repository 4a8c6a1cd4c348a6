"""One update of AReaL: its padded batch, and which of its rows each call of the loss sees.

What the rows are cut by must be known on the host: the mask, the lengths and the rewards. Their copies are enqueued when the
update begins and read when the first loss has been computed; AReaL has waited for the device several times in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...batch.host_copy import HostArray, HostCopies

COLUMNS = (
    "loss_mask", "attention_mask", "rewards", "input_ids", "versions", "logprobs", "prox_logp", "ref_logp", "advantages",
)  # fmt: skip
"""What is read of a batch; the first two are always there."""

Tensor = Any
Rows = list[int]


@dataclass(frozen=True)
class Part:
    """A minibatch: its rows in the batch. key: its mask, the tensor itself, by which its dict is known again."""

    number: int
    rows: Rows
    key: Tensor


@dataclass(frozen=True)
class Spans:
    """Where the sampled tokens of each row stand: `counts` positions from `firsts` on, in the next-token order of log-probs.

    Position t is about token t + 1, so the tokens and versions of a row begin at `firsts + 1`. A row's last position is about
    a token that is not there and is never among them.
    """

    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """How much of a step has been updated with; AReaL does it in one call, a training loop of one's own may in several."""

    step: int = -1
    sequences: int = 0
    groups: int = 0
    minibatches: int = 0


@dataclass
class Update:
    """One call of PPOActor._ppo_update. data: its COLUMNS, padded (B, T). before: of the same step, by earlier calls.

    groups: of each row. rollout, old: the columns that hold these policies, None where none does; is_rollout_lost: they were
    overwritten, and KeptRollouts may have them.
    """

    data: Mapping[str, Any]
    before: Seen
    data_parallel_rank: int
    groups: list[int] | None
    rollout: Tensor | None
    old: Tensor | None
    is_rollout_lost: bool
    copies: HostCopies
    parts: list[Part] = field(default_factory=list)
    _current: Part | None = None
    _pieces: list[Rows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mask = self.copies.of(self.data["loss_mask"].bool())
        self._lengths = self.copies.of(self.data["attention_mask"].sum(-1))
        rewards = self.data.get("rewards")
        self._rewards = None if rewards is None else self.copies.of(rewards)
        self._ids = self.copies.of(self.data["input_ids"]) if self.is_rollout_lost else None

    @property
    def seen_with_it(self) -> Seen:
        """What will have been updated with when it ends."""
        return Seen(
            step=self.before.step,
            sequences=self.before.sequences + len(self.data["loss_mask"]),
            groups=1 + max(self.groups) if self.groups else self.before.groups,
            minibatches=self.before.minibatches + len(self.parts),
        )

    def close(self) -> None:
        """Gives the host memory back."""
        held = (self._mask, self._lengths, self._rewards, self._ids)
        self.copies.release_all(copy for copy in held if copy is not None)

    def divide(self, data: Mapping[str, Any], pieces: Sequence[tuple[Rows, Mapping[str, Any]]]) -> None:
        """Notes that `data` was divided into these rows of itself: the batch into minibatches, or one of those further."""
        key = data.get("loss_mask")
        if key is self.data["loss_mask"]:
            self.parts = [
                Part(self.before.minibatches + number, rows, piece["loss_mask"])
                for number, (rows, piece) in enumerate(pieces)
            ]
        elif (part := self._part_of(key)) is not None:
            self._current = part
            self._pieces = [[part.rows[row] for row in rows] for rows, _ in pieces]

    def visited(self, mask: Tensor, tokens: int) -> tuple[int, Rows]:
        """The minibatch and the rows that the loss was called for. mask: as the loss was given it. tokens: of its log-probs.

        The engine's pieces come in their order, without those that have nothing to train on; one of another size means
        that they do not, and then nothing is said of the rest.
        """
        if (part := self._part_of(mask)) is not None:  # an engine that divides no further
            return part.number, part.rows
        while self._pieces:
            rows = self._pieces.pop(0)
            if self.trained[rows].any():
                break
        else:
            raise LookupError("the loss was called for rows that the engine was not seen to choose")
        if int(self.lengths[rows].sum()) != tokens or self._current is None:
            self._pieces = []
            raise LookupError(f"the loss was called for {tokens} tokens, {int(self.lengths[rows].sum())} were expected")
        return self._current.number, rows

    def _part_of(self, key: Tensor) -> Part | None:
        return next((part for part in self.parts if part.key is key), None)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """(B, T), true at positions whose next token was sampled."""
        return np.asarray(self._mask.wait(), bool)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, its prompt's too; rows are padded on the right."""
        return np.asarray(self._lengths.wait(), np.int64)

    @cached_property
    def rewards(self) -> list[float] | None:
        return None if self._rewards is None else np.asarray(self._rewards.wait(), np.float64).reshape(-1).tolist()

    @cached_property
    def trained(self) -> NDArray[np.bool_]:
        """(B,), whether a row has a token that the loss counts."""
        return np.asarray((self.mask & (np.arange(self.mask.shape[1]) < self.lengths[:, None])).any(1))

    @cached_property
    def _sampled(self) -> NDArray[np.bool_]:
        return np.asarray(self.mask & (np.arange(self.mask.shape[1]) < self.lengths[:, None] - 1))

    @cached_property
    def spans(self) -> Spans:
        sampled, width = self._sampled, self.mask.shape[1]
        firsts = np.argmax(sampled, 1)
        lasts = width - 1 - np.argmax(sampled[:, ::-1], 1)
        return Spans(firsts, np.where(sampled.any(1), lasts - firsts + 1, 0))

    @cached_property
    def has_turns(self) -> bool:
        """Whether sampled tokens of any row are interrupted by others."""
        return bool((self.spans.counts > self._sampled.sum(1)).any())

    @cached_property
    def token_keys(self) -> list[bytes]:
        """The tokens of each row, by which its rollout log-probs are found again."""
        assert self._ids is not None
        return token_keys(self._ids, self.lengths)


class KeptRollouts:
    """Rollout log-probs that AReaL is about to overwrite, on the host, found again by the tokens they belong to."""

    def __init__(self, copies: HostCopies) -> None:
        self._copies = copies
        self._held: list[tuple[HostArray, HostArray, HostArray]] = []
        self._step = -1

    def keep(self, data: Mapping[str, Any], step: int) -> None:
        """Copies those of a batch. What was kept for another step has had its time."""
        if step != self._step:
            self.clear()
        self._step = step
        names = data["input_ids"], data["attention_mask"].sum(-1), data["logprobs"]
        ids, lengths, logprobs = (self._copies.of(value) for value in names)
        self._held.append((ids, lengths, logprobs))

    def of(self, update: Update) -> list[NDArray[np.float32] | None]:
        """Per row of the update, one log-prob per token (not shifted), or None where none were kept.

        Equal sequences get theirs in the order in which they were kept.
        """
        found: dict[bytes, list[NDArray[np.float32]]] = {}
        for ids, lengths, logprobs in self._held:
            values = logprobs.wait()
            for row, key in enumerate(token_keys(ids, np.asarray(lengths.wait(), np.int64))):
                found.setdefault(key, []).append(values[row])
        return [found[key].pop(0) if found.get(key) else None for key in update.token_keys]

    def clear(self) -> None:
        for held in self._held:
            self._copies.release_all(held)
        self._held = []


def token_keys(ids: HostArray, lengths: NDArray[np.int64]) -> list[bytes]:
    """Each row's tokens as bytes, without padding."""
    rows = np.asarray(ids.wait(), np.int64)
    return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]
