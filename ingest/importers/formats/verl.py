"""verl: the two rollout-skip caches, which hold the sampler's side. Its generation logs hold no log-probs and are refused."""

from dataclasses import replace
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from ..restricted.inert import InertName, Instance, opened
from ..restricted.names import TENSORS, Named, classes
from ..restricted.plain_value import in_memory
from ..restricted.tensors import DTYPES, widened
from ..restricted.torch_files import saved
from ..table import FileKind, Format, columns


def _consolidated(arguments: tuple[Any, ...]) -> Any:
    """The tensors of a TensorDict that was laid into one stretch of bytes: (what lies where, the bytes)."""
    if len(arguments) != 2 or not isinstance(arguments[0], dict) or not isinstance(arguments[1], np.ndarray):
        raise UnsafeFile("it rebuilds a TensorDict from something that tensordict does not write")
    leaves, stored = arguments[0].get("leaves"), arguments[1]
    if not isinstance(leaves, dict) or stored.dtype != np.uint8 or stored.ndim != 1:
        raise UnsafeFile("it rebuilds a TensorDict without a list of its tensors")
    return {name: _leaf(said, np.ascontiguousarray(stored)) for name, said in leaves.items()}


def _leaf(said: Any, stored: np.ndarray[Any, Any]) -> Any:
    if not (isinstance(said, tuple) and len(said) >= 4 and isinstance(said[1], (list, tuple))):
        raise UnsafeFile("it rebuilds a TensorDict with a tensor of a form that tensordict does not write")
    dtype, shape, start, end = str(said[0]).removeprefix("torch."), said[1], said[2], said[3]
    if dtype not in DTYPES or not all(type(n) is int and n >= 0 for n in (*shape, start, end)) or end > len(stored):
        raise UnsafeFile("it rebuilds a TensorDict with a tensor that does not fit its bytes")
    size = int(np.dtype(DTYPES[dtype]).itemsize * np.prod(shape, dtype=object))
    if size > end - start:
        raise UnsafeFile("it rebuilds a TensorDict with a tensor that does not fit its bytes")
    array = stored[start : start + size].view(DTYPES[dtype]).reshape(shape)
    return widened(array) if dtype == "bfloat16" else array


def _from_type(arguments: tuple[Any, ...]) -> Any:
    """A tensor of a class of its own: what its function makes of its arguments."""
    if len(arguments) < 3 or not isinstance(arguments[0], InertName) or not isinstance(arguments[2], tuple):
        raise UnsafeFile("it rebuilds a tensor of a form that torch does not write")
    if arguments[0].make is None:
        raise UnsafeFile(f"it rebuilds a tensor with {arguments[0].path}")
    return arguments[0].make(arguments[2])


