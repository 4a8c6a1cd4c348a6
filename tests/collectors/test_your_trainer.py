"""The adapter of docs/your_trainer.md, on a trainer that knows nothing of it."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.toy_job import clean_environment, write_job

import ratioscope
from ratioscope.errors import ConfigError

DOCS = ROOT / "docs"
MY_TRAINER = {
    "my_trainer/__init__.py": "",
    "my_trainer/loss.py": """
        def policy_loss(current, old, sampled_with, mask, ids):
            return sum(c - r for row, by in zip(current, sampled_with) for c, r in zip(row, by))
    """,
    "my_trainer/loop.py": """
        from my_trainer.loss import policy_loss

        class Trainer:
            config = {"lr": 1e-6, "api_key": "secret"}

            def __init__(self):
                self.step = 0

            def update(self, batches):
                losses = [policy_loss(**batch) for batch in batches]
                self.step += 1
                return losses
    """,
}
CURRENT = [[-1.0, -2.0], [-0.5, -3.0]]


def batch(current: float, ids: list[str]) -> dict[str, Any]:
    return {
        "current": [[value + current for value in row] for row in CURRENT],
        "old": CURRENT,
        "sampled_with": [[-1.5, -2.0], [-0.5, -2.5]],
        "mask": [[1, 1], [1, 0]],
        "ids": ids,
    }


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    write_job(tmp_path, MY_TRAINER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(DOCS)
    yield importlib.import_module("template_adapter")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("my_trainer", "template_adapter")]:
        del sys.modules[name]


@pytest.mark.parametrize("loaded", [False, True], ids=["before the import", "after the import"])
def test_the_template_records_each_minibatch_and_detaches_without_a_trace(
    adapter: Any, tmp_path: Path, loaded: bool
) -> None:
    loop: Any = importlib.import_module("my_trainer.loop") if loaded else None
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    loop = loop or importlib.import_module("my_trainer.loop")
    losses = loop.Trainer().update([batch(0.0, ["a", "b"]), batch(0.25, ["a", "b"])])
    assert attachment.detach() and attachment.refused is None
    assert losses == loop.Trainer().update([batch(0.0, ["a", "b"]), batch(0.25, ["a", "b"])])
    assert not hasattr(loop.policy_loss, "__wrapped__") and not hasattr(loop.Trainer.update, "__wrapped__")

    run = ratioscope.open_run(tmp_path / "run")
    assert set(run.gaps) == {"mismatch", "total", "drift"} and run.info["trainer"] == "my_trainer 1.0"
    (row,) = run.metrics(by=("step",)).to_dicts()
    assert (row["step"], row["mismatch/tokens"], row["total/tokens"]) == (0, 3, 6)  # one token is not sampled
    assert row["mismatch/kl_direct"] == pytest.approx(-0.5 / 3)
    assert "secret" not in (tmp_path / "run" / "run.json").read_text()


def test_a_trainer_that_lacks_a_name_is_refused_and_trains(adapter: Any, tmp_path: Path) -> None:
    loss: Any = importlib.import_module("my_trainer.loss")
    del loss.policy_loss
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    assert attachment.refused == (
        "template_adapter has no my_trainer.loss.policy_loss, so that nothing is recorded; training goes on"
    )
    with pytest.raises(ConfigError, match="policy_loss"):
        ratioscope.attach(adapter, tmp_path / "run", strict=True)
    assert not (tmp_path / "run").exists()


def test_attaching_twice_is_told_of(adapter: Any, tmp_path: Path) -> None:
    importlib.import_module("my_trainer.loop")
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    with pytest.raises(ConfigError, match="attached to template_adapter already; detach"):
        ratioscope.attach(adapter, tmp_path / "run")
    attachment.detach()
    assert ratioscope.attach(adapter, tmp_path / "run").detach()


def test_a_script_that_attaches_by_itself_runs_under_ratioscope_run_too(tmp_path: Path) -> None:
    write_job(tmp_path, {"sitecustomize.py": "", "double.py": DOUBLE})
    write_job(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "ratioscope", "run", "--out", "RUN", "--", sys.executable, "double.py"],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n"), done.stderr
    assert (
        "attached to Toy already" in done.stderr and (tmp_path / "RUN").exists() and not (tmp_path / "other").exists()
    )


DOUBLE = """
    import training.loop
    import ratioscope

    ratioscope.attach("toy", "other")
    print(training.loop.train())
"""


def test_the_page_shows_calls_that_exist() -> None:
    page = (DOCS / "your_trainer.md").read_text()
    for name in ("Collector", "attach"):
        assert f"ratioscope.{name}(" in page and callable(getattr(ratioscope, name))
    assert len((DOCS / "template_adapter.py").read_text().splitlines()) < 45
