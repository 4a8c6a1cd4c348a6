"""A file that holds few decimals: gaps smaller than its rounding are not available, with the reason, wherever they are shown."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.frames import traces
from support.pages_open import Open, plain
from support.site import charts_in

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.pages.gap_slices import slices_of_gap
from ratioscope.app.pages.scorecard import scores
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.ingest.analysis.grades import signal_grades
from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse

RESOLUTION = 5e-5
BECAUSE = "because rollout holds 4 decimals"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At step 0 the trainer differs from the engine by what the engine's 4 decimals leave out; at step 1 by 0.1."""
    path = tmp_path_factory.mktemp("digits") / "run"
    with Collector(path, resolution={"rollout": RESOLUTION}, strict=True, writer="thread") as collector:
        for step, size in enumerate((1e-6, 0.1)):
            chance = np.random.default_rng(step)
            true = [-1 - chance.exponential(1.0, 50) for _ in range(8)]
            rollout = [np.round(each, 4).astype(np.float32) for each in true]
            near = [each.astype(np.float64) if step == 0 else each for each in rollout]
            old = [(each + chance.normal(0, size, 50)).astype(np.float32) for each in near]
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
    return path


def test_the_floor_is_the_k3_that_rounding_alone_makes(folder: Path) -> None:
    known = too_coarse(open_run(folder))["mismatch"]
    rounding = np.random.default_rng(0).uniform(-RESOLUTION, RESOLUTION, 1_000_000)
    assert known.floor == pytest.approx(np.mean(np.expm1(rounding) - rounding), rel=0.01)
    assert known.because == BECAUSE


def test_frames_lose_values_below_the_floor_and_no_other(folder: Path) -> None:
    run = open_run(folder)
    before = run.metrics()
    after = without_coarse(before, too_coarse(run))
    assert before["mismatch/kl_k3"][0] < too_coarse(run)["mismatch"].floor < before["mismatch/kl_k3"][1]
    for name in ("kl_k3", "kl_k3_se", "kl_k2", "chi2_token"):
        assert after[f"mismatch/{name}"][0] is None and after[f"mismatch/{name}"][1] == before[f"mismatch/{name}"][1]
    assert after["mismatch/tokens"].to_list() == [400, 400]
    assert after["mismatch/abs_log_ratio"].equals(before["mismatch/abs_log_ratio"])


def test_the_verb_prints_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", str(folder), "--metric", "kl_k3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["mismatch/kl_k3"] is None and rows[1]["mismatch/kl_k3"] > 0
    assert main(["metrics", str(folder)]) == 0
    assert f"are not available, {BECAUSE}" in " ".join(capsys.readouterr().out.split())


def test_the_pages_say_so(folder: Path, opened: Open) -> None:
    for page in ("overview", "charts"):
        assert f"are not available, {BECAUSE}" in plain(opened(page, folder))


def test_the_report_says_so_where_the_whole_run_lies_below(tmp_path: Path) -> None:
    lists = [np.round(-1 - np.random.default_rng(row).exponential(1.0, 60), 4).astype(np.float32) for row in range(4)]
    with Collector(tmp_path / "run", resolution={"rollout": RESOLUTION}, strict=True, writer="thread") as collector:
        collector.log(step=0, rollout_logprobs=lists, old_logprobs=lists)
    run = open_run(tmp_path / "run")
    found = {score.name: score for score in scores(run, run.metrics(), {}, signal_grades(run, {}))}
    assert found["kl_k3"].value is None and found["kl_k3"].absent == BECAUSE
    assert found["tokens"].value == 240 and found["abs_log_ratio"].value == 0


def test_every_format_of_the_report_leaves_them_out_with_the_reason(folder: Path) -> None:
    data = material(open_run(folder))
    twin, page = json.loads(json_report(data)), html_report(data)
    assert twin["steps"]["mismatch/kl_k3"][0] is None and twin["steps"]["mismatch/kl_k3"][1] > 0
    assert BECAUSE in twin["digits"]["mismatch"]
    chart = charts_in(data)["mismatch-kl_k3"].figure(LIGHT)
    line = next(trace for trace in traces(chart) if trace.name == "kl_k3")
    assert np.isnan(np.asarray(line.y, float)[0]) or len(line.x) == 1
    for text in (page, markdown_report(data)):
        assert f"are not available, {BECAUSE}" in text


def test_slice_tables_leave_them_out_with_the_reason(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    with Collector(tmp_path / "run", resolution={"rollout": RESOLUTION}, strict=True, writer="thread") as collector:
        for replica, size in (("fine", 0.0), ("off", 0.2)):
            rollout = [np.round(-1 - chance.exponential(1.0, 50), 4).astype(np.float32) for _ in range(8)]
            old = [(each + chance.normal(0, size, 50)).astype(np.float32) for each in rollout]
            ids = [f"{replica}{index}" for index in range(8)]
            collector.log(step=0, rollout_logprobs=rollout, old_logprobs=old, replica=[replica] * 8, sequence_ids=ids)
    data = material(open_run(tmp_path / "run"))
    place = next(place for place in data.view.of(slices_of_gap, data.gap) if place.slice == "replica")
    assert place.frame is not None and place.left_out == BECAUSE
    values = dict(place.frame.select("replica", "mismatch/kl_k3").rows())
    assert values["fine"] is None and values["off"] > 0
    for text in (html_report(data), markdown_report(data)):
        assert f"missing are not available, {BECAUSE}" in text
    twin = next(place for place in json.loads(json_report(data))["places"] if place["slice"] == "replica")
    assert twin["left_out"] == BECAUSE


def test_a_run_with_all_digits_has_no_floor(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", strict=True, writer="thread") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    run = open_run(tmp_path / "run")
    assert too_coarse(run) == {} and without_coarse(run.metrics(), {}).equals(run.metrics())
