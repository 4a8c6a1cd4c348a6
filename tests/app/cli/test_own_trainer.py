"""docs/mytrainer.py, a trainer in a hundred lines, and `ratioscope attach --check` of a script of one's own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

import ratioscope
from ratioscope.app.cli import main
from ratioscope.collectors.trainers import ADAPTERS

Captured = pytest.CaptureFixture[str]
EXAMPLE = ROOT / "docs" / "mytrainer.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("mytrainer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("mine") / "run"
    module.train(str(folder))
    return ratioscope.open_run(folder)


def test_the_example_is_recorded_whole(run: Any) -> None:
    assert run.policies == ("rollout", "old", "current") and run.info["trainer"] == "mytrainer"
    rows = run.records().collect()
    assert len(rows) == 6 * 16 and rows["sequence_id"].n_unique() == 96 and rows["group_id"].n_unique() == 24
    assert not run.quarantined and run.conservation.dropped == 0


def test_the_example_shows_which_engine_is_late_and_by_how_much(run: Any) -> None:
    lags = set(run.metrics(by=("step", "lag")).select("step", "lag").rows())
    assert lags == {(step, "0") for step in range(1, 7)} | {(step, "1") for step in (2, 4, 6)}
    gaps = {
        (row["step"], row["replica"]): row["mismatch/kl_k3"] for row in run.metrics(by=("step", "replica")).to_dicts()
    }
    late = [gaps[step, "b"] for step in (2, 4, 6)]
    others = [gap for key, gap in gaps.items() if key not in {(2, "b"), (4, "b"), (6, "b")}]
    assert min(late) > 100 * max(others)


def test_the_example_passes_its_own_check(capsys: Captured) -> None:
    assert main(["attach", str(EXAMPLE), "--check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["would_record"] and told["problems"] == told["advice"] == [] and told["missing"] == ["loss_mask"]
    assert len(EXAMPLE.read_text().splitlines()) < 120


HEAD = "import ratioscope\nraise SystemExit('it ran')\ncollector = ratioscope.Collector('runs/mine')\n"
SCRIPTS: dict[str, tuple[str, str]] = {
    "no call": ("", "no collector.log(...) is called, so nothing would be recorded"),
    "one side": (
        "collector.log(step=1, old_logprobs=old, mask=mask)",
        "log gets old_logprobs; wanted at least two of rollout_logprobs",
    ),
    "no step": ("collector.log(rollout_logprobs=a, old_logprobs=b)", "log gets no step"),
    "a wrong name": ("collector.log(step=1, rollout_logprobs=a, old_logprobs=b, masks=m)", "log has no argument masks"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_lacks_is_said_and_it_is_not_run(name: str, tmp_path: Path, capsys: Captured) -> None:
    call, words = SCRIPTS[name]
    script = tmp_path / "mine.py"
    script.write_text(HEAD + call)
    assert main(["attach", str(script), "--check"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "would not be recorded" in out and words in out and "it ran" not in out


def test_what_would_slow_a_trainer_or_be_left_out_is_said(tmp_path: Path, capsys: Captured) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        HEAD + "collector.log(step=1, rollout_logprobs=a.tolist(), old_logprobs=b, mask=m)\nlogger.log(step=1)\n"
    )
    assert main(["attach", str(script), "--check"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "rollout_logprobs takes .tolist(): it waits for the device",
        "close() is never called",
        "rollout_versions",
        "staleness",
    ):
        assert words in out
    script.write_text(HEAD + "collector.log(**values)\ncollector.close()\n")
    assert main(["attach", str(script), "--check"]) == 0
    assert "their names are not seen" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("def train(): ...\n", 1, "no Collector, no ratioscope.attach and no import of a trainer"),
        ("import no_such_package\n", 1, "so that nothing would be recorded; docs/your_trainer.md"),
        ("import ratioscope\nratioscope.attach(object(), 'run')\n", 1, "cannot be told; name it"),
        ("import ratioscope as r\nr.attach('no-such', 'run')\n", 1, "cannot be told; name it"),
        (
            "from trl import GRPOTrainer\n",
            0,
            "-- python {file}` records the trainers that it imports: TRL would be recorded",
        ),
        (
            "def f():\n    import trl.trainer\n    import ratioscope as r\n    r.attach(t, 'run')\n",
            0,
            "calls ratioscope.attach",
        ),
        ("from ratioscope import attach as a\na('openrlhf', 'run')\n", 1, "not installed here: OpenRLHF"),
        ("HOOKS = ()\n", 2, "has HOOKS and no recorder; docs/your_trainer.md shows a complete adapter"),
        ("recorder = int\nHOOKS = tuple(made())\n", 2, "HOOKS has no Hook(...) with constants in its text"),
        ("# -*- coding: latin-1 -*-\nname = '\xe9'\n", 1, "no Collector"),
        ("pattern = '\\d'\n", 1, "no Collector"),
        ("def (", 2, "is no Python"),
        ("x\0", 2, "is no Python"),
        ("a = " + "b + " * 50_000 + "b\n", 2, "nested too deeply"),
        ("#" * 3_000_000, 2, "has more than 2.1 MB"),
    ],
)
def test_a_file_without_a_collector_is_read_and_never_run(
    text: str, code: int, words: str, tmp_path: Path, capsys: Captured, recwarn: pytest.WarningsRecorder
) -> None:
    file, ran = tmp_path / "mine.py", tmp_path / "ran"
    file.write_bytes(f"{text}\nopen({str(ran)!r}, 'w')\n".encode("latin-1"))
    assert main(["attach", str(file), "--check"]) == code
    said = capsys.readouterr()
    assert words.format(file=file).replace(" ", "") in "".join((said.out + said.err).split())
    assert not ran.exists() and not recwarn.list


def test_a_collector_under_any_name_is_seen(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.py").write_text(
        "from ratioscope import Collector as C\nwith C('run') as c:\n    c.log(step=1, **values)\nlogger.log(2)\n"
    )
    assert main(["attach", str(tmp_path / "mine.py"), "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"] == []


def test_what_the_text_of_an_adapter_does_not_have_is_named(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/loop.py").write_text("class Loop:\n    def update(self): ...\ndef f(): ...\n")
    (tmp_path / "adapter.py").write_text(
        "import not_here\nfrom ratioscope.collectors.watching import hooks as h\nM: str = 'mine.loop'\n"
        "MORE = [h.Hook(M, name='f', needed=False)]\n"
        "HOOKS = (h.Hook(M, 'Loop.update'), *MORE, *(h.Hook(M, n) for n in 'ab'), not_here.HOOK) + (h.Hook(M, 'g'),)\n"
        "class recorder: ...\n"
    )
    assert main(["attach", str(tmp_path / "adapter.py"), "--check", "--source", str(tmp_path)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 functions" in out and "mine.loop has no g" in out and "on line 5" in out


def test_a_notebook_is_read_as_its_code(tmp_path: Path, capsys: Captured) -> None:
    cells = [
        {"cell_type": "markdown", "source": "# Training {"},
        {"cell_type": "code", "source": ["%pip install ratioscope\n", "if True:\n", "    !nvidia-smi\n"]},
        {"cell_type": "code", "source": "%%bash\necho {"},
        {"cell_type": "code", "source": EXAMPLE.read_text()},
    ]
    (file := tmp_path / "nb.ipynb").write_text(json.dumps({"cells": cells}))
    assert main(["attach", str(file), "--check"]) == 0 and "would be recorded" in capsys.readouterr().out
    file.write_text("[]")
    assert main(["attach", str(file), "--check"]) == 2 and "is no notebook" in capsys.readouterr().err


def test_a_path_in_the_place_of_a_trainer_says_what_to_do(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    for words, said in (
        (["mine"], "mine is a path; wanted the name of a trainer"),
        (["mine", "--check"], "mine is a folder; wanted a file of Python, or a notebook"),
        (["nb.ipynb"], "ratioscope attach nb.ipynb --check tells"),
        (["nb.ipynb", "--check"], "nb.ipynb does not exist"),
    ):
        assert main(["attach", *words]) == 2 and said in capsys.readouterr().err


def test_a_check_imports_nothing_of_the_users(tmp_path: Path) -> None:
    packages = {adapter.package.partition(".")[0] for adapter in ADAPTERS} | {"torch", "transformers", "ray"}
    for name in packages:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "mine.py").write_text("".join(f"import {name}\n" for name in packages))
    checks = (["attach", "--check"], ["attach", "--list"], ["attach", "mine.py", "--check"])
    code = f"from ratioscope.app.cli import main\nprint([main(argv) for argv in {checks}])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.endswith("[0, 0, 1]\n"), done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()
