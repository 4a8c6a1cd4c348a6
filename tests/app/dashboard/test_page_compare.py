"""The page Compare: what is compared unless chosen, what is said, and what the reader can take away."""

import json
import math
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.frames import hostile_texts, notes, said_in
from support.pages_open import Open, charts, opener, plain, well
from support.recorded import recorded
from support.run_folders import write_run_file

from ratioscope.app.dashboard import blocks_drawn
from ratioscope.app.dashboard.model.view import SERVED, jobs
from ratioscope.app.figures.sides import SideRun, courses, graded_shares, survivals
from ratioscope.app.pages.compare import _events
from ratioscope.app.pages.compare_sides import ComparedRun, good_run
from ratioscope.app.pages.folder import Folder, ListedRun, Summary
from ratioscope.app.pages.scope import Steps
from ratioscope.app.pages.view import View
from ratioscope.app.presentation.comparison_words import (
    compared_metrics,
    few_settings,
    numbers_of,
    paired_sentence,
    sentence,
    settings_table,
    table_of,
)
from ratioscope.app.presentation.digits import digits
from ratioscope.app.presentation.run_state import RunState
from ratioscope.app.presentation.theme import DARK, LIGHT
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.run_settings import differences, settings
from ratioscope.ingest.files.reference_file import Pinned, pin
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.comparison import Compared, Estimate, Paired
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.distribution import histogram
from ratioscope.record import SCHEMA_VERSION


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statistics and no job of another test are known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jobs.clear()


def test_an_address_with_a_side_or_a_run_beside_that_is_not_served_says_so(opened: Open) -> None:
    said = plain(opened("compare", ["stale", "healthy"], run="stale", b="last-night"))
    assert "The run last-night is not served here, or no longer. healthy is shown. Nearest: [" in said
    beside = opened("charts", ["stale", "healthy"], run="stale", **{"with": "last-night"})
    assert "The run last-night is not served here, or no longer. Nearest: [" in plain(beside)
    unasked = opened("compare", ["stale", "healthy"], run="stale")
    assert unasked.session_state["_address"]["b"] == "healthy", "another run may be the first one tomorrow"


@pytest.mark.parametrize("other", ["healthy", "hostile", "holes", "bypass", "one_token", "two_policies"])
def test_the_page_compares_unlike_runs(opened: Open, other: str) -> None:
    words = plain(opened("compare", ["stale", other]))
    assert ("in common" in words) == (other == "bypass")


def test_a_single_run_is_its_first_half_against_its_last(opened: Open, runs: Path) -> None:
    app = opened("compare", ["stale"])
    steps = open_run(made(runs, "stale")).steps
    half = len(steps) // 2
    assert f"steps :{steps[half - 1]}" in plain(app) and f"steps {steps[half]}:" in plain(app)
    assert "share" not in plain(app).split("Each value")[0]


def test_two_runs_are_compared_and_the_settings_that_differ_are_listed(opened: Open, runs: Path) -> None:
    app = opened("compare", ["stale", "healthy"])
    words = plain(app)
    assert "B's KL is" in words and "times lower" in words and "nats/token" in words
    shown = app.dataframe[0].value
    a = open_run(made(runs, "stale")).metrics(())["mismatch/kl_k3"][0]
    b = open_run(made(runs, "healthy")).metrics(())["mismatch/kl_k3"][0]
    row = shown[shown["name"] == "kl_k3"].iloc[0]
    assert row["B / A"] == digits(b / a) and row["result"] == "differs" and shown["metric"][0] == "KL"
    assert len(charts(app)) == 3


def test_sides_ranges_and_metrics_stand_in_the_link(opened: Open, runs: Path) -> None:
    app = opened(
        "compare",
        ["stale", "healthy"],
        a="healthy",
        b="stale",
        a_steps="2:8",
        b_steps="-3:",
        course="ess_token",
        align="steps since the first",
    )
    assert app.multiselect(key="a").value == ["healthy"] and app.text_input(key="b_steps").value == "-3:"
    assert "A: healthy, steps 2:8" in plain(app) and "B: stale, steps -3:" in plain(app)
    wanted = open_run(made(runs, "healthy")).metrics((), steps=range(2, 9))["mismatch/tokens"][0]
    rows = app.dataframe[0].value
    assert rows[rows["name"] == "tokens"].iloc[0]["A"] == f"{int(wanted):,}"


