"""The settings of a run among TensorBoard's events: hyperparameters, and texts that were written before the first number.

A value of a summary has metadata (field 9) that name its plugin. The plugin `hparams` holds a message: 3 session_start_info, with
a map from names to google.protobuf.Value (tensorboard/plugins/hparams/plugin_data.proto). That of `text` has a tensor of texts.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from ..wandb_log import message_fields
from .number_row import setting

_TENSOR, _METADATA, _PLUGIN, _NAME, _CONTENT, _TEXTS = 8, 9, 1, 1, 2, 8
_SESSION_START, _HPARAMS, _KEY, _VALUE = 3, 1, 1, 2
_NUMBER, _TEXT, _TRUTH = 2, 3, 4
_SUFFIX = "/text_summary"
"""PyTorch and tensorboardX put this behind the name of a text."""
ARGUMENTS = "args"
"""The text in which the Hugging Face trainers write their arguments; the same are its hyperparameters."""

Fields = Mapping[int, int | bytes]
"""Number of a field -> its last value in a message."""


def event_settings(name: str, value: Fields, *, begins: bool) -> dict[str, Any]:
    """The settings that a value of a summary holds; none for any other one. begins: no number was logged before.

    A text is a setting if it is a JSON object or one word, and the log has no number yet: samples come later and have many words.
    """
    plugin, content = _plugin(value.get(_METADATA))
    if plugin == b"hparams":
        return dict(_hyperparameters(content))
    if plugin != b"text" or not begins or not isinstance(tensor := value.get(_TENSOR), bytes):
        return {}
    text = next((part for field, part in message_fields(tensor) if field == _TEXTS and isinstance(part, bytes)), b"")
    key, own = name.removesuffix(_SUFFIX), setting(text.decode("utf-8", "replace").strip())
    if isinstance(own, dict):
        return own if key == ARGUMENTS else {key: own}
    return {key: own} if key.isidentifier() and not (isinstance(own, str) and len(own.split()) != 1) else {}


def _plugin(metadata: object) -> tuple[bytes, bytes]:
    """(name, content) of the plugin that a value is for."""
    plugin = dict(message_fields(metadata)).get(_PLUGIN) if isinstance(metadata, bytes) else None
    parts = dict(message_fields(plugin)) if isinstance(plugin, bytes) else {}
    name, content = parts.get(_NAME), parts.get(_CONTENT)
    return name if isinstance(name, bytes) else b"", content if isinstance(content, bytes) else b""


def _hyperparameters(content: bytes) -> Iterator[tuple[str, Any]]:
    """(name, value) of each hyperparameter. Any: a number, a truth value, or what a text holds."""
    start = dict(message_fields(content)).get(_SESSION_START)
    for field, entry in message_fields(start if isinstance(start, bytes) else b""):
        parts = dict(message_fields(entry)) if field == _HPARAMS and isinstance(entry, bytes) else {}
        key, value = parts.get(_KEY), parts.get(_VALUE)
        if isinstance(key, bytes) and isinstance(value, bytes):
            yield key.decode("utf-8", "replace").replace("/", "."), _plain(dict(message_fields(value)))


def _plain(value: Fields) -> Any:
    number, text = value.get(_NUMBER), value.get(_TEXT)
    if isinstance(number, bytes):
        return struct.unpack("<d", number)[0]
    return setting(text.decode("utf-8", "replace")) if isinstance(text, bytes) else bool(value.get(_TRUTH))
