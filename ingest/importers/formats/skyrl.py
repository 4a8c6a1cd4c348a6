"""SkyRL: `global_step_{N}_training_input.pkl`, a pickle of a TrainingInputBatch, in the three forms that it has had."""

from collections.abc import Mapping
from typing import Any

from ratioscope.errors import UnsafeFile

from ..restricted.inert import InertName, Instance, NumpyType, opened, shaped
from ..restricted.names import Named, classes, enumeration
from ..restricted.plain_value import in_memory
from ..restricted.torch_files import embedded, saved
from ..table import FileKind, Format, columns

_MODULES = ("skyrl.backends.skyrl_train.training_batch", "skyrl_train.training_batch")
_KINDS = {
    "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


def _rebuilt(arguments: tuple[Any, ...]) -> Any:
    """The state of a batch, with its fields as arrays."""
    if len(arguments) != 2 or not isinstance(arguments[1], dict):
        raise UnsafeFile("it rebuilds a batch from something that is no state of one")
    return _decoded(arguments[1])


def _decoded(state: Mapping[str, Any]) -> dict[str, Any]:
    fields = state.get("batch_dict")
    if not isinstance(fields, dict):
        raise UnsafeFile("it holds a batch without fields")
    return {**state, "batch_dict": {name: _field(value) for name, value in fields.items()}}


def _field(value: Any) -> Any:
    """A field: None, an array as bytes, a file of torch.save, or the fields that only replays need, which are left unread."""
    if isinstance(value, (bytes, bytearray)):
        return saved(in_memory(value), {})
    if not isinstance(value, dict):
        return opened(value)
    if value.get("format") == "numpy":
        kind = str(value.get("dtype"))
        if kind not in _KINDS:
            raise UnsafeFile(f"it holds a field of type {kind[:40]}, which is not read")
        return shaped(value.get("data"), NumpyType(_KINDS[kind]), value.get("shape"), "C")
    if value.get("format") == "torch" and isinstance(value.get("data"), (bytes, bytearray)):
        return saved(in_memory(value["data"]), {})
    return None


def _whole(value: Any) -> Any:
    """The state of a batch. In the oldest form a batch is an object with items and a state: the state counts if it has fields."""
    if not isinstance(value, Instance):
        return value
    state = value.state if isinstance(value.state, dict) else {}
    if isinstance(state.get("batch_dict"), dict):
        return _decoded(state)
    return {"batch_dict": value.items, "metadata": state.get("metadata") or {}}


NAMES: dict[str, Named] = {
    **classes(f"{module}.TrainingInputBatch" for module in _MODULES),
    **{name: made for module in _MODULES for name, made in enumeration(f"{module}.TensorFormat").items()},
    **{
        f"{module}._rebuild_tensor_batch": InertName(f"{module}._rebuild_tensor_batch", _rebuilt) for module in _MODULES
    },
    "torch.storage._load_from_bytes": InertName("torch.storage._load_from_bytes", embedded),
}
_INPUT = FileKind(
    what="the training batch of a step",
    file=r"global_step_(?P<step>\d+)_training_input.*\.pkl",
    container="pickle",
    marks=("^batch_dict.sequences", "^batch_dict.response_mask"),
    rows="batch_dict",
    counted_by="sequences",
    padding_rows="metadata.pad_size",
    prepared=_whole,
    columns=columns("""
        step = @step
        sequence_ids = @row | named(@step)
        group_ids = ^metadata.policy_prompt_boundaries | interval | named(@step)
        token_ids = sequences | where(attention_mask) | last(response_mask)
        prompt_ids = sequences | where(attention_mask) | but_last(response_mask)
        rollout_logprobs = rollout_logprobs | where(response_mask)
        old_logprobs = action_log_probs | where(response_mask)
        reference_logprobs = base_action_log_probs | where(response_mask)
        mask = loss_mask | where(response_mask) | nonzero
        loss_mask = loss_mask | where(response_mask) | nonzero
        advantages = advantages | where(response_mask)
    """),
    lacks="current log-probs, rewards and versions; old log-probs where the trainer skipped their pass",
)
FORMATS = (
    Format(
        name="skyrl",
        title="SkyRL global_step_{N}_training_input.pkl",
        trainer="skyrl",
        parts=(_INPUT,),
        names=NAMES,
        notes="rows that only fill up a batch (metadata.pad_size) are no samples and left out",
    ),
)
