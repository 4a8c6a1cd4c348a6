"""Rows from verl's layouts: padded responses in the driver, concatenated whole sequences in the workers.

The driver's tensors are on the CPU. A worker's tensors may be on a device: the rows are views of them, cut by lengths that the
host has.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ratioscope.errors import SchemaError

from ...foreign import Tensor

Data = Any
"""A TensorDict, a DataProto or a KVBatchMeta."""

ROW = "ratioscope_row"
"""The column that is added to a worker's training data: step and id of each row as one text; empty for a padding row."""


@dataclass(frozen=True)
class Known:
    """The facts of a batch's rows on the host; padding rows are left out."""

    ids: list[str]
    """The id of each row."""
    groups: list[str] | None
    """The uid of each row's prompt; None if the batch has none."""
    lengths: list[int]
    oldest: list[int | None]
    """The oldest version of the weights that sampled each row."""
    newest: list[int | None]
    """The newest version of the weights that sampled each row."""
    generation_steps: list[int | None] | None = None
    kept: list[int] | None = None
    """The places of the rows in a batch with padding rows; None if it has none."""

    @property
    def versions(self) -> dict[str, list[int | None]] | None:
        """The argument `rollout_versions` of `log`; None if no row has a version."""
        if all(version is None for version in (*self.oldest, *self.newest)):
            return None
        return {"min": self.oldest, "max": self.newest}


def known_of_tags(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> Known:
    """V1: the facts of each row from a KVBatchMeta. Keys are `{uid}_{sample}_{output}`; padding rows are left out."""
    kept = [index for index, tag in enumerate(tags) if not tag.get("is_padding", False)]
    rows = [tags[index] for index in kept]
    ids = [keys[index] for index in kept]
    return Known(
        ids=ids,
        groups=[name.rsplit("_", 2)[0] for name in ids],
        lengths=[int(tag["response_len"]) for tag in rows],
        oldest=[_integer(tag.get("min_global_steps")) for tag in rows],
        newest=[_integer(tag.get("max_global_steps")) for tag in rows],
        generation_steps=[_integer(tag.get("global_steps")) for tag in rows],
        kept=None if len(kept) == len(tags) else kept,
    )


def known_of_proto(batch: Data, step: int) -> Known:
    """V0: the facts of each row of a DataProto. The n samples of a prompt have one uid and get numbers in the batch's order."""
    beside, rows = batch.non_tensor_batch, len(batch.batch["responses"])
    groups = None if "uid" not in beside else [str(uid) for uid in beside["uid"]]
    width = batch.batch["responses"].shape[1]
    return Known(
        ids=numbered([str(step)] * rows if groups is None else groups),
        groups=groups,
        lengths=batch.batch["attention_mask"][:, -width:].sum(-1).tolist(),
        oldest=[_integer(version) for version in beside.get("min_global_steps", [None] * rows)],
        newest=[_integer(version) for version in beside.get("max_global_steps", [None] * rows)],
    )


def numbered(names: Sequence[str]) -> list[str]:
    """Each name with its number of earlier occurrences.

    >>> numbered(["a", "b", "a"])
    ['a_0', 'b_0', 'a_1']
    """
    seen: dict[str, int] = {}
    ids = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        ids.append(f"{name}_{seen[name]}")
    return ids


def padded(value: Tensor, known: Known) -> Tensor:
    """The rows as one tensor `(rows, T)`, with T the longest response. A nested tensor is padded with 0."""
    if value.is_nested:
        value = value.to_padded_tensor(padding=0)
    if known.kept is not None:
        value = value[known.kept]
    return value[:, : max(known.lengths, default=0)]


def prompts(fields: Mapping[str, Tensor], known: Known) -> dict[str, Any]:
    """The tokens of the prompts by argument of `log`; {} if the batch lacks them, or the mask of padded ones."""
    ids, attention = fields.get("prompts"), fields.get("attention_mask")
    if ids is not None and ids.is_nested:
        rows = list(ids.unbind())
        return {"prompt_ids": rows if known.kept is None else [rows[row] for row in known.kept]}
    if ids is None or attention is None:
        return {}
    kept = slice(None) if known.kept is None else known.kept
    return {"prompt_ids": ids[kept], "prompt_mask": attention[kept, : ids.shape[1]]}


def marks(known: Known, step: int, rows: int) -> list[str]:
    """The column ROW for a batch of so many rows, padding rows included."""
    texts = [""] * rows
    for place, name in zip(range(rows) if known.kept is None else known.kept, known.ids, strict=True):
        texts[place] = f"{step} {name}"
    return texts


def column(data: Data, name: str) -> list[Any]:
    """A non-tensor column of a TensorDict, one value per row."""
    value = data.get(name)
    values = value.tolist() if hasattr(value, "tolist") else value
    return list(values) if isinstance(values, (list, tuple)) else [values] * int(data.batch_size[0])


def sequence_lengths(data: Data) -> list[tuple[int, int]]:
    """(prompt tokens, response tokens) of each row without padding. SchemaError if the tensors are not on the CPU."""
    prompts, responses = data["prompts"], data["responses"]
    if prompts.device.type != "cpu":
        raise SchemaError(f"prompts are on {prompts.device}; reading lengths there would make the device wait")
    if prompts.is_nested:
        return list(zip(_nested_lengths(prompts), _nested_lengths(responses), strict=True))
    mask, width = data["attention_mask"], prompts.shape[1]
    return list(zip(mask[:, :width].sum(-1).tolist(), mask[:, width:].sum(-1).tolist(), strict=True))


def response_views(value: Tensor, lengths: Sequence[tuple[int, int]]) -> list[Tensor]:
    """The part of each response in a model's output, which has one value per token of the concatenated whole sequences.

    The output at a token belongs to the next token, so a response's part begins one before its first token.
    """
    flat = value.detach()
    flat = flat.values() if flat.is_nested else flat
    ends = list(accumulate(prompt + response for prompt, response in lengths))
    if flat.shape[0] != (ends[-1] if ends else 0):
        raise SchemaError(f"a model's output has {flat.shape[0]} tokens, its rows have {ends[-1] if ends else 0}")
    return [flat[end - response - 1 : end - 1] for end, (_, response) in zip(ends, lengths, strict=True)]


def step_of(trainer: Any) -> int:
    """The step under which verl logs the current batch."""
    # The fully async trainer counts a sync before it logs, so its step is the next version.
    synced = getattr(trainer, "current_param_version", None)
    return int(trainer.global_steps) if synced is None else int(synced) + 1


def verl_version() -> str:
    """For run.json: name and version."""
    return f"verl {getattr(sys.modules.get('verl'), '__version__', 'unknown')}"


def _nested_lengths(value: Tensor) -> list[int]:
    return [int(length) for length in value.offsets().diff().tolist()]


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)
