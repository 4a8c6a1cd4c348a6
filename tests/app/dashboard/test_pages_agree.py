"""Pages on one run do not contradict each other: a grade without an alert, and a cause in a run within its bounds."""

from pathlib import Path

import numpy as np
import pytest
from support.edge_runs import made
from support.pages_open import Open, html, plain, well
from support.pages_read import Read
from support.paths import ROOT

from ratioscope.app import cli
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.documents.document import files
from ratioscope.app.documents.material import material
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

STALE = ROOT / "sample_data" / "runs" / "trl-vllm-stale"
NO_ALERT = "No alert, although step 3 is graded ■ act: an alert opens after 2 graded steps in a row out of bounds"


@pytest.fixture(scope="module")
def bad_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A single step whose policies are far apart: graded act, and too short for an alert."""
    folder, random = tmp_path_factory.mktemp("bad_step") / "run", np.random.default_rng(1)
    with Collector(folder) as collector:
        rollout = random.uniform(-6, -0.5, (32, 20))
        old = (rollout + random.normal(-0.18, 0.6, rollout.shape)).clip(-12, -1e-4)
        collector.log(step=3, rollout_logprobs=rollout.tolist(), old_logprobs=old.tolist())
    return folder


@pytest.fixture(scope="module")
def few_fillers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Healthy steps, but 3 of 1,000 of the sampler's log-probs are a filler, 0."""
    folder, random = tmp_path_factory.mktemp("few_fillers") / "run", np.random.default_rng(0)
    with Collector(folder) as collector:
        for step in range(20):
            rollout = random.normal(-1.0, 0.6, (32, 60)).clip(-8, -1e-3)
            old = (rollout + random.normal(0, 0.02, rollout.shape)).clip(-8, -1e-4)
            filled = np.where(random.random(rollout.shape) < 0.003, 0.0, rollout)
            collector.log(step=step, rollout_logprobs=filled.tolist(), old_logprobs=old.tolist())
    return folder


def test_a_step_at_act_without_an_alert_says_why_on_each_page(read: Read, bad_step: Path) -> None:
    assert NO_ALERT in plain(read("overview", bad_step))
    assert NO_ALERT in plain(read("alerts", bad_step))
    assert NO_ALERT in files(material(open_run(bad_step)))["alerts.html"]
    strict = plain(read("alerts", bad_step, open_after="1"))
    assert "■ act" in strict and NO_ALERT in strict and "With these rules: " in strict


def test_a_single_step_has_the_same_advice_on_corrections_on_the_page_and_in_the_terminal(
    opened: Open, bad_step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advised = "None of these helps for sure"
    assert advised in plain(opened("fix", bad_step))
    assert cli.main(["corrections", str(bad_step)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{advised} · low confidence" in told and "but 1 step is too few" in told


def test_the_best_correction_is_named_in_the_terminal(capsys: pytest.CaptureFixture[str], few_fillers: Path) -> None:
    assert cli.main(["corrections", str(few_fillers)]) == 0
    assert "No correction is needed · " in capsys.readouterr().out


def test_a_cause_that_is_known_for_sure_leaves_no_run_healthy(opened: Open, few_fillers: Path) -> None:
    app = opened("overview", few_fillers)
    diagnoses().answer_all()
    first = html(well(app.run()))
    assert "<b>▲ watch</b><span>A constant stands in place" in first and "● healthy" not in first
    named = "Likely cause: A constant stands in place of missing log-probs"
    for page in ("alerts", "fix"):
        assert named in plain(opened(page, few_fillers)).replace("**", "")


OWN = "The run's own truncate token at 3 clips 0.559% of the tokens and lowers the gradient's squared error by 39.3%; "


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            STALE,
            (
                OWN,
                "With a sync every 2 updates the mean K3 would be 0.002035 ± 0.000064, and ",
                "With a lag of at most 0 updates ",
            ),
        ),
        (
            "holes",
            (
                "With 1 update per batch the mean K2 of drift would be ",
                "4 updates per batch: not available, because no token",
            ),
        ),
        (
            "stale",
            (
                "Truncate token at 2 helps most",
                "The gradient's squared error is",
                "correction settings are on record; record them",
            ),
        ),
        ("long_response", ("that a sync brings the lag back to 1, and that each batch adds 1 to it",)),
        (
            "healthy",
            (
                "No correction is needed",
                "Sync periods and lag bounds: not available, because every token has lag 0: no other",
            ),
        ),
        (
            "bypass",
            ("No correction is needed", "In this run no signal is out of its bounds. The best of those compared"),
        ),
        ("one_step", ("not available, because weight versions were not recorded; pass trainer_version=",)),
    ],
)
def test_corrections_say_the_same_on_the_page_and_in_the_terminal(
    read: Read, runs: Path, capsys: pytest.CaptureFixture[str], name: str | Path, said: tuple[str, ...]
) -> None:
    lines = plain(read("fix", name, updates="true")).replace("**", "").split("\n")
    assert cli.main(["corrections", str(name if isinstance(name, Path) else made(runs, name))]) == 0
    told = capsys.readouterr().out
    for words in said:
        (line,) = (line.removeprefix("#### ") for line in lines if words in line)
        assert line in told
