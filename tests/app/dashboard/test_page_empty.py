"""What a page says of a run that holds nothing yet: the lines of the reader's trainer, as the README and the docs have them."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from support.pages_open import Open, codes, plain
from support.paths import ROOT
from support.run_folders import FakeWriter, write_run_file

from ratioscope.app.pages.pages import PAGES
from ratioscope.app.presentation.trainers import OTHER, TITLES, chosen_lines, title_of
from ratioscope.collectors.adapter import Adapter
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.feature_requirements import why_no_gap
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import open_run

README = (ROOT / "README.md").read_text()


def code(app: AppTest) -> list[str]:
    return [block for block in codes(app) if "ratioscope" in block.lower()]


def begun(folder: Path, trainer: str | None) -> Path:
    """A run that a trainer of this name has begun and recorded nothing into."""
    write_run_file(folder, trainer=trainer)
    FakeWriter(folder).open()
    return folder


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_a_run_shows_the_lines_of_its_own_trainer(opened: Open, tmp_path: Path, adapter: Adapter) -> None:
    app = opened("overview", begun(tmp_path / "run", f"{adapter.name} 1.2.3"))
    assert app.selectbox(key="attach_to").value == adapter.title
    shown = "\n".join(code(app)).replace(str(tmp_path / "run"), "runs/tonight")
    told = [lines for _, lines in chosen_lines(adapter.title, "runs/tonight")]
    assert shown == "\n".join(told) and told[0] in (ROOT / "docs" / "trainers" / f"{adapter.name}.md").read_text()


@pytest.mark.parametrize("trainer", [None, "", "nobody's trainer", 7])
def test_where_nothing_tells_the_trainer_the_reader_chooses(opened: Open, tmp_path: Path, trainer: str | None) -> None:
    app = opened("alerts", begun(tmp_path / "run", trainer))
    assert app.selectbox(key="attach_to").value == "TRL" and "ratioscope.attach(trainer" in code(app)[0]
    app.selectbox(key="attach_to").select("SkyRL").run()
    assert "skyrl.train" in code(app)[0] and app.selectbox(key="attach_to").options == [*TITLES, OTHER]
    assert "skyrl.train" in code(opened("alerts", tmp_path / "run", attach_to="SkyRL"))[0]


def test_the_lines_are_those_of_the_readme() -> None:
    assert chosen_lines("TRL", "runs/tonight")[0][1].split("  #")[0] in README
    ((_, lines),) = chosen_lines(OTHER, "runs/tonight")
    assert lines.removeprefix("import ratioscope\n\n") in README


def test_the_lines_for_any_other_trainer_record_a_run(tmp_path: Path) -> None:
    ((_, lines),) = chosen_lines(OTHER, str(tmp_path / "a run"))
    known: dict[str, object] = {"step": 3, "rollout": [[-1.0]], "old": [[-1.1]], "current": [[-1.2]], "mask": [[True]]}
    exec(lines + "\ncollector.close()", known)
    assert open_run(tmp_path / "a run").steps == [3]


LOGGED: dict[str, tuple[list[dict[str, list[list[float]]]], str]] = {
    "one side": ([{"rollout_logprobs": [[-1.0]]}], "Only the log-probs of rollout are on record. Pass old_logprobs="),
    "the other side": ([{"old_logprobs": [[-1.0]]}], "Only the log-probs of old are on record. Pass rollout_logprobs="),
    "sides that never meet": (
        [{"rollout_logprobs": [[-1.0]]}, {"old_logprobs": [[-1.0]]}],
        "both rollout and old: rollout has “<b>0</b>” at step 4, old has “<b>1</b>” at step 4. Log both under the same step",
    ),
    "a mask that is false everywhere": (
        [{"rollout_logprobs": [[-1.0]], "old_logprobs": [[-2.0]], "mask": [[0.0]]}],
        "Every sequence is empty, or its mask is false at all of its tokens. Pass a mask= that is true",
    ),
    "nothing": ([], "No step is on record."),
}


@pytest.mark.parametrize("name", LOGGED)
def test_a_run_without_a_gap_says_what_it_holds_and_what_it_lacks(opened: Open, tmp_path: Path, name: str) -> None:
    logged, wanted = LOGGED[name]
    with Collector(tmp_path / "run") as collector:
        for number, sides in enumerate(logged):
            collector.log(step=4, sequence_ids=[f"<b>{number}</b>"], **sides)  # type: ignore[arg-type]
    for page in (
        PAGES if name == "one side" else PAGES[:1]
    ):  # the reason is the run's, and which pages give it the page's
        told = plain(opened(page.path, tmp_path / "run"))
        assert wanted in told or page.about == "runs", page.path
        assert ("The run has ended." in told) == (page.about != "runs" and not page.shows_empty)
    assert "Writers" in plain(opened("record", tmp_path / "run"))
    run = open_run(tmp_path / "run")
    found = verdict_of(run)
    assert (
        found.word == "not measured" and found.measured.lower() == why_no_gap(run).lower() and wanted in found.measured
    )
    assert found.brief.startswith("not measured: ")
    assert not any(check.name in run.gaps and "not on record" in check.absent for check in found.checks)
    with pytest.raises(SourceError) as refused:
        diagnosis_of(run)
    assert str(refused.value) == why_no_gap(run)


def test_a_run_that_is_still_written_is_waited_for(opened: Open, tmp_path: Path) -> None:
    assert "This page updates by itself" in plain(opened("overview", begun(tmp_path / "run", None)))


def test_a_folder_without_runs_shows_where_they_would_lie(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    app = opened("overview", tmp_path / "runs")
    assert any(str(tmp_path / "runs" / "my-run") in block for block in code(app))


def test_what_run_json_says_of_a_trainer_is_looked_up_whatever_it_is() -> None:
    assert title_of("nemo-rl 2026") == "NeMo-RL" and title_of("SkyRL") == "SkyRL"
    assert [title_of(odd) for odd in (None, 3, "", "  ", ["trl"], "<b>")] == [""] * 6
