"""What a page is asked to show: ranges of steps, parts of the tokens."""

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from support.edge_runs import made

from ratioscope.app.dashboard.model.view import view
from ratioscope.app.pages.scope import Scope, Steps, steps_of
from ratioscope.errors import ConfigError
from ratioscope.ingest.rows.part import part_of
from ratioscope.ingest.run import open_run

RECORDED = [*range(3, 40, 2)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", RECORDED),
        (":", RECORDED),
        ("7:11", [7, 9, 11]),
        ("35:", [35, 37, 39]),
        (":5", [3, 5]),
        ("-2:", [37, 39]),
        ("-99:", RECORDED),
        ("9", [9]),
        ("100:", []),
    ],
)
def test_a_range_of_steps_is_what_was_typed(text: str, shown: list[int]) -> None:
    chosen = steps_of(text).of(RECORDED)
    assert [step for step in RECORDED if step in chosen] == shown


@pytest.mark.parametrize("text", ["x", "1:y", "5:3", "1:2:3"])
def test_what_is_no_range_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="steps"):
        steps_of(text)


def test_a_run_without_steps_has_an_empty_range() -> None:
    assert list(Steps(-5).of([])) == []


def test_metrics_of_a_range_are_those_of_a_run_that_has_only_these_steps(runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    some = range(run.steps[2], run.steps[5])
    by_step = run.metrics()
    assert_frame_equal(run.metrics(steps=some), by_step.filter(by_step["step"].is_in(list(some))))
    assert run.metrics((), steps=some)["mismatch/tokens"].sum() == run.metrics(steps=some)["mismatch/tokens"].sum()
    assert_frame_equal(run.metrics("position", steps=range(run.steps[0], run.steps[-1] + 1)), run.metrics("position"))
    assert (
        run.metrics("length_decile", steps=some)["mismatch/tokens"].sum()
        == run.metrics((), steps=some)["mismatch/tokens"].sum()
    )


def test_the_course_of_a_part_is_the_slice_over_the_steps(runs: Path) -> None:
    shown = view(str(made(runs, "stale")))
    course = Scope(shown, "mismatch", Steps(-3), part_of("position=4")).course()
    whole = shown.metrics(("step", "position"))
    assert course["step"].to_list() == shown.run.steps[-3:]
    assert (
        course["mismatch/tokens"].to_list() == whole.filter(whole["position"] == "4")["mismatch/tokens"].to_list()[-3:]
    )
    assert Scope(shown, "mismatch", only=part_of("position=no such")).course().is_empty()
