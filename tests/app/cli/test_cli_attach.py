"""`ratioscope attach`: what to paste for each trainer, and the table of them all."""

import json
import shlex
from pathlib import Path

import pytest
from support.paths import ROOT

import ratioscope
from ratioscope.app.cli import main
from ratioscope.app.presentation.trainers import to_paste
from ratioscope.collectors.adapter import Adapter
from ratioscope.collectors.trainers import ADAPTERS, adapter_named
from ratioscope.collectors.unsupported_trainers import UNSUPPORTED_TRAINERS, UnsupportedTrainer, unsupported_trainer
from ratioscope.errors import ConfigError

Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *argv: str) -> str:
    assert main(["attach", *argv]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_what_is_printed_for_a_trainer_says_everything_one_needs(adapter: Adapter, capsys: Captured) -> None:
    out = printed(capsys, adapter.name.replace("_", "-").upper(), "--out", "runs/mine")
    lines = to_paste(adapter, "runs/mine").splitlines()
    assert "\n".join(lines) in out and "{run}" not in out and "runs/mine" in out
    assert all(version in out for version in adapter.tested)
    told = {"package": "the real package", "source": "its real source", "stand-ins": "stand-ins"}
    line = next(line for line in out.splitlines() if line.startswith("tested with"))
    assert [against for against, words in told.items() if words in line] == [adapter.against]
    assert adapter.version or "not found" in out
    assert adapter.records in out and f"'{adapter.name}'" in out
    assert adapter.rollout_setting.replace("`", "") in out
    assert "ratioscope run --out runs/mine --" in out


def test_each_row_is_complete() -> None:
    for adapter in ADAPTERS:
        assert adapter.tested and "{run}" in adapter.lines and adapter.records, adapter.name
        assert (ROOT / "collectors" / "adapters" / adapter.name / "__init__.py").exists(), adapter.name


def test_a_folder_with_a_space_is_quoted_for_whoever_reads_it(capsys: Captured) -> None:
    assert 'ratioscope.attach(trainer, "my runs/1")' in printed(capsys, "trl", "--out", "my runs/1")
    lines = printed(capsys, "nemo-rl", "--out", "my runs/1").splitlines()
    line = next(line for line in lines if line.startswith("ratioscope run"))
    assert shlex.split(line, comments=True)[:4] == ["ratioscope", "run", "--out", "my runs/1"]


def test_the_list_names_every_trainer_as_a_table_and_as_json(capsys: Captured) -> None:
    table = printed(capsys, "--list")
    assert table == printed(capsys)
    rows = json.loads(printed(capsys, "--list", "--json"))
    assert [row["name"] for row in rows] == [adapter.name for adapter in ADAPTERS]
    for adapter in ADAPTERS:
        assert adapter.name in table and ", ".join(adapter.tested) in table
    trl = next(row for row in rows if row["name"] == "trl")
    assert trl["installed"] and trl["against"] == "package" and trl["classes"]


def test_one_trainer_as_json_has_what_to_paste(capsys: Captured) -> None:
    found = json.loads(printed(capsys, "verl", "--json", "--out", "runs/mine"))
    assert found["name"] == "verl" and "runs/mine" in found["paste"]


def test_an_unknown_trainer_is_wrong_usage_that_names_the_known_and_what_works_anywhere(capsys: Captured) -> None:
    assert main(["attach", "no-such"]) == 2
    said = capsys.readouterr().err
    assert all(adapter.name in said for adapter in ADAPTERS) and "Collector(run_dir).log(" in said
    assert said.count("\n") == 1


def test_the_readme_and_the_pages_of_trainers_say_the_same(capsys: Captured) -> None:
    page = (ROOT / "docs" / "trainers.md").read_text()
    for adapter in ADAPTERS:
        assert f"](trainers/{adapter.name}.md)" in page
        assert to_paste(adapter, "runs/tonight") in (ROOT / "docs" / "trainers" / f"{adapter.name}.md").read_text()
    readme = (ROOT / "README.md").read_text()
    for way in (
        "ratioscope run --out",
        "ratioscope.attach(trainer,",
        "collector.log(",
        "docs/trainers.md",
        "ratioscope attach --list",
    ):
        assert way in readme


def test_the_check_says_whether_a_trainer_would_be_recorded(capsys: Captured, tmp_path: Path) -> None:
    said = printed(capsys, "trl", "--check")
    assert said.startswith("TRL would be recorded: all 11 functions that the adapter watches are there")
    assert "GRPOTrainer._compute_loss" in said and "grpo_trainer.py:" in said
    assert f"it records {next(one for one in ADAPTERS if one.name == 'trl').records}" in " ".join(said.split())
    loss = tmp_path / "openrlhf/models/loss.py"
    loss.parent.mkdir(parents=True)
    loss.write_text("class PolicyLoss:\n    def forwards(self): ...\n")
    assert main(["attach", "--source", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "OpenRLHF would be refused, and nothing recorded: 0 of 7 functions that the adapter watches are there"
    )
    assert "needed: PolicyLoss has no forward; it has forwards" in said and f"not in {tmp_path}: verl" in " ".join(
        said.split()
    )
    assert main(["attach", "openrlhf", "--source", str(tmp_path), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)["OpenRLHF"]
    assert facts["would_record"] is False and len(facts["functions"]) == 7


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--source", "no-such-folder"), "no-such-folder is no folder; wanted a checkout"),
        (
            ("no-such.py", "--check"),
            "no-such.py does not exist; wanted a file of Python",
        ),
        (("no-such", "--check"), "no trainer is named 'no-such'"),
        (("EasyR1",), "EasyR1 keeps no log-probs of its engine"),
        (("LLaMA-Factory", "--check"), "has no GRPO"),
        (("tests/support", "--check"), "tests/support is a folder; wanted a file of Python"),
    ],
)
def test_a_check_of_nothing_says_what_is_wanted(argv: tuple[str, ...], says: str, capsys: Captured) -> None:
    assert main(["attach", *(str(ROOT / part) if part.startswith("tests") else part for part in argv)]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_an_adapter_of_ones_own_is_checked_by_its_file(capsys: Captured, tmp_path: Path) -> None:
    template = ROOT / "docs" / "template_adapter.py"
    assert main(["attach", str(template), "--check"]) == 1
    assert "not installed here: the trainer of" in " ".join(capsys.readouterr().out.split())
    package = tmp_path / "my_trainer"
    package.mkdir()
    (package / "loop.py").write_text("class Trainer:\n    def update(self): ...\n")
    (package / "loss.py").write_text("def policy_loss(sampled_with, old, current, mask): ...\n")
    assert main(["attach", str(template), "--source", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert (
        "would be recorded in part: parameters have other names" in said
        and "needed: my_trainer.loss.policy_loss has no parameter ids" in said
    )


@pytest.mark.parametrize("one", UNSUPPORTED_TRAINERS, ids=lambda one: one.name)
def test_a_trainer_with_nothing_to_record_is_named_with_the_reason(one: UnsupportedTrainer, capsys: Captured) -> None:
    assert unsupported_trainer(one.title) is one and adapter_named(one.title) is None
    assert main(["attach", one.title]) != 0
    assert one.why.split(":")[0] in " ".join(capsys.readouterr().err.split())
    assert one.why in (ROOT / "docs" / "trainers.md").read_text()
    with pytest.raises(ConfigError, match="So there is no adapter"):
        ratioscope.attach(one.name, "nowhere")
