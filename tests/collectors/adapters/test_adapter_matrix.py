"""Every adapter, every property: what the table says is true, and a training that is recorded is the training that is not.

Here the trainers that run in the tests' own environment, real (TRL) or stand-ins; the others' packages are driven in
upstream/test_package_matrix.py.
"""

import gc
import importlib
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.adapter_properties import Driven, differences, holds_what_it_should, left_behind, masks_nest, traced
from support.paths import TESTS

import ratioscope
from ratioscope.collectors.adapter import Adapter
from ratioscope.collectors.trainers import ADAPTERS, adapter_named
from ratioscope.collectors.watching.hooks import Hook
from ratioscope.collectors.watching.recording import Recording
from ratioscope.errors import ConfigError
from ratioscope.metrics.dialects import NAMES

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

DRIVEN = {
    "trl": Driven("trl", "standins.trl", {}),
    "unsloth": Driven("unsloth", "standins.unsloth", {}),
    "slime": Driven("slime", "standins.slime", {}),
    "miles": Driven("miles", "standins.slime", {"trainer": "miles"}),
    "nemo_rl": Driven("nemo_rl", "standins.nemo_rl", {}),
    "nemo_rl async": Driven("nemo_rl", "standins.nemo_rl", {"mode": "async"}, lags=(0, 1)),
    "fireworks": Driven("fireworks", "standins.fireworks", {}),
    "fireworks async": Driven("fireworks", "standins.fireworks", {"recipe": "async"}, lags=(0, 1)),
    "prime_rl": Driven("prime_rl", "standins.prime_rl", {}, policies=("rollout", "current"), lags=(0, 1)),
    "open_instruct": Driven("open_instruct", "standins.open_instruct", {}, lags=(0, 1)),
    "roll": Driven("roll", "standins.roll", {}),
}


@pytest.fixture(params=DRIVEN, scope="module")
def driven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(the row of the table, the run folder, the trace with a collector, the trace without)."""
    row = DRIVEN[request.param]
    run = tmp_path_factory.mktemp(row.adapter) / "run"
    return row, run, _driven(row, run), _driven(row, None)


def _driven(row: Driven, run: Path | None) -> Any:
    return traced(importlib.import_module(row.module).drive, row, run)


def test_training_is_the_same_to_the_last_bit(driven: Any) -> None:
    _, _, recorded, plain = driven
    assert differences(recorded, plain) == []


def test_the_records_hold_what_the_trainer_knows(driven: Any) -> None:
    row, run, *_ = driven
    assert masks_nest(holds_what_it_should(run, row))


def test_nothing_of_ours_is_left_on_the_trainer(driven: Any) -> None:
    assert left_behind(driven[0].adapter) == []


def test_what_fails_in_a_look_stays_there(driven: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, _, _, plain = driven

    class Failed(RuntimeError):
        pass

    def broken(recording: Recording, **values: Any) -> None:
        error = Failed("cannot look")  # this frame holds the error that holds this frame, and the tensors in `values`
        failed.append(recording.adapter)
        errors.append(weakref.ref(error))
        raise error

    failed, errors = list[str](), list[weakref.ref[Failed]]()
    monkeypatch.setattr(Recording, "log", broken)
    gc.disable()
    try:
        assert differences(_driven(row, tmp_path / "run"), plain) == []
        assert set(failed) == {row.adapter} and not any(error() for error in errors)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["prime_rl", "open_instruct", "roll"])
def test_a_variable_and_nothing_else_records_a_run(name: str, tmp_path: Path) -> None:
    code = f"""
import ratioscope.collectors.environment as environment
environment.install()
from {DRIVEN[name].module} import drive
drive(None)
"""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), *sys.path])
    environment = {**os.environ, "RATIOSCOPE_RUN": str(tmp_path / "run"), "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)
    holds_what_it_should(tmp_path / "run", DRIVEN[name])


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_the_table_tells_what_there_is(adapter: Adapter) -> None:
    module, recording = adapter.load(), Recording("nowhere", {}, adapter.name)
    recorder: Any = module.recorder(recording)
    looks = [
        look
        for hook in module.HOOKS
        for look in (hook.before, hook.after, hook.swap, hook.replace, hook.failed)
        if look
    ]
    assert looks and all(callable(getattr(recorder, look)) for look in looks)
    assert not recording.has_collector
    assert adapter.records and adapter.tested and "{run}" in adapter.lines
    assert adapter_named(adapter.name.replace("_", "-").upper()) is adapter
    assert any(hook.needed for hook in module.HOOKS)


def test_every_dialect_has_an_adapter() -> None:
    assert set(NAMES) <= {adapter.name for adapter in ADAPTERS}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_a_version_without_the_needed_names_is_refused_with_the_reason(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {hook.module for hook in adapter.load().HOOKS}:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    attachment = ratioscope.attach(adapter.name, tmp_path / "run")
    assert attachment.refused is not None
    for part in (adapter.title, "training goes on", adapter.tested[-1]):
        assert part in attachment.refused
    assert attachment.detach() and not (tmp_path / "run").exists()


OF_ITS_OWN = [adapter for adapter in ADAPTERS if adapter.name not in ("trl", "unsloth")]
"""Those that watch functions of the trainer's package; TRL's and unsloth's are looked at when transformers begins to train."""


@pytest.mark.parametrize("adapter", OF_ITS_OWN, ids=lambda adapter: adapter.name)
def test_a_version_that_is_imported_after_attach_is_refused_in_the_same_words(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = adapter.load().HOOKS
    needed = next(hook.module for hook in hooks if hook.needed)
    packages = {adapter.package, *(hook.module.partition(".")[0] for hook in hooks)}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    _empty_module(tmp_path / "theirs", needed)
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    attachment = ratioscope.attach(adapter.name, tmp_path / "run")
    assert attachment.refused is None
    module = importlib.import_module(needed)
    late = attachment.refused
    assert late == ratioscope.attach(adapter.name, tmp_path / "run").refused and f"has no {needed}." in (late or "")
    with pytest.raises(ConfigError, match="has no"):
        ratioscope.attach(adapter.name, tmp_path / "run", strict=True)
    assert not hasattr(module, "__wrapped__") and attachment.detach() and not (tmp_path / "run").exists()
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]  # by itself, for monkeypatch would put it back


def _empty_module(folder: Path, name: str) -> None:
    """A package of another version, whose module of this name has nothing in it."""
    for part in name.split("."):
        folder = folder / part
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()


def test_what_was_watched_before_a_refusal_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here_before.py").write_text("def step():\n    return 1\n")
    (tmp_path / "here_later.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    here = importlib.import_module("here_before")
    own, adapter = here.step, ModuleType("mine")
    hooks = (Hook("here_before", "step", after="seen"), Hook("here_later", "loss", after="seen"))
    vars(adapter).update(HOOKS=hooks, recorder=lambda recording: None)
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    assert here.step is not own and attachment.refused is None
    importlib.import_module("here_later")
    assert here.step is own and attachment.refused is not None and "mine has no here_later.loss" in attachment.refused
    ratioscope.attach(adapter, tmp_path / "run").detach()
    for name in ("here_before", "here_later"):
        del sys.modules[name]
