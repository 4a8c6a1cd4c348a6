"""Rows of NeMo-RL's training batches, `(B, S)` tensors with a value per token and a pad in column 0, and the ids of rows.

Driver and workers have the same rows in different orders and cuts (shards, micro-batches, single sequences when packed), and
NeMo-RL sends no id with them. The id of a row is therefore a hash of its tokens and the bits of its rollout log-probs, computed
on the row's device. Rows with equal tokens and equal bits have one id and count once; samples of one prompt at temperature 0 may
be equal. A message names a column that cannot be recorded, and the setting that records it.
"""

import sys
from collections.abc import Mapping
from typing import Any

from ...foreign import Tensor
from ...self_noise import AGAIN

ABSENT_OLD = (
    "NeMo-RL skips prev_logprobs (loss_fn.force_on_policy_ratio without grpo.seq_logprob_error_threshold) and fills in zeros: "
    "old is not recorded, total is; loss_fn.force_on_policy_ratio: false records old"
)
ABSENT_REFERENCE = (
    "NeMo-RL skips reference_policy_logprobs; grpo.skip_reference_policy_logprobs_calculation: false records them"
)
ABSENT_VERSIONS = (
    "it is not known which weights sampled, so lag is not recorded: asynchronous training tells it in the replay buffer's "
    "process, which `ratioscope run` records too, synchronous training with a refit before the rollout"
)
ABSENT_STEP = (
    "current is not recorded: the driver did not send the step; record its process as well, as `ratioscope run` does"
)
FILTERED = (
    "with top_p or top_k NeMo-RL sets prev_logprobs and current to 0.0 at tokens that its own filter excludes: the large "
    "positive log-ratio there does not come from a mismatch of the engines"
)
VERSIONS = {
    "sync": "steps done at the last refit of the generation before the rollout",
    "async": "weight_version of the prompt group at the start of its rollout; with in_flight_weight_updates later tokens may "
    "have newer weights",
}


Data = Mapping[str, Any]

_ROWS = 64
"""Rows to hash at a time, which bounds the memory of intermediate tensors."""
_MIX = (0x2545F4914F6CDD1D, 0x1B873593CC9E2D51, 0x27D4EB2F165667C5, 0x165667B19E3779F9)
"""Odd factors of the hash. Products of int64 wrap in the same way on every device."""


def sequence_ids(data: Data) -> Tensor:
    """A hash per row. It depends neither on the device nor on padding behind `input_lengths`. It waits for no device."""
    torch = sys.modules["torch"]
    ids, rollout, lengths = data["input_ids"], data["generation_logprobs"], data["input_lengths"]
    parts = [slice(start, start + _ROWS) for start in range(0, len(ids), _ROWS)]
    return torch.cat([_hashes(torch, ids[part], rollout[part], lengths[part]) for part in parts])


def current_columns(logprobs: Tensor, data: Data) -> dict[str, Any]:
    """The columns of a micro-batch's current log-probs `(B, S - 1)`: each row from its first sampled token on."""
    return _responses(data["token_mask"][:, 1:] != 0, {"current_logprobs": logprobs.detach()})


def batch_columns(data: Data, *, has_old: bool, has_reference: bool) -> dict[str, Any]:
    """The columns of a training batch without current. `mask`: sampled tokens. `loss_mask`: those that no filter masked."""
    mask = data["token_mask"][:, 1:] != 0
    named = {"token_ids": "input_ids", "rollout_logprobs": "generation_logprobs", "advantages": "advantages"}
    named |= {"old_logprobs": "prev_logprobs"} if has_old else {}
    named |= {"reference_logprobs": "reference_policy_logprobs"} if has_reference else {}
    named |= {AGAIN: AGAIN} if AGAIN in data else {}
    columns = {name: data[key][:, 1:] for name, key in named.items() if data.get(key) is not None}
    return _responses(mask, {**columns, "loss_mask": mask & (data["sample_mask"] != 0)[:, None]}) | prompts(data, mask)


def prompts(data: Data, mask: Tensor) -> dict[str, Any]:
    """The tokens in front of the first sampled one, by argument of `log`. mask: sampled tokens without column 0."""
    torch, ids = sys.modules["torch"], data["input_ids"]
    ends = torch.where(mask.any(1), _first(mask) + 1, data["input_lengths"].to(mask.device))
    if mask.device.type == "cpu":
        return {"prompt_ids": [row[:end] for row, end in zip(ids, ends.tolist(), strict=True)]}
    place = torch.arange(ids.shape[1], device=mask.device)
    return {"prompt_ids": ids, "prompt_mask": place < ends[:, None]}


def tensors(dump: Data) -> dict[str, Any]:
    """A training batch as tensors, from the lists of its JSONL dump."""
    torch = sys.modules["torch"]
    named = {
        "input_ids": "token_ids", "input_lengths": "input_lengths", "token_mask": "token_loss_mask",
        "sample_mask": "sample_loss_mask", "advantages": "advantages", "generation_logprobs": "generation_logprobs",
        "prev_logprobs": "prev_logprobs",
    }  # fmt: skip
    return {name: torch.as_tensor(dump[key]) for name, key in named.items()}


def _responses(mask: Tensor, columns: Mapping[str, Tensor]) -> dict[str, Any]:
    named = {**columns, "mask": mask}
    return sliced(mask, named) if mask.device.type == "cpu" else shifted(mask, named)


def sliced(mask: Tensor, columns: Mapping[str, Tensor]) -> dict[str, Any]:
    """One slice per row, from its first sampled token to its last. It reads the mask, so it is for tensors on the host."""
    place = sys.modules["torch"].arange(1, mask.shape[1] + 1)
    bounds = list(zip(_first(mask).tolist(), (mask * place).amax(1).tolist(), strict=True))
    return {
        name: [row[start:end] for row, (start, end) in zip(column, bounds, strict=True)]
        for name, column in columns.items()
    }


def shifted(mask: Tensor, columns: Mapping[str, Tensor]) -> dict[str, Any]:
    """Padded rows, shifted left so that the first sampled token comes first. Nothing waits for the device."""
    place = sys.modules["torch"].arange(mask.shape[1], device=mask.device)[None] + _first(mask)[:, None]
    index = place.clamp(max=mask.shape[1] - 1)
    moved = {name: column.gather(1, index) for name, column in columns.items()}
    return {**moved, "mask": moved["mask"] & (place < mask.shape[1])}


def _first(mask: Tensor) -> Tensor:
    return mask.int().argmax(1)


def _hashes(torch: Any, ids: Tensor, rollout: Tensor, lengths: Tensor) -> Tensor:
    place = torch.arange(1, ids.shape[1] + 1, device=ids.device)[None]
    bits = rollout.to(torch.float32).view(torch.int32).to(torch.int64)
    mixed = ids.to(torch.int64) * _MIX[0] + bits * _MIX[1] + place * _MIX[2]
    mixed = (mixed ^ (mixed >> 31)) * _MIX[3]
    return ((mixed ^ (mixed >> 29)) * (place <= lengths[:, None])).sum(1)
