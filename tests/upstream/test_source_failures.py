"""Failing looks and refusals of the adapters whose trainers are driven from their source: training is the same to the last bit.

Needs what the drives need; a trainer that is not importable is skipped.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.adapter_properties import differences, left_behind

from ratioscope.collectors.trainers import adapter_named

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="the trainers run on torch")

Drive = Callable[[Any, Path | None, Path], dict[str, Any]]


def alone(driving: Any, run: Path | None, folder: Path) -> dict[str, Any]:
    return driving.drive(run)  # type: ignore[no-any-return]


def with_folder(driving: Any, run: Path | None, folder: Path) -> dict[str, Any]:
    return driving.drive(run, folder)  # type: ignore[no-any-return]


def within(driving: Any, run: Path | None, folder: Path) -> dict[str, Any]:
    with driving.importable() as module:
        return driving.drive(module, run)  # type: ignore[no-any-return]


DRIVES: dict[str, Drive] = {
    "art": alone,
    "fireworks": within,
    "megatron_rl": alone,
    "ms_swift": alone,
    "open_instruct": with_folder,
    "prime_rl": with_folder,
    "roll": within,
    "torchtitan_rl": alone,
    "xtuner": alone,
}
OURS = ("attachment", "finished", "refused", "watched", "trainer", "engine", "sent", "episodes")
"""What a trace holds of the attachment, objects that stand in, and messages whose class compares no values."""


@pytest.fixture(params=DRIVES)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(the adapter's package, run folder or None -> trace)."""
    name = request.param
    driving = pytest.importorskip(f"upstream.{name}_drive", reason=f"{name} is not importable here")
    adapter = adapter_named(name)
    assert adapter is not None

    def train(run: Path | None) -> dict[str, Any]:
        folder = tmp_path / "of_the_trainer"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if torch.distributed.is_initialized():  # another trainer's, which it left
            torch.distributed.destroy_process_group()
        return DRIVES[name](driving, run, folder)

    return name, adapter.load(), train


def of_training(trace: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in trace.items() if name not in OURS}


def refused(trace: dict[str, Any]) -> Any:
    told = trace["attachment"] if "attachment" in trace else trace["refused"]
    return told[1] if isinstance(told, tuple) else getattr(told, "refused", told)


def test_looks_that_fail_at_every_call_change_nothing(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, module, train = trained
    looks = {
        look
        for hook in module.HOOKS
        for look in (hook.before, hook.after, hook.swap, hook.replace, hook.failed)
        if look
    }
    own, failed = module.recorder, list[str]()

    class Failing:
        def __init__(self, recording: Any) -> None:
            self.real = own(recording)

        def __getattr__(self, wanted: str) -> Any:
            if wanted in looks:
                failed.append(wanted)
                raise RuntimeError("this look fails")
            return getattr(self.real, wanted)

    plain = train(None)
    monkeypatch.setattr(module, "recorder", Failing)
    broken = train(tmp_path / "run")
    assert differences(of_training(broken), of_training(plain)) == []
    assert failed and left_behind(name) == []


def test_a_version_without_a_needed_function_is_refused_by_its_name_and_trains_on(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, module, train = trained
    renamed = [replace(hook, name=f"{hook.name}_of_another_version") for hook in module.HOOKS if hook.needed]
    plain = train(None)
    monkeypatch.setattr(module, "HOOKS", (*module.HOOKS, *renamed))
    without = train(tmp_path / "run")
    assert differences(of_training(without), of_training(plain)) == []
    told = refused(without) or ""  # also of a trainer that is imported after `attach`
    assert any(hook.name in told for hook in renamed) and not (tmp_path / "run").exists()