def test_swapping_turns_the_sides_and_the_link_holds_it(opened: Open) -> None:
    app = opened("compare", ["stale"])
    before = plain(app)
    app.button(key="swap").click().run()
    after = plain(app)
    assert "higher" in before.split("A: ")[0] + after.split("A: ")[0]
    assert before.split("A: ")[1].split()[2] == after.split("B: ")[1].split()[2]
    assert str(app.text_input(key="a_steps").value).endswith(":")


def test_the_other_side_is_the_pinned_run_else_the_newest_healthy_one_that_is_alike(tmp_path: Path) -> None:
    def listed(name: str, severity: str, day: int, gap: str = "mismatch", trainer: str = "trl 2") -> ListedRun:
        started = datetime(2026, 1, day, tzinfo=UTC)
        known = Summary(name=name, trainer=trainer, gaps=(gap,), severity=severity, started=started)
        return ListedRun(name, known, RunState("ended", "ended", ""))

    known = [
        listed("a", "act", 9), listed("b", "healthy", 1), listed("c", "healthy", 3), listed("d", "healthy", 5, gap="total"),
        listed("e", "healthy", 6, trainer="verl 1"), ListedRun("f", None, RunState("ended", "ended", "")),
    ]  # fmt: skip
    runs = {name: str(tmp_path / name) for name in ("own", "a", "b", "c", "d", "e", "f")}
    folder = Folder(runs, dict[str, View]().__getitem__, lambda wanted: (known, 1), (str(tmp_path),))
    run = SimpleNamespace(info={"trainer": "trl 1"})
    scope: Any = SimpleNamespace(runs=folder, view=SimpleNamespace(path=runs["own"], run=run), gap="mismatch")
    assert good_run(scope, "own") == "c"
    pin(tmp_path, Pinned("run", "a"))
    assert good_run(scope, "own") == "a"
    scope.runs = Folder({name: runs[name] for name in ("own", "f")}, folder.view)
    assert good_run(scope, "own") == "f"


def test_shared_steps_and_steps_that_are_not_there_are_said(opened: Open) -> None:
    assert "A and B share" in plain(opened("compare", ["stale"], a_steps="0:10", b_steps="4:12"))
    assert "the same KL" in plain(opened("compare", ["stale"], a_steps="4:12", b_steps="4:12"))
    assert "none of the chosen steps" in plain(opened("compare", ["stale"], b_steps="900:"))
    assert "wanted first:last" in plain(opened("compare", ["stale"], b_steps="x:y"))


def test_a_run_that_is_not_served_cannot_be_compared(opened: Open) -> None:
    for name in ("../../etc", "/etc/passwd", "nowhere"):
        assert opened("compare", ["stale", "healthy"], a=name).multiselect(key="a").value == []


def test_pairs_are_read_when_asked_for_and_said(opened: Open) -> None:
    app = opened("compare", ["stale"], a_steps="4:6", b_steps="4:6", pair_by="sequence_id")
    assert "B − A" not in plain(app).split("Partners have")[1]
    assert "no difference in any pair" in plain(_paired(app))
    app = opened("compare", ["stale", "healthy"], pair_by="group_id")
    assert "no partner" in plain(_paired(app))


def test_the_page_does_not_wait_for_pairs_and_a_reading_can_be_cancelled(opened: Open) -> None:
    with jobs()._turn:  # another job of the server is at work
        app = opened("compare", ["stale"], pair_by="sequence_id")
        well(app.button(key="pair").click().run())
        assert "waiting for another job" in app.get("progress")[0].proto.text
        assert len(charts(app)) == 3 and "B − A" not in plain(app).split("Partners have")[1]
        app.button(key="cancel_job").click().run()
        for job in jobs()._jobs.values():
            job.wait(60)
        assert "was cancelled" in plain(app.run())
    assert "in any pair" in plain(_paired(app)) or "no partner" in plain(app)


def test_pairs_of_a_run_that_has_grown_are_read_again_when_asked_for(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in range(4):
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]], sequence_ids=["same"])
        collector.flush(timeout=60)
        app = _paired(opened("compare", [tmp_path / "run"], pair_by="sequence_id"))
        assert "pair" not in {button.key for button in app.button}
        collector.log(step=4, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]], sequence_ids=["same"])
        collector.flush(timeout=60)
        assert app.run().button(key="pair").label == "read again 5 steps of token rows"


