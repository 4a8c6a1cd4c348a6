"""The gaps of readings in the report: their charts beside the recorded gap, and every section on one that was asked for."""

import json
from pathlib import Path

import pytest
from support.edge_runs import made
from support.frames import notes, traces
from support.read_run import APART, READ, SEQUENCES, read_run
from support.site import charts_in

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.pages.gap_slices import slices_of_gap
from ratioscope.app.presentation.metric_places import names_at
from ratioscope.app.presentation.theme import LIGHT

GAP = "rollout:referee"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read_run(tmp_path_factory.mktemp("gaps") / "read")


@pytest.fixture(scope="module")
def data(folder: Path) -> Material:
    return material(open_run(folder))


@pytest.fixture(scope="module")
def asked(folder: Path) -> Material:
    return material(open_run(folder), gap=GAP)


def drawn(data: Material, section: str, gap: str) -> list[str]:
    return [name for name in charts_in(data, section) if name.startswith(f"{gap}-")]


def test_a_referee_adds_the_charts_of_both_sides_by_itself(data: Material) -> None:
    assert data.gap == "mismatch" and data.readings == (GAP, "old:referee")
    assert drawn(data, "side", GAP) == [f"{GAP}-{name}" for name in names_at("first", GAP)]
    assert f"old:referee-{names_at('first', 'old:referee')[1]}" in drawn(data, "side", "old:referee")
    page = html_report(data)
    for gap in data.readings:
        assert f'data-figure="{gap}-abs_log_ratio"' in page and f"<summary>{gap} (" in page


def test_the_chart_of_a_reading_shows_the_recorded_gap_at_the_steps_that_were_read(data: Material) -> None:
    figure = charts_in(data)[f"{GAP}-kl_k3"].figure(LIGHT)
    assert "</span> mismatch · " in notes(figure)
    lines = {trace.name: trace for trace in traces(figure) if trace.mode and len(trace.x) == len(READ)}
    assert {"kl_k3", "mismatch"} <= set(lines)
    recorded = data.steps.filter(data.steps["step"].is_in(list(READ)))["mismatch/kl_k3"].to_list()
    assert list(lines["mismatch"].y) == pytest.approx(recorded)


def test_every_section_takes_the_gap_that_was_asked_for(asked: Material, folder: Path) -> None:
    run = open_run(folder)
    assert asked.gap == GAP and asked.readings[0] == GAP
    assert drawn(asked, "timeline", GAP) and charts_in(asked, "distribution")
    tokens = asked.scope.distribution("token")["count"].sum()
    assert tokens == run.metrics((), gap=GAP)[f"{GAP}/tokens"][0]
    position = next(place for place in asked.view.of(slices_of_gap, GAP) if place.slice == "position")
    assert position.frame is not None and len(position.frame) == len(run.metrics(("position",), gap=GAP))
    assert asked.worst and {item.step for item in asked.worst} <= set(READ)
    assert all(item.tokens[GAP].null_count() == 0 for item in asked.worst)
    assert asked.verdict.gap != GAP


def test_scores_of_a_reading_are_those_of_the_run(data: Material, folder: Path) -> None:
    found = {score.name: score for score in data.scores if score.gap == GAP}
    assert found["kl_k3"].value == open_run(folder).metrics((), gap=GAP)[f"{GAP}/kl_k3"][0]
    assert found["sequences"].value == (len(READ) - 1) * SEQUENCES + SEQUENCES // 2
    assert found["abs_log_ratio"].value == pytest.approx(APART * (2 / 3.14159) ** 0.5, rel=0.1)


def test_the_twins_have_the_gap_too(asked: Material) -> None:
    text, twin = markdown_report(asked).replace("\u2060", ""), json.loads(json_report(asked))
    assert f"### {GAP}" in text and f"## Places of {GAP}" in text
    assert twin["gap"] == GAP and twin["reading_gaps"] == [GAP, "old:referee"]
    values = twin["steps"][f"{GAP}/kl_k3"]
    assert [value is None for value in values] == [step not in READ for step in twin["steps"]["step"]]
    assert {place["gap"] for place in twin["places"]} == {GAP}


def test_the_verb_takes_the_gap_and_names_those_it_has(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    assert main(["report", str(folder), "-o", str(output), "--gap", GAP]) == 0
    twin = json.loads(output.read_text())
    assert twin["gap"] == GAP and twin["reproduction"]["command"].endswith(f"-o r.json --gap {GAP}")
    for wrong in ("total", "rollout:nobody", "nonsense"):
        assert main(["report", str(folder), "-o", str(output), "--gap", wrong]) == 2
        said = capsys.readouterr().err
        assert f"--gap {wrong}" in said and "wanted" in said


def test_a_run_without_readings_has_the_sections_it_had(runs: Path) -> None:
    data = material(open_run(made(runs, "one_step")))
    assert data.readings == () and not charts_in(data, "side")
    assert json.loads(json_report(data))["reading_gaps"] == []
