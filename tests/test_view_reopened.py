"""More runs than are kept open at once: one that was let go and opened again shows what it has become meanwhile."""

from pathlib import Path

from statistics_runs import write_statistics_run

from ratioscope.app import view as views
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
