"""Facts of the machine in run.json: read from memory, never begun or raised, and shown where they differ between attempts."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratioscope import Collector, open_run
from ratioscope.collectors.process.machine import machine
from ratioscope.ingest.analysis.info import info
from ratioscope.ingest.analysis.run_settings import differences, settings


def torch_with(*, begun: bool = True, name: Any = "NVIDIA H200", ranks: int = 8) -> SimpleNamespace:
    """A torch whose CUDA must not be asked before it has begun."""

    def asked(answer: Any) -> Any:
        assert begun
        return answer

    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: begun, get_device_name=lambda: asked(name), device_count=lambda: asked(2)
        ),
        version=SimpleNamespace(cuda="13.0", git_version="0123456789abcdef0123"),
        distributed=SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: ranks > 0, get_world_size=lambda: ranks, get_backend=lambda: "nccl",
            get_rank=lambda: 0,
        ),
    )  # fmt: skip


def test_devices_versions_and_ranks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_with())
    assert machine() == {
        "device": "NVIDIA H200", "devices": 2, "cuda": "13.0", "torch_build": "0123456789ab", "world_size": 8, "backend": "nccl",
    }  # fmt: skip


def test_cuda_is_not_begun_and_no_torch_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_with(begun=False, ranks=0))
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert {"device", "devices"}.isdisjoint(machine()) and machine()["world_size"] == 4
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delenv("WORLD_SIZE")
    assert machine() == {}


def test_a_module_that_raises_or_answers_nonsense_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Angry:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("driver shutting down")

    monkeypatch.setitem(sys.modules, "torch", Angry())
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert machine() == {}
    monkeypatch.setitem(sys.modules, "torch", torch_with(name="x" * 10_000))
    assert len(machine()["device"]) == 200


def test_another_machine_at_a_restart_is_a_difference_of_the_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides: dict[str, Any] = {"rollout_logprobs": [[-1.0]], "old_logprobs": [[-1.0]]}
    for attempt, ranks in enumerate((8, 16)):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "torch", torch_with(ranks=ranks))
            collector = Collector(tmp_path / "run", rank=0, attempt=attempt, writer="thread")
        collector.log(step=attempt, **sides)
        assert collector.close()
    run = open_run(tmp_path / "run")
    (changed,) = differences(settings(run.info, 0), settings(run.info, 1))
    assert changed.words == "machine.world_size 8 → 16"
    assert info(run)["machine"]["device"] == "NVIDIA H200"
