"""Runs that are opened again: more than are kept open at once, and one whose folder holds another run by now."""

import shutil
from pathlib import Path

from support.statistics_runs import write_statistics_run

from ratioscope.app.dashboard.model import view as views
from ratioscope.app.pages.view import View, figure_request
from ratioscope.collectors.collector import Collector


def test_a_run_that_is_opened_again_is_not_shown_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Collector(path) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    before = views.view(str(path))
    assert len(before.metrics()) == 1
    for number in range(17):  # one more than are kept open
        write_statistics_run(tmp_path / f"other{number}", 2)
        views.view(str(tmp_path / f"other{number}"))
    with Collector(path) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    after = views.view(str(path))
    assert len(after.metrics()) == 2 and after.revision != before.revision


def test_a_run_recorded_anew_in_the_same_folder_is_not_mixed_with_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for tokens in (2, 3):
        shutil.rmtree(path, ignore_errors=True)
        with Collector(path) as collector:
            collector.log(step=0, rollout_logprobs=[[-1.0] * tokens], old_logprobs=[[-1.1] * tokens])
        shown = views.view(str(path))
        assert shown.metrics()["mismatch/tokens"].to_list() == [tokens]
    shutil.rmtree(path)
    assert views.view(str(path)) == shown, "nothing lies there: what was read is shown on"


MADE: list[int] = []


def doubled(number: int) -> int:
    MADE.append(number)
    return 2 * number


def test_a_figure_is_made_once_per_revision_and_needs_no_run(tmp_path: Path) -> None:
    MADE.clear()
    path = tmp_path / "run"
    write_statistics_run(path, 2)
    shown = views.view(str(path))
    assert [shown.figure(doubled, number) for number in (1, 2, 1)] == [2, 4, 2] and MADE == [1, 2]
    make, arguments = figure_request(doubled, 2)
    assert shown.of(make, *arguments) == 4 and MADE == [1, 2], "a request made early is what the page finds"
    assert View(shown.path, shown.revision + 1, views.SERVED).figure(doubled, 1) == 2 and MADE == [1, 2, 1]