def _nested(arguments: tuple[Any, ...]) -> Any:
    """The rows of a jagged tensor: its values, cut at its offsets."""
    state = arguments[0] if arguments else None
    if not isinstance(state, dict):
        raise UnsafeFile("it rebuilds a nested tensor of a form that torch does not write")
    values, offsets = state.get("values"), state.get("offsets")
    if not isinstance(values, np.ndarray) or not isinstance(offsets, np.ndarray) or offsets.ndim != 1:
        raise UnsafeFile("it rebuilds a nested tensor without values or offsets")
    if len(offsets) and (np.diff(offsets) < 0).any() or len(offsets) and (offsets[0] < 0 or offsets[-1] > len(values)):
        raise UnsafeFile("it rebuilds a nested tensor whose offsets lead outside of its values")
    return [values[start:end] for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def _tensordict(arguments: tuple[Any, ...]) -> Any:
    """The columns of a TensorDict, from its state."""
    state = arguments[1] if len(arguments) == 2 else None
    held = state.get("_tensordict") if isinstance(state, dict) else None
    if not isinstance(held, dict):
        raise UnsafeFile("it rebuilds a TensorDict from something that tensordict does not write")
    return held


def _plain_columns(columns_: Any) -> dict[str, Any]:
    if not isinstance(columns_, dict):
        raise UnsafeFile("it holds no columns of a batch")
    return {name: _stacked(column) for name, column in columns_.items()}


def _stacked(column: Any) -> Any:
    """A column; of values that are no tensors, their list."""
    if isinstance(column, Instance) and isinstance(column.state, dict):
        parts = column.state.get("tensordicts")
        if isinstance(parts, list):
            return [_non_tensor(part) for part in parts]
        return _non_tensor(column)
    return opened(column)


def _non_tensor(part: Any) -> Any:
    held = part.state.get("non_tensordict") if isinstance(part, Instance) and isinstance(part.state, dict) else None
    return held.get("data") if isinstance(held, dict) else None


def _whole_protocol(value: Any) -> Any:
    """The columns of a DataProto: (its tensors as a file of torch.save, other columns, facts)."""
    state = value.state if isinstance(value, Instance) else None
    if not (isinstance(state, tuple) and len(state) == 3 and isinstance(state[0], bytes)):
        raise UnsafeFile("it holds no DataProto, or one of a form that verl does not write")
    tensors = _plain_columns(saved(in_memory(state[0]), _TENSORDICT))
    others = {name: opened(column) for name, column in state[1].items()} if isinstance(state[1], dict) else {}
    return {"columns": {**tensors, **others, **_attention(tensors)}}


def _attention(tensors: dict[str, Any]) -> dict[str, Any]:
    """Which positions of the padded prompts and responses are tokens."""
    attention, responses = tensors.get("attention_mask"), tensors.get("responses")
    if not isinstance(responses, np.ndarray) or responses.ndim != 2:
        raise UnsafeFile("it holds no padded responses")
    if not isinstance(attention, np.ndarray) or attention.ndim != 2 or attention.shape[1] < responses.shape[1]:
        return {"response_attention": np.ones(responses.shape, bool)}
    cut = attention.shape[1] - responses.shape[1]
    return {"response_attention": attention[:, cut:], "prompt_attention": attention[:, :cut]}


def _whole_queue(value: Any) -> Any:
    """The columns of a batch of the transfer queue, with the tags and keys of its rows."""
    if not isinstance(value, dict):
        raise UnsafeFile("it holds no batch of the transfer queue")
    more = {name: value[name] for name in ("tags", "keys") if isinstance(value.get(name), (list, tuple))}
    return {"columns": {**_plain_columns(value.get("tensordict")), **more}, "global_steps": value.get("global_steps")}


_TENSORDICT: dict[str, Named] = {
    **TENSORS,
    "tensordict._reductions._rebuild_tensordict_files_consolidated": InertName("consolidated", _consolidated),
    "tensordict._reductions._make_td": InertName("tensordict", _tensordict),
    "torch._tensor._rebuild_from_type_v2": InertName("torch._tensor._rebuild_from_type_v2", _from_type),
    "torch.nested._internal.nested_tensor._rebuild_njt": InertName("torch.nested._rebuild_njt", _nested),
    **classes((
        "tensordict._td.TensorDict", "tensordict.tensorclass.NonTensorData", "tensordict.tensorclass.NonTensorStack",
        "torch.nested._internal.nested_tensor.NestedTensor", "torch.Tensor", "torch._dynamo.decorators._DimRange",
    )),
}  # fmt: skip
_PROTOCOL = FileKind(
    what="the cached generations of a step (trainer V0)",
    file=r"(?:(?P<step>\d+)/)?gen_batch\.dp",
    container="pickle",
    marks=("^columns.rollout_log_probs", "^columns.responses"),
    rows="columns",
    counted_by="responses",
    prepared=_whole_protocol,
    side="rollout",
    columns=columns("""
        step = @step
        sequence_ids = @row | named(@step)
        group_ids = uid
        token_ids = responses | where(response_attention)
        rollout_logprobs = rollout_log_probs | where(response_attention) !
        mask = response_mask | where(response_attention) | nonzero
        prompt_ids = prompts | where(prompt_attention)
        rollout_version_min = min_global_steps or param_version_start
        rollout_version_max = max_global_steps or param_version_end
    """),
    lacks="the trainer's log-probs: join it with a file that holds them (--rollout, --train, --on)",
)
_QUEUE = replace(
    _PROTOCOL,
    what="the cached generations of a step (trainer V1)",
    file=r"(?:(?P<step>\d+)/)?(?P<inner>\d+)/tq_batch\.pt|tq_batch\.pt",
    container="torch",
    prepared=_whole_queue,
    columns=columns("""
        step = ^global_steps or @step
        sequence_ids = keys or @row | named(^global_steps, @inner)
        group_ids = uid
        token_ids = responses
        rollout_logprobs = rollout_log_probs !
        mask = response_mask | nonzero
        prompt_ids = prompts
        rollout_version_min = tags.min_global_steps
        rollout_version_max = tags.max_global_steps
    """),
)
_GENERATIONS = FileKind(
    what="generations as text",
    file=r"(?P<step>\d+)\.jsonl",
    container="json lines",
    marks=("input", "output", "score", "step"),
    columns=(),
    refused="it holds texts and scores, no log-probs and no token ids: there is nothing to measure. The rollout-skip cache"
    " (skip.rollout.enable) holds the sampler's log-probs; ratioscope run and attach record both sides",
)
FORMATS = (
    Format(
        name="verl-cache",
        title="verl rollout-skip caches gen_batch.dp and tq_batch.pt",
        trainer="verl",
        parts=(_PROTOCOL, _QUEUE),
        names={**_TENSORDICT, **classes(("verl.protocol.DataProto",))},
    ),
    Format(name="verl-generations", title="verl rollout JSONL", trainer="verl", parts=(_GENERATIONS,)),
)
