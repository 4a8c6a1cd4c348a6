"""Noise floors: measured on a run, saved under a name, and beside other runs in every verb and on the pages."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.edge_runs import made
from support.frames import notes
from support.pages_open import Open, charts, html, plain
from support.read_run import read_run

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.figures.slice_bars import slice_bars
from ratioscope.app.presentation.digits import digits
from ratioscope.app.presentation.noise_floor import FloorValue, NoiseFloor, floor_sentence, with_floor
from ratioscope.app.referee.baselines import baseline, baseline_names, baselines_folder
from ratioscope.app.referee.floor_of_run import floor_of_run
from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError, SourceError
from ratioscope.metrics.analysis.slice_parts import slice_parts
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import Limit, limits_of, reading_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read_run(tmp_path_factory.mktemp("floor") / "read")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, " ".join(out.out.split()), " ".join(out.err.split())


def test_the_floor_is_the_distance_of_two_readings_of_one_model(folder: Path) -> None:
    found, run = floor_of_run(open_run(folder), "q"), open_run(folder)
    assert found.gap == "referee:referee_again" and found.steps == (0, 1, 2, 3)
    x = run.tokens(list(found.steps), [found.gap]).collect()[found.gap].drop_nulls().to_numpy()
    own = dict(found.values)
    assert own["abs_log_ratio"].value == pytest.approx(np.abs(x).mean(), rel=1e-9) and found.tokens == len(x)
    assert own["kl_k3"].value == pytest.approx((np.expm1(x) - x).mean(), rel=1e-9)


def test_the_trainer_read_twice_is_a_floor(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    old = [chance.normal(-1, 0.2, 30).astype(np.float32) for _ in range(6)]
    again = [(each + chance.normal(0, 1e-3, 30)).astype(np.float32) for each in old]
    with Collector(tmp_path / "run", strict=True, writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=old, old_logprobs=old, readings={"trainer_again": again})
    found = floor_of_run(open_run(tmp_path / "run"), "t")
    assert found.gap == "old:trainer_again" and found.how.startswith("trainer to trainer again")


def test_without_a_second_reading_a_healthy_run_is_the_floor_and_no_other(runs: Path) -> None:
    found = floor_of_run(open_run(made(runs, "healthy")), "h")
    whole = open_run(made(runs, "healthy")).metrics(by=())
    assert dict(found.values)["kl_k3"].value == whole["mismatch/kl_k3"][0] and "of a healthy run" in found.how
    with pytest.raises(SourceError, match=r"no noise floor: nothing in it was computed twice, and its verdict is act"):
        floor_of_run(open_run(made(runs, "stale")), "s")


def test_a_floor_is_saved_listed_shown_and_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "baseline", "save", folder, "as", "tiny-fp32")
    assert code == 0 and "referee to referee again" in out and "ratioscope report RUN --baseline tiny-fp32" in out
    assert baseline_names() == ["tiny-fp32"]
    before, again = floor_of_run(open_run(folder), "tiny-fp32"), baseline("tiny-fp32")
    assert dict(again.values) == dict(before.values) and (again.gap, again.steps) == (before.gap, before.steps)
    shown = json.loads("".join(_out(capsys, "baseline", "show", "tiny-fp32", "--json")))
    assert shown["run"] == "read" and shown["digest"] == open_run(folder).digest and shown["sequences"] == 28
    assert "tiny-fp32" in answer(capsys, "baseline", "list")[1]
    assert answer(capsys, "baseline", "remove", "tiny-fp32")[0] == 0 and baseline_names() == []


def _out(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(list(words)) == 0
    return [capsys.readouterr().out]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("save", "RUN", "tiny"), "wanted ratioscope baseline save RUN as NAME"),
        (("save", "RUN", "as", "../x"), "wanted letters, digits"),
        (("drop", "x"), "ratioscope baseline list"),
        (
            ("show", "x"),
            "baseline x: there is none of this name; saved are: none; try: ratioscope baseline save RUN as x",
        ),
        (("remove", "x"), "saved are: none"),
    ],
)
def test_a_wrong_use_is_refused_with_the_right_one(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], wanted: str
) -> None:
    code, _, err = answer(capsys, "baseline", *(folder if word == "RUN" else word for word in words))
    assert code == 2 and wanted in err


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"\xff", b'{"schema": "ratioscope-baseline/1"}', b'{"schema": ' + b"[" * 9999]
)
def test_a_damaged_file_is_named(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    baselines_folder().mkdir(parents=True)
    (baselines_folder() / "odd.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"odd\.json is no baseline .*try: ratioscope baseline remove odd"):
        baseline("odd")
    assert answer(capsys, "baseline", "list")[0] == 0


def test_a_file_cannot_hold_a_value_that_is_no_number(folder: Path) -> None:
    assert main(["baseline", "save", str(folder), "as", "q"]) == 0
    path = baselines_folder() / "q.json"
    plain_: dict[str, Any] = json.loads(path.read_text())
    plain_["values"]["kl_k3"]["value"] = -1
    path.write_text(json.dumps(plain_))
    with pytest.raises(ConfigError, match="wanted a number from 0 on"):
        baseline("q")


@pytest.mark.parametrize("verb", ["info", "diagnose", "check"])
def test_a_verb_says_how_many_times_the_floor_the_gap_is(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    floor = NoiseFloor("q", "a:b", "", (("kl_k3", FloorValue(0.003, 1e-4)), ("abs_log_ratio", FloorValue(0.01, 1e-4))),
                       9, 3, "r", "d", (1,))  # fmt: skip
    from ratioscope.app.referee.baselines import write_baseline

    write_baseline(floor)
    k3 = open_run(folder).metrics(by=())["mismatch/kl_k3"][0]
    said = f"mismatch is {k3 / 0.003:.2g} times your baseline q: kl_k3"
    assert said in answer(capsys, verb, folder, "--baseline", "q")[1]
    assert said in answer(capsys, verb, folder, "--baseline", "q", "--json")[1]
    assert answer(capsys, verb, folder, "--baseline", "none")[0] == 2


def test_bars_draw_a_floor_that_lies_on_their_axis_and_name_one_that_does_not(folder: Path) -> None:
    frame = open_run(folder).metrics(("position",))
    parts = slice_parts(frame, "position", "mismatch", "kl_k3")
    for at, marks in ((float(parts["value"].median()), 1), (1e3, 0)):  # type: ignore[arg-type]
        floor = Limit(at, "baseline q", is_floor=True)
        figure = slice_bars(parts, BY_NAME["kl_k3"], "mismatch", "by position", limits=(floor,))
        layout: Any = figure.layout
        assert [shape.line.dash for shape in layout.shapes].count("dot") == marks
        assert [text.text for text in layout.annotations].count("floor") == marks
        assert f"baseline q {digits(at, 2)}" in notes(figure)


def test_the_report_and_the_pages_draw_and_name_the_floor(
    folder: Path, opened: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "baseline" not in {box.key for box in opened("overview", folder).selectbox}
    assert main(["baseline", "save", str(folder), "as", "tiny"]) == 0
    app = opened("overview", folder, baseline="tiny")
    assert "times your baseline tiny: kl_k3" in plain(app) and "baseline tiny" in html(app)
    assert any("baseline tiny" in chart for chart in charts(app))
    for page, gap in (("where", "mismatch"), ("where", "rollout:referee")):
        bars = charts(opened(page, folder, baseline="tiny", gap=gap))
        assert bars and all("baseline tiny" in chart for chart in bars)
    assert "no baseline other is saved here" in plain(opened("charts", folder, baseline="other"))
    report = tmp_path / "report.html"
    code = main(["report", str(folder), "-o", str(report), "--baseline", "tiny"])
    assert code == 0 and "times your baseline tiny" in report.read_text()
    twin = tmp_path / "report.json"
    assert main(["report", str(folder), "-o", str(twin), "--baseline", "tiny"]) == 0
    assert json.loads(twin.read_text())["baseline"]["name"] == "tiny"


def test_a_floor_is_drawn_among_the_limits_and_grades_nothing() -> None:
    metric = BY_NAME["kl_k3"]
    floor = NoiseFloor("q", "a:b", "", (("kl_k3", FloorValue(0.5, 0.0)),), 9, 3, "r", "d", (1,))
    limits = limits_of(metric, "mismatch")
    both = with_floor(limits, metric, "mismatch", floor)
    assert [limit.is_floor for limit in both] == [*(False for _ in limits), True]
    assert reading_of(0.7, both) == reading_of(0.7, limits)
    assert (
        with_floor(limits, metric, "drift", floor)
        == limits
        == with_floor(limits, BY_NAME["ess_token"], "mismatch", floor)
    )


def test_words_beside_a_floor() -> None:
    values = (("kl_k3", FloorValue(0.001, math.nan)), ("abs_log_ratio", FloorValue(0.0, 0.0)))
    floor = NoiseFloor("q", "a:b", "", values, 9, 3, "r", "d", (1,))
    assert floor_sentence(floor, "mismatch", 0.003, 0.0015).startswith("within your baseline q")
    assert floor_sentence(floor, "mismatch", 0.003, 0.0001).startswith("3 times your baseline q")
    assert "because the run has no kl_k3 of mismatch" in floor_sentence(floor, "mismatch", None, None)
    assert floor_sentence(floor, "old:referee", 0.1, 0.01).startswith("above your baseline q, which is exactly 0")
    assert "because drift is the update" in floor_sentence(floor, "drift", 0.1, 0.01)
