"""A rollout as a training rank of slime or miles holds it: one list item per sequence, a tensor per item, ragged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .names import Place
from .rollout import sequence_id
from .slices import Pieces, Slicing, count, cut, positions
from .versions import Arguments, version_of

Batch = Mapping[str, Any]
Tensor = Any


@dataclass
class Rollout:
    """A rollout that this rank trains on. data: the trainer's own batch, to be read only. masks: as they came, before filters.

    version: of the weights that compute old. spans: versions of each sequence's tokens, or None. step: the optimizer step.
    """

    id: int
    data: Batch
    ids: list[str]
    masks: list[Any]
    spans: list[Any]
    version: int | None
    place: Place
    step: int = 0
    _rows: dict[int, int] = field(default_factory=dict)

    def rows_of(self, masks: Sequence[Tensor]) -> list[int]:
        """Which sequences of the rollout these are, by their mask tensors."""
        if not self._rows:
            self._rows = {id(mask): row for row, mask in enumerate(self.data["loss_masks"])}
        return [self._rows[id(mask)] for mask in masks]

    def pieces_of(self, batch: Batch) -> list[Pieces] | None:
        """The response positions that this rank holds of each sequence; None where it holds all."""
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
    places = data.get("partition") or arrived.get("partition") or range(len(data["loss_masks"]))
    indices = data.get("sample_indices") or [None] * len(places)
    masks = arrived.get("masks") or list(data["loss_masks"])
    if getattr(args, "rollout_data_postprocess_path", None):
        masks = [
            mask.clone() if hasattr(mask, "clone") else mask for mask in masks
        ]  # a filter may change them in place
    spans = arrived.get("spans") or _carried_spans(args, data) or [None] * len(masks)
    ids = [
        sequence_id(rollout_id, int(at), None if index is None else int(index))
        for at, index in zip(places, indices, strict=True)
    ]
    return Rollout(rollout_id, data, ids, masks, spans, version, place)


def _carried_spans(args: Arguments, data: Batch) -> list[Any] | None:
    """From the versions that miles sends along, of sequences that one version sampled."""
    told = data.get("weight_versions")
    if told is None:
        return None
    found = [{version_of(pushes, args) for pushes in versions} for versions in told]
    lengths = data["response_lengths"]
    return [
        ((int(length), next(iter(versions))),) if len(versions) == 1 and None not in versions else None
        for versions, length in zip(found, lengths, strict=True)
    ]


def sliced(held: Batch, whole: Batch, facts: Batch, pieces: Sequence[Pieces]) -> dict[str, Any]:
    """The same for this rank's tokens: what it holds as it is, the rest cut. Sequences of which it has no token are left out."""
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
    return float(value) if isinstance(value, (int, float)) else None