def _paired(app: AppTest) -> AppTest:
    """The page once the job that reads its pairs is done."""
    app.button(key="pair").click().run()
    for job in jobs()._jobs.values():
        assert job.wait(60).state in ("done", "cancelled")
    return well(app.run())


def test_runs_whose_steps_lie_far_apart_are_laid_over_each_other(opened: Open, tmp_path: Path) -> None:
    for name, first in (("early", 0), ("late", 1_000_000)):
        with Collector(tmp_path / name) as collector:
            for step in range(first, first + 3):
                collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    far = opened("compare", [tmp_path / "early", tmp_path / "late"])
    assert "steps since the first of each range" in "".join(charts(far))
    near = opened("compare", ["stale", "healthy"])
    assert "steps since the first of each range" not in "".join(charts(near))


def test_several_seeds_a_side_are_a_mean_with_the_error_between_them(opened: Open, tmp_path: Path) -> None:
    for seed in range(4):
        recorded("trl_vllm_base" if seed % 2 else "trl_vllm_stale4", tmp_path / f"seed{seed}", name=f"s{seed}")
    folders = [tmp_path / f"seed{seed}" for seed in range(4)]
    app = opened("compare", folders, a=["seed0", "seed2"], b=["seed1", "seed3"])
    assert app.multiselect(key="a").value == ["seed0", "seed2"]
    assert "Errors come from the spread between the runs" in plain(app)


def test_a_run_of_a_side_that_cannot_be_read_lends_its_name_to_no_other(opened: Open, tmp_path: Path) -> None:
    for name in ("odd", "plain", "base"):
        recorded("trl_vllm_base", tmp_path / name, name=name)
    write_run_file(tmp_path / "odd", schema_version=SCHEMA_VERSION + 1)
    app = opened("compare", [tmp_path / "base", tmp_path / "odd", tmp_path / "plain"], a=["odd", "plain"], b=["base"])
    assert "A: plain" in plain(app) and any("odd is left out" in box.value for box in app.warning)
    drawn = next(chart for chart in charts(app) if "kl_k3" in chart)
    assert "plain" in drawn and "odd" not in drawn


def _one(a: tuple[float, float], b: tuple[float, float], metric: str = "kl_k3") -> Compared:
    return Compared(metric, Estimate(*a, 1), Estimate(*b, 1))


def test_the_sentence_says_how_much_and_how_sure() -> None:
    told = sentence([_one((0.0065, 0.0003), (0.0031, 0.0002))], "mismatch")
    assert told == (
        "B's KL is 2.1 times lower: 0.0031 ± 0.0002 nats/token against A's 0.0065 ± 0.0003 nats/token (z = −9.4)."
    )
    assert "cannot be told apart" in sentence([_one((0.0065, 0.003), (0.0061, 0.002))], "mismatch")
    assert "may be 49% higher" in sentence([_one((0.002, 0.0003), (0.00298, 0.0003))], "mismatch")
    assert "without standard errors" in sentence([_one((0.0065, math.nan), (0.0031, 0.0002))], "total")
    assert "have the same" in sentence([_one((0.5, 0.1), (0.5, 0.1))], "mismatch")
    copied = sentence([_one((0.0, 0.0), (0.002, 1e-5))], "mismatch")
    assert (
        copied.startswith("A's two sides are equal at every token") and "higher" not in copied and "z =" not in copied
    )
    assert "no metric of drift in common" in sentence([], "drift")


@given(st.floats(1e-8, 1e3), st.floats(1e-8, 1e3), st.floats(1e-9, 1e2), st.floats(1e-9, 1e2))
def test_the_sentence_never_says_less_where_there_is_more(a: float, b: float, one: float, other: float) -> None:
    told = sentence([_one((a, one), (b, other))], "mismatch")
    assert not (b > a and "lower" in told) and not (b < a and "higher" in told)


def test_tables_hold_bounds_counts_and_unknown_errors_apart() -> None:
    found = [
        _one((0.1, 0.001), (0.2, 0.001)),
        _one((0.5, math.nan), (0.7, math.nan), "ess_token"),
        _one((10, math.nan), (20, math.nan), "tokens"),
        _one((3.0, math.nan), (4.0, math.nan), "max_abs_log_ratio"),
        _one((1.0, 0.5), (1.1, 0.5), "abs_log_ratio"),
    ]
    says = table_of(found)["result"].to_list()
    assert says == ["differs", "only bounds known", "a count", "no standard error", "may be chance"]
    numbers = numbers_of(found)
    assert numbers["z"].null_count() == 3 and numbers["p_adjusted"].drop_nulls().len() == 2
    assert len(table_of([])) == len(numbers_of([])) == 0


