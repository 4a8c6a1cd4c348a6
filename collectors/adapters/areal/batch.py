"""One update of AReaL: its padded batch, and the rows of the batch that each call of the loss gets.

The host needs the mask, the lengths and the rewards to cut the rows. Their copies from the device are enqueued when the update
begins, and read after the first loss. AReaL itself waits for the device several times in between, so the copies are ready.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles

from ...batch.host_copy import HostArray, HostCopies
from ...foreign import Tensor

COLUMNS = (
    "loss_mask", "attention_mask", "rewards", "input_ids", "versions", "logprobs", "prox_logp", "ref_logp", "advantages",
)  # fmt: skip
"""The columns of a batch that are read. Every batch has the first two."""

Rows = list[int]


@dataclass(frozen=True)
class Part:
    """A minibatch of an update."""

    number: int
    """Its number within the step."""
    rows: Rows
    key: Tensor
    """The mask tensor of its dict. The same tensor object identifies the dict later."""


@dataclass(frozen=True)
class Spans:
    """The positions from each row's first sampled token to its last, in the next-token order of log-probs.

    Position t predicts token t + 1, so the tokens and versions of a row begin at `firsts + 1`. A row's last position predicts a
    token that does not exist, so no span contains it.
    """

    firsts: Integers
    """First position, (B,)."""
    counts: Integers
    """Number of positions, (B,); 0 without a sampled token."""


@dataclass(frozen=True)
class Seen:
    """The parts of a step that earlier calls of _ppo_update trained on. AReaL has one call a step; other loops may have more."""

    step: int = -1
    sequences: int = 0
    groups: int = 0
    """Number of prompt groups."""
    minibatches: int = 0
    """Number of optimizer steps."""


@dataclass
class Update:
    """One call of PPOActor._ppo_update."""

    data: Mapping[str, Any]
    """The COLUMNS of the batch, padded (B, T)."""
    before: Seen
    """The parts of the same step in earlier calls."""
    data_parallel_rank: int
    """The rank among those that hold different sequences."""
    groups: list[int] | None
    """The group number of each row."""
    rollout: Tensor | None
    old: Tensor | None
    is_rollout_lost: bool
    """Whether AReaL overwrote the rollout log-probs; KeptRollouts may have a copy."""
    copies: HostCopies
    parts: list[Part] = field(default_factory=list)
    """The minibatches, once the batch is divided."""
    _current: Part | None = None
    _pieces: list[Rows] = field(default_factory=list)
    """The rows of each minibatch that is still to come."""

    def __post_init__(self) -> None:
        self._mask = self.copies.of(self.data["loss_mask"].bool())
        self._lengths = self.copies.of(self.data["attention_mask"].sum(-1))
        rewards = self.data.get("rewards")
        self._rewards = None if rewards is None else self.copies.of(rewards)
        self._ids = self.copies.of(self.data["input_ids"]) if self.is_rollout_lost else None

    @property
    def seen_with_it(self) -> Seen:
        """`before` with this update included."""
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
        """Notes how AReaL divided `data`: the batch into minibatches, or a minibatch into micro-batches.

        pieces: for each piece its row numbers within `data`, and its dict.
        """
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
        """(number of the minibatch, rows) of one call of the loss. mask: the loss's argument. tokens: number of its log-probs.

        The loss is called for the engine's pieces in their order, but not for pieces without a token to train on. LookupError
        if the size of a piece is another: then the order is not known, and no further piece of the minibatch is identified.
        """
        if (part := self._part_of(mask)) is not None:  # the engine did not divide the minibatch
            return part.number, part.rows
        while self._pieces:
            rows = self._pieces.pop(0)
            if self.trained[rows].any():
                break
        else:
            raise LookupError("the loss was called, but no row of its minibatch is left to train on")
        if int(self.lengths[rows].sum()) != tokens or self._current is None:
            self._pieces = []
            raise LookupError(f"the loss was called for {tokens} tokens, {int(self.lengths[rows].sum())} were expected")
        return self._current.number, rows

    def _part_of(self, key: Tensor) -> Part | None:
        return next((part for part in self.parts if part.key is key), None)

    @cached_property
    def mask(self) -> Booleans:
        """(B, T), true at positions with a sampled next token."""
        return np.asarray(self._mask.wait(), bool)

    @cached_property
    def lengths(self) -> Integers:
        """Tokens of each row, prompt included; rows are padded on the right."""
        return np.asarray(self._lengths.wait(), np.int64)

    @cached_property
    def rewards(self) -> list[float] | None:
        """One reward per row; None if the batch has none."""
        return None if self._rewards is None else np.asarray(self._rewards.wait(), np.float64).reshape(-1).tolist()

    @cached_property
    def trained(self) -> Booleans:
        """(B,), whether a row has a token that the loss counts."""
        return np.asarray((self.mask & (np.arange(self.mask.shape[1]) < self.lengths[:, None])).any(1))

    @cached_property
    def _sampled(self) -> Booleans:
        return np.asarray(self.mask & (np.arange(self.mask.shape[1]) < self.lengths[:, None] - 1))

    @cached_property
    def spans(self) -> Spans:
        """The span of sampled tokens of each row."""
        sampled, width = self._sampled, self.mask.shape[1]
        firsts = np.argmax(sampled, 1)
        lasts = width - 1 - np.argmax(sampled[:, ::-1], 1)
        return Spans(firsts, np.where(sampled.any(1), lasts - firsts + 1, 0))

    @cached_property
    def has_turns(self) -> bool:
        """Whether any row has other tokens between its sampled ones."""
        return bool((self.spans.counts > self._sampled.sum(1)).any())

    @cached_property
    def token_keys(self) -> list[bytes]:
        """The tokens of each row, as keys for its kept rollout log-probs."""
        assert self._ids is not None
        return token_keys(self._ids, self.lengths)


class KeptRollouts:
    """Host copies of rollout log-probs that AReaL is about to overwrite, with the tokens of their sequence as keys."""

    def __init__(self, copies: HostCopies) -> None:
        self._copies = copies
        self._held: list[tuple[HostArray, HostArray, HostArray]] = []
        self._step = -1

    def keep(self, data: Mapping[str, Any], step: int) -> None:
        """Copies the rollout log-probs of a batch. Copies for another step are dropped."""
        if step != self._step:
            self.clear()
        self._step = step
        names = data["input_ids"], data["attention_mask"].sum(-1), data["logprobs"]
        ids, lengths, logprobs = (self._copies.of(value) for value in names)
        self._held.append((ids, lengths, logprobs))

    def of(self, update: Update) -> list[Singles | None]:
        """For each row of the update, one log-prob per token (not shifted), or None without a copy.

        Equal sequences get the copies in the order in which they were made.
        """
        logprobs_by_tokens: dict[bytes, list[Singles]] = {}
        for ids, lengths, logprobs in self._held:
            values = logprobs.wait()
            for row, key in enumerate(token_keys(ids, np.asarray(lengths.wait(), np.int64))):
                logprobs_by_tokens.setdefault(key, []).append(values[row])
        return [logprobs_by_tokens[key].pop(0) if logprobs_by_tokens.get(key) else None for key in update.token_keys]

    def clear(self) -> None:
        """Drops all copies."""
        for held in self._held:
            self._copies.release_all(held)
        self._held = []


def token_keys(ids: HostArray, lengths: Integers) -> list[bytes]:
    """Each row's tokens as bytes, without padding."""
    rows = np.asarray(ids.wait(), np.int64)
    return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]
