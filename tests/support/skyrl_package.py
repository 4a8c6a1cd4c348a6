"""SkyRL's own functions, loaded from its installed files without ray, Megatron or a GPU.

Its packages import the whole trainer when entered, so the parents are entered as bare packages over the same folders, and
what the two files only name (ray's decorator, annotations, a logger) is stood in for where it is not installed.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PARENTS = (
    "skyrl",
    "skyrl.backends",
    "skyrl.backends.skyrl_train",
    "skyrl.backends.skyrl_train.utils",
    "skyrl.backends.skyrl_train.workers",
    "skyrl.train",
)
LOSSES = "skyrl.backends.skyrl_train.utils.ppo_utils"
CORRECTION = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"
REDUCTION = "skyrl.backends.skyrl_train.workers.worker_utils"


class Annotation:
    """Stands where a type is only named: `Float[torch.Tensor, "batch"]`."""

    def __class_getitem__(cls, _: object) -> type["Annotation"]:
        return cls


THIRD_PARTY: Mapping[str, Mapping[str, object]] = {
    "ray": {"remote": lambda actor: actor, "is_initialized": lambda: False},
    "jaxtyping": {"Float": Annotation, "Integer": Annotation},
    "loguru": {"logger": SimpleNamespace(warning=lambda *_: None, error=lambda *_: None)},
    "omegaconf": {"DictConfig": Annotation},
}
NAMED_ONLY: Mapping[str, Mapping[str, object]] = {
    "skyrl.train.config": {"AlgorithmConfig": Annotation},
    "skyrl.train.dataset": {"__path__": []},
    "skyrl.train.dataset.bin_packing": {"make_seq_packer": None},
    "skyrl.train.dataset.replay_buffer": {"Experience": Annotation},
    "skyrl.backends.skyrl_train.distributed": {"__path__": []},
    "skyrl.backends.skyrl_train.distributed.strategy": {"DistributedStrategy": Annotation},
    "skyrl.backends.skyrl_train.utils.sample_support": {"SAMPLE_SUPPORT_FIELD": ""},
    "skyrl.backends.skyrl_train.training_batch": dict.fromkeys(
        ("PACKED_FIELD_PADDING", "make_packed_field_padding", "packed_dummy_row_segments")
    )
    | {"TensorBatch": Annotation, "TrainingInputBatch": Annotation},
}


@contextmanager
def skyrl_package() -> Iterator[Any]:
    """A namespace `losses`, `correction`, `reduction` of SkyRL's own modules; skips where skyrl is not installed."""
    spec = find_spec("skyrl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the skyrl package is not installed (its files alone are enough: pip install --no-deps skyrl)")
    root = spec.submodule_search_locations[0]
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "skyrl"]:
            patch.delitem(sys.modules, name)
        for name in PARENTS:
            path = root + name.removeprefix("skyrl").replace(".", "/")
            patch.setitem(sys.modules, name, _module(name, {"__path__": [path]}))
        for name, names in {**NAMED_ONLY, **{k: v for k, v in THIRD_PARTY.items() if find_spec(k) is None}}.items():
            patch.setitem(sys.modules, name, _module(name, names))
        found = [import_module(name) for name in (LOSSES, CORRECTION, REDUCTION)]
        yield SimpleNamespace(losses=found[0], correction=found[1], reduction=found[2])
        for name in (LOSSES, CORRECTION, REDUCTION):
            del sys.modules[name]


def _module(name: str, names: Mapping[str, object]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module