def test_metrics_that_one_side_lacks_are_left_out() -> None:
    a, b = (
        pl.DataFrame({"mismatch/kl_k3": [1.0], "mismatch/ess_token": [None]}),
        pl.DataFrame({"mismatch/kl_k3": [2.0]}),
    )
    assert [one.metric for one in compared_metrics([a], [b], "mismatch")] == ["kl_k3"]
    assert compared_metrics([a], [pl.DataFrame()], "mismatch") == []


def test_settings_that_differ_between_or_within_sides_are_listed() -> None:
    def info(**config: object) -> dict[str, object]:
        return {"trainer": "t", "config": config}

    table = settings_table(
        [info(lr=1, seed=1, same=0), info(lr=1, seed=2, same=0)], [info(lr=2, seed=1, same=0, more=[1])]
    )
    assert table.rows() == [
        ("config.lr", "1", "2"),
        ("config.seed", "1 | 2", "1"),
        ("config.more", "unset", "[1]"),
    ]
    assert settings_table([info(lr=1)], [info(lr=1)]).is_empty()
    assert settings_table([info(lr="1e-6")], [info(lr=1e-06)]).is_empty(), "one number, however it is written"
    seeds = [info(lr=lr) for lr in (1e-6, 2e-6, 2.9999999999999997e-06, 4e-6)]
    assert settings_table(seeds, [info(lr="4e-06")]).rows() == [
        ("config.lr", "0.000001 to 0.000004, 4 values", "0.000004")
    ]


def test_code_and_versions_come_before_the_configuration() -> None:
    def info(at: str) -> dict[str, object]:
        known = {"code": {"verl": at}, "versions": {"trl": at}, "config": {"a": at}, "machine": {"device": at}}
        return {"trainer": at, **known}

    keys = ["code.verl", "trainer", "versions.trl", "config.a", "machine.device"]
    rows = settings_table([info("1")], [info("x" * 99)]).rows()
    assert (
        [key for key, _, _ in rows]
        == keys
        == [each.key for each in differences(settings(info("1")), settings(info("2")))]
    )
    words = few_settings(rows)
    assert words.startswith("code.verl 1 → xxx") and words.endswith("; and 2 more") and len(words) < 300


