"""Axolotl's own trainers (0.21.0): the plain one is TRL's to the adapter, the asynchronous ones are refused with the reason.

Needs the unpacked wheel of axolotl in a folder of SOURCES. Stood in for: what Axolotl patches, packs and tokenises with.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.adapter_properties import differences
from support.hollow import hollow
from support.sources import on_path
from support.written_run import token_rows

from ratioscope.collectors.adapters.trl import RECORDERS, _demanded
from ratioscope.collectors.adapters.trl.foreign import replacements
from ratioscope.collectors.watching.hooks import Refused

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

tiny_trl: Any = pytest.importorskip("support.tiny_trl", reason="Axolotl trains with TRL")
trl_rows = pytest.importorskip("support.trl_rows")
ABSENT = (
    "axolotl.monkeypatch", "axolotl.utils.dict", "axolotl.utils.samplers", "axolotl.utils.data", "axolotl.core.trainers.utils",
    "addict", "peft", "bitsandbytes", "torchao", "numba",
)  # fmt: skip
ASYNCHRONOUS = {
    "AsyncGRPOTrainer": "async_trainer", "FastAsyncGRPOTrainer": "fast_async_trainer", "AxolotlAsyncGRPOTrainer": "trainer",
}  # fmt: skip


@contextmanager
def axolotl(module: str) -> Iterator[Any]:
    with on_path("axolotl"), hollow(ABSENT, "axolotl"):
        yield import_module(f"axolotl.core.trainers.grpo.{module}")


def train(run: Path | None, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    with axolotl("trainer") as module:
        own = type("Mine", (tiny_trl.Watched, module.AxolotlGRPOTrainer), {})
        config = import_module("axolotl.core.trainers.grpo.args").AxolotlGRPOConfig
        monkeypatch.setattr(tiny_trl, "WatchedTrainer", own)
        monkeypatch.setattr(tiny_trl, "trl", SimpleNamespace(GRPOConfig=config))
        trace = tiny_trl.train(run, vllm_stub=True, num_iterations=2, options={"strict": True}, **settings)
    assert run is None or trace.attachment.refused is None
    return trace


def test_its_plain_trainer_is_recorded_as_trls_and_is_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, plain = train(tmp_path / "run", monkeypatch), train(None, monkeypatch)
    for name in ("losses", "gradients", "parameters", "batches", "random_state"):
        assert differences(getattr(recorded, name), getattr(plain, name)) == [], name
    rows = token_rows(tmp_path / "run").to_pylist()
    held = [held for held in trl_rows.held_rows(recorded.batches) if held[0]["training"]]
    assert len(rows) == len(held) > 0
    for row, (batch, index) in zip(rows, held, strict=True):
        trl_rows.assert_row(row, batch, index, recorded)


def test_its_plain_trainer_replaces_none_of_the_watched_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    with axolotl("trainer") as module:
        trainer = object.__new__(module.AxolotlGRPOTrainer)
        assert replacements(trainer, RECORDERS["GRPOTrainer"].WRAPPED) is None and _demanded(trainer) == "GRPOTrainer"


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_its_asynchronous_trainers_are_refused_with_the_reason(name: str) -> None:
    with (
        axolotl(ASYNCHRONOUS[name]) as module,
        pytest.raises(Refused, match="samples ahead of the steps.*use_data_producer"),
    ):
        _demanded(object.__new__(getattr(module, name)))


def test_the_reason_is_true(tmp_path: Path) -> None:
    with axolotl("async_trainer") as module:
        own = vars(module.AsyncGRPOTrainer)
        for method in ("_generate_only", "_compute_deferred_scores", "_prepare_inputs", "_compute_loss"):
            assert method in own  # samples and their scores come from two methods, neither of which the adapter watches
        names = module.AsyncGRPOConfig.__dataclass_fields__
        assert {"use_data_producer", "async_prefetch"} <= set(names)
