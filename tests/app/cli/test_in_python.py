"""A run answers in Python with the sentences and the JSON of the verbs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

import ratioscope
from ratioscope.app.cli import main
from ratioscope.app.cli.terminal import print_json
from ratioscope.errors import ConfigError

RUNS = ROOT / "sample_data" / "runs"
STALE, HEALTHY = RUNS / "trl-vllm-stale", RUNS / "trl-vllm-healthy"


def printed(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert main([*map(str, command)]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], plain: Any) -> Any:
    print_json(plain)
    return json.loads(capsys.readouterr().out)


def test_a_diagnosis_prints_the_first_line_of_the_verb_and_holds_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ratioscope.open_run(STALE).diagnose()
    assert as_json(capsys, answer.plain) == json.loads(printed(capsys, "diagnose", STALE, "--json"))
    lines = repr(answer).splitlines()
    assert lines[0] == printed(capsys, "diagnose", STALE).splitlines()[0]
    assert any(line.startswith("1. Weight syncs broke at one step") for line in lines)
    assert answer._repr_html_().startswith("<div><b>trl-vllm-stale: ")


def test_a_drift_and_some_steps_are_diagnosed_as_by_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    run = ratioscope.open_run(STALE)
    for gap, steps, options in (("drift", None, ["--gap", "drift"]), (None, range(1, 21), ["--steps", "1:20"])):
        own = as_json(capsys, run.diagnose(gap, steps and [*steps]).plain)
        assert own == json.loads(printed(capsys, "diagnose", STALE, *options, "--json"))


def test_a_comparison_prints_the_headline_and_holds_the_json_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ratioscope.open_run(STALE).compare(ratioscope.open_run(HEALTHY))
    assert as_json(capsys, answer.plain) == json.loads(printed(capsys, "diff", STALE, HEALTHY, "--json"))
    said = printed(capsys, "diff", STALE, HEALTHY).splitlines()
    assert all(line in said for line in repr(answer).splitlines())


def test_a_report_is_saved_whole_and_without_texts_if_asked(tmp_path: Path) -> None:
    report = ratioscope.open_run(STALE).report(text=False)
    assert "without texts" in repr(report) and "trl-vllm-stale" in repr(report)
    saved = json.loads(report.save(tmp_path / "report.json").read_text())
    assert saved["verdict"]["severity"] == "act" and saved["text"] is False
    with pytest.raises(ConfigError, match=r"ends in \.html, \.md, \.json"):
        report.save(tmp_path / "report.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_name_with_markup_is_shown_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(HEALTHY, folder)
    told = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(told | {"name": "<script>\x1b[2J"}))
    answer = ratioscope.open_run(folder).diagnose()
    assert "<script>" not in answer._repr_html_() and "\x1b" not in repr(answer)


def test_the_public_names_are_listed_and_an_answer_is_one_tab_away() -> None:
    assert set(ratioscope.__all__) <= set(dir(ratioscope))
    assert {"diagnose", "compare", "report", "metrics"} <= set(dir(ratioscope.open_run(HEALTHY)))
