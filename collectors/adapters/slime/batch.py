"""A rollout on a training rank of slime or miles: lists with one tensor per sequence, of unequal lengths.

Context parallelism in slime and miles: the response tokens of a rank, and cuts of whole responses to these tokens.

The sequence, prompt included, is cut into 2 * size chunks. Rank r has chunks r and 2 * size - 1 - r, so that causal attention
costs every rank the same. A log-prob belongs to the position before its token, which predicts the token.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...foreign import Tensor
from .names import Place
from .rollout import sequence_id
from .versions import Arguments, version_of

Batch = Mapping[str, Any]

Pieces = tuple[tuple[int, int], tuple[int, int]]
"""Two half-open ranges of response positions; an empty range is (0, 0)."""


@dataclass
class Rollout:
    """A rollout that this rank trains on."""

    id: int
    """The number of the rollout, from 0."""
    data: Batch
    """The trainer's own batch, which must not change."""
    ids: list[str]
    """The id of each sequence."""
    masks: list[Any]
    """The mask of each sequence before filters."""
    spans: list[Any]
    """The versions of each sequence's tokens; None if not known."""
    version: int | None
    """The version of the weights that compute old."""
    place: Place
    step: int = 0
    """The current optimizer step within the rollout."""
    _rows: dict[int, int] = field(default_factory=dict)
    """Identity of a sequence's mask tensor -> the sequence."""

    def rows_of(self, masks: Sequence[Tensor]) -> list[int]:
        """The sequences of the rollout that these mask tensors belong to."""
        if not self._rows:
            self._rows = {id(mask): row for row, mask in enumerate(self.data["loss_masks"])}
        return [self._rows[id(mask)] for mask in masks]

    def pieces_of(self, batch: Batch) -> list[Pieces] | None:
        """The response positions of each sequence on this rank; None if the rank has all positions."""
        if self.place.cp_size == 1:
            return None
        slicing = Slicing(self.place.cp_size, self.place.cp_rank)
        padded = batch.get("max_seq_lens") or [None] * len(batch["total_lengths"])
        return [
            slicing.pieces(int(total), int(response), width)
            for total, response, width in zip(batch["total_lengths"], batch["response_lengths"], padded, strict=True)
        ]


def noted(
    args: Arguments, rollout_id: int, data: Batch, arrived: Mapping[str, Any], place: Place, version: int | None
) -> Rollout:
    """The Rollout of a rank's batch. arrived: the facts that came with it from the rollout manager."""
    places = data.get("partition") or arrived.get("partition") or range(len(data["loss_masks"]))
    indices = data.get("sample_indices") or [None] * len(places)
    masks = arrived.get("masks") or list(data["loss_masks"])
    if getattr(args, "rollout_data_postprocess_path", None):
        # the user's filter may change them in place
        masks = [mask.clone() if hasattr(mask, "clone") else mask for mask in masks]
    spans = arrived.get("spans") or _carried_spans(args, data) or [None] * len(masks)
    ids = [
        sequence_id(rollout_id, int(at), None if index is None else int(index))
        for at, index in zip(places, indices, strict=True)
    ]
    return Rollout(rollout_id, data, ids, masks, spans, version, place)


def _carried_spans(args: Arguments, data: Batch) -> list[Any] | None:
    """The spans from the versions that miles sends with a rollout; None for a sequence of several versions."""
    versions_of_rows = data.get("weight_versions")
    if versions_of_rows is None:
        return None
    version_sets = [{version_of(pushes, args) for pushes in versions} for versions in versions_of_rows]
    lengths = data["response_lengths"]
    return [
        ((int(length), next(iter(versions))),) if len(versions) == 1 and None not in versions else None
        for versions, length in zip(version_sets, lengths, strict=True)
    ]


def sliced(held: Batch, whole: Batch, facts: Batch, pieces: Sequence[Pieces]) -> dict[str, Any]:
    """The arguments of `log` for this rank's tokens; sequences without a token on this rank are left out.

    held: values that the rank has for its own positions only, unchanged. whole: values of whole responses, which are cut.
    """
    kept = [row for row, piece in enumerate(pieces) if count(piece)]

    def chosen(values: Any, cuts: bool) -> Any:
        if values is None:
            return None
        per_token = cuts and any(hasattr(value, "__len__") for value in values)
        return [cut(values[row], pieces[row]) if per_token and values[row] is not None else values[row] for row in kept]

    return {
        **{name: chosen(values, False) for name, values in {**held, **facts}.items()},
        **{name: chosen(values, True) for name, values in whole.items()},
        "positions": [positions(pieces[row]) for row in kept],
    }


def number(value: Any) -> float | None:
    """The value as a float; None if it is not a number."""
    return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class Slicing:
    """One rank of a group whose ranks share each sequence's tokens."""

    size: int
    """Ranks in the group."""
    rank: int

    def pieces(self, total: int, response: int, padded: int | None = None) -> Pieces:
        """The response positions of this rank. total: prompt and response. padded: the sequence's length with padding, if any."""
        chunk = -(-(padded or total) // (2 * self.size))
        first, last = total - response - 1, total - 1

        def piece(index: int) -> tuple[int, int]:
            begin, end = max(index * chunk, first), min((index + 1) * chunk, last)
            return (begin - first, end - first) if begin < end else (0, 0)

        return piece(self.rank), piece(2 * self.size - 1 - self.rank)


def positions(pieces: Pieces) -> NDArray[np.int32]:
    """The positions of both ranges, in order."""
    return np.concatenate([np.arange(*piece, dtype=np.int32) for piece in pieces])


def count(pieces: Pieces) -> int:
    """The number of positions in both ranges."""
    return sum(end - begin for begin, end in pieces)


def cut(values: Any, pieces: Pieces) -> Any:
    """Values of a whole response (tensor, array or list) at the rank's positions. Nothing waits for the device."""
    first, second = (values[begin:end] for begin, end in pieces)
    if not len(first) or not len(second):
        return first if len(first) else second
    if isinstance(values, list):
        return first + second
    if isinstance(values, np.ndarray):
        return np.concatenate((first, second))
    return sys.modules["torch"].cat((first, second))
