"""The machine that trains, as far as modules in memory tell: devices, CUDA, processes. Nothing is imported, opened or started."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_MOST = 200  # characters of one text


def machine() -> dict[str, Any]:
    """Facts that a change of hardware or of the number of processes changes. A fact that cannot be told is left out.

    device, devices: name and number of the accelerators that this process sees, if CUDA has begun. cuda, torch_build: versions
    that torch was built with. world_size, backend: of torch.distributed, else $WORLD_SIZE.
    """
    facts: dict[str, Any] = {}
    for name, fact in _FACTS.items():
        with suppress(Exception):  # another library's object, in a trainer: whatever it raises stays here
            value = fact(sys.modules)
            if isinstance(value, (str, int)):
                facts[name] = value[:_MOST] if isinstance(value, str) else value
    return facts


def _cuda(modules: Mapping[str, Any]) -> Any:
    cuda = modules["torch"].cuda
    return cuda if cuda.is_initialized() else None  # a question before that would begin CUDA in this process


def _world_size(modules: Mapping[str, Any]) -> int:
    distributed = getattr(modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return int(os.environ["WORLD_SIZE"])


_FACTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "device": lambda modules: str(_cuda(modules).get_device_name()),
    "devices": lambda modules: int(_cuda(modules).device_count()),
    "cuda": lambda modules: modules["torch"].version.cuda,
    "torch_build": lambda modules: modules["torch"].version.git_version[:12],
    "world_size": _world_size,
    "backend": lambda modules: str(modules["torch"].distributed.get_backend()),
}