def test_commits_that_differ_are_named_at_the_top(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, commit in {"old": "0123456789ab", "new": "ba9876543210"}.items():
        write_run_file(
            shutil.copytree(made(runs, "one_step"), tmp_path / name), code={"verl": commit}, config={"lr": commit}
        )
    app = opener(tmp_path, monkeypatch)("compare", ["old", "new"])
    words = plain(app)
    named = "none of them is known to act on the gap: code.verl 0123456789ab → ba9876543210; config.lr"
    assert named in words and words.index(named) < words.index("Each value")
    assert not [each for each in app.dataframe if "setting" in each.value], "the line has named both"


def test_a_table_lists_the_settings_that_the_line_has_no_room_for(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"old": 1, "new": 2}.items():
        config: dict[str, object] = {key: value for key in ("lr", "seed", "beta", "clip")}
        config["layers"] = [*range(50 + value)]
        write_run_file(shutil.copytree(made(runs, "one_step"), tmp_path / name), config=config)
    app = opener(tmp_path, monkeypatch)("compare", ["old", "new"])
    assert "All 5 settings that differ" in [each.value for each in app.subheader]
    (listed,) = (each.value for each in app.dataframe if "setting" in each.value)
    assert len(listed) == 5
    layers = listed.set_index("setting").loc["config.layers"]
    assert (
        layers["A"].endswith(", 50]")
        and layers["B"].endswith(", 51]")
        and len(layers["A"]) <= 24 < len(layers["A whole"])
    )


def test_pairs_inplain() -> None:
    assert "Nothing can be paired by group_id" in paired_sentence(Paired(0, 3, 4, *[math.nan] * 4), "kl_k3", "group_id")
    assert "too few pairs" in paired_sentence(Paired(1, 0, 0, 1.0, 2.0, 1.0, math.nan), "kl_k3", "group_id")
    assert "beyond chance" in paired_sentence(Paired(9, 0, 0, 1.0, 2.0, 1.0, 0.1), "kl_k3", "prompt_text")


def _course(side: int, name: str, values: Sequence[float]) -> SideRun:
    frame = {"step": range(7, 7 + len(values)), "mismatch/kl_k3": values, "mismatch/kl_k3_se": [0.01] * len(values)}
    return SideRun(side, name, pl.DataFrame(frame))


def test_figures_hold_both_sides_and_survive_what_is_missing() -> None:
    tails: Any = survivals
    shares: Any = graded_shares
    lines_of: Any = courses
    metric = BY_NAME["kl_k3"]
    for theme in (LIGHT, DARK):
        figure: Any = lines_of(
            [_course(0, "a", [1.0, 2.0]), _course(1, "b", [3.0, math.nan])],
            metric,
            "mismatch",
            relative=True,
            theme=theme,
        )
        lines = [trace for trace in figure.data if trace.name]
        assert [line.line.dash for line in lines] == ["solid", "dash"] and list(lines[0].x) == [0.0, 1.0]
    assert "not available" in said_in(lines_of([_course(0, "a", [])], metric, "mismatch"))
    many: Any = lines_of([_course(side, "r", list(np.arange(1.0, 5000.0))) for side in (0, 0, 1)], metric, "mismatch")
    assert all(len(trace.x) <= 2000 for trace in many.data) and "A, 2 runs" in notes(many)
    one, none = histogram([0.1, -0.2, 3.0]), histogram([])
    assert (
        len(tails((one, one), "mismatch", "token").data) == 2 and len(tails((one, none), "total", "sequence").data) == 1
    )
    assert "neither side has a distribution" in said_in(tails((none, none), "drift", "token"))
    assert "neither side has a graded step" in said_in(shares([{}, {}]))
    assert sum(trace.x[1] for trace in shares([{"healthy": 1}, {"watch": 1, "act": 3}]).data) == pytest.approx(100)


def test_what_neither_side_has_comes_last_and_what_happened_is_told_by_side(runs: Path) -> None:
    frames = [
        pl.DataFrame({f"mismatch/{name}": [value] for name, value in (("non_finite", 0.0), ("kl_k3", size))})
        for size in (1.0, 2.0)
    ]
    assert [one.metric for one in compared_metrics(frames[:1], frames[1:], "mismatch")] == ["kl_k3", "non_finite"]
    shown = [View(str(made(runs, name)), 0, SERVED) for name in ("stale", "healthy")]
    a, b = (ComparedRun(letter, (letter,), (view,), "", Steps()) for letter, view in zip("AB", shown, strict=True))
    both, same = _events(a, b, True), _events(a, ComparedRun("B", ("A",), (shown[0],), "", Steps()), False)
    assert [side for side, _ in both] == ["A", "B"] and [side for side, _ in same] == [""]
    assert [len(events) for _, events in (*both, *same)] == [len(view.events()) for view in (*shown, shown[0])]
    assert min(events["step"].min() for _, events in both) == 0  # type: ignore[type-var]
    figure: Any = courses(
        [_course(0, "a", [1.0, 2.0]), _course(1, "b", [1.0, 2.0])], BY_NAME["kl_k3"], "mismatch", events=both
    )
    rows = [trace for trace in figure.data if trace.name == "events"]
    assert [{y for y in row.y if y > 0} for row in rows] == [{1.0}, {0.94}]
    told = [note.text for note in figure.layout.annotations]
    assert "A" in told and "B" in told and any(note.startswith("B: ") for note in told)


def test_foreign_names_of_runs_are_onlyplain() -> None:
    for text in hostile_texts():
        figure: Any = courses(
            [_course(0, text, [1.0, 2.0]), _course(1, text, [1.0, 2.0])], BY_NAME["kl_k3"], "mismatch"
        )
        for trace in figure.data:
            told = [trace.name or "", *(trace.customdata if trace.customdata is not None else [])]
            assert not any("<" in words or "%{" in words for words in told)


def test_a_narrow_window_shows_both_sides_whole(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_drawn, "is_narrow", lambda: True)
    table = opened("compare", ["stale"], a_steps="4:6", b_steps="4:6").dataframe[0]
    widths = {name: each.get("width") for name, each in json.loads(table.proto.columns).items()}
    assert sum(widths[name] for name in ("metric", "A", "B")) <= 380, "a window of 420 pixels has 390 for it"
    assert widths["A"] == widths["B"] >= 130, "0.00177 ± 0.000044 takes 120"
    assert "ESS, tokens" in list(table.value["metric"])
