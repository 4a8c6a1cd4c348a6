"""Numbers that a run cannot hold are refused where they are logged: no line is written that a reader would take for damage."""

from pathlib import Path
from typing import Any

import pytest
from support.pages_open import Open, well

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.pages.pages import PAGES
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.maintenance.verify import verify

MOST = (1 << 63) - 1
VALUES: dict[str, Any] = {"rollout_logprobs": [[-1.0]], "old_logprobs": [[-1.5]]}


@pytest.mark.parametrize("step", [MOST + 1, -MOST - 2, 1 << 70, MOST, -MOST - 1])
def test_a_step_of_more_than_64_bits_is_malformed_and_any_other_reads_well(tmp_path: Path, step: int) -> None:
    holds = -MOST - 1 <= step <= MOST
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **VALUES)
        collector.event("weight_sync", step)
        collector.log(step=step, **VALUES)
    assert collector.counts.reasons == ({} if holds else {"malformed": 1})
    run = open_run(tmp_path / "run")
    assert run.quarantined == () and verify(tmp_path / "run", deep=True).sound
    assert set(run.steps) == ({1, step} if holds else {1}) and len(run.sequences()) == 1 + holds
    assert run.conservation.dropped == 1 - holds and run.conservation.is_whole is holds
    assert len(run.events.filter(event="weight_sync")) == holds


def test_a_minibatch_that_no_column_holds_is_malformed(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **VALUES)
        collector.log(step=2, **VALUES, minibatch=1 << 40)
    assert collector.counts.reasons == {"malformed": 1}
    run = open_run(tmp_path / "run")
    assert run.steps == [1] and run.quarantined == () and run.conservation.dropped == 1
    assert verify(tmp_path / "run", deep=True).sound


@pytest.mark.parametrize("name", ["rollout_versions", "generation_step"])
def test_other_numbers_that_no_column_holds_are_unknown(tmp_path: Path, name: str) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **VALUES)
        collector.log(step=2, **{**VALUES, name: 1 << 70})
    assert collector.counts.reasons == {} and collector.counts.failures == {"columns": 1}
    run = open_run(tmp_path / "run")
    assert run.steps == [1, 2] and run.quarantined == () and run.conservation.dropped == 0
    assert verify(tmp_path / "run", deep=True).sound


@pytest.fixture(scope="module")
def far_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of steps as far apart as numbers of 64 bits allow, each far out of bounds."""
    root = tmp_path_factory.mktemp("far") / "run"
    with Collector(root) as collector:
        for step in (-MOST - 1, -5, 0, 3, MOST - 1, MOST):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0, -0.5]] * 3, old_logprobs=[[-1.5, -4.0, -0.1]] * 3)
    return root


PICKERS = ("samples", "tokens")
"""Pages with a number field for the step: a browser's holds 53 bits, and Streamlit refuses more."""


@pytest.mark.parametrize("page", [page.path for page in PAGES if page.path not in PICKERS])
def test_a_page_needs_no_room_for_the_steps_between_those_on_record(
    opened: Open, far_apart: Path, page: str, capfd: pytest.CaptureFixture[str]
) -> None:
    app = opened(page, far_apart)
    for steps in (f"{-MOST - 1}:{MOST}", "-3:", f":{MOST}"):
        app.query_params["steps"] = steps
        well(app.run())
    assert "overflow" not in capfd.readouterr().err


def test_a_report_needs_no_room_for_the_steps_between_those_on_record(far_apart: Path, tmp_path: Path) -> None:
    for name in ("report.html", "report.md", "report.json"):
        assert main(["report", str(far_apart), "--output", str(tmp_path / name)]) in (0, 1)
