"""Diagnoses of the server: no page waits, each question is answered once per revision, and memory is bounded."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.edge_runs import made

from ratioscope import Collector
from ratioscope.app.blocks import Paragraph
from ratioscope.app.dashboard.model import diagnoses as module
from ratioscope.app.dashboard.model.diagnoses import MOST, Diagnoses
from ratioscope.app.dashboard.model.view import view
from ratioscope.app.pages import answered
from ratioscope.app.pages.answered import Answered
from ratioscope.app.pages.view import View
from ratioscope.app.pages.worst_of_run import samples_in_lines


@pytest.fixture
def shown(runs: Path) -> View:
    return view(str(made(runs, "stale")))


def test_a_question_is_answered_once_for_a_revision(shown: View, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Diagnoses()
    assert served.of(shown) is None and served.of(shown) is None
    served.answer_all()
    known = served.of(shown)
    assert known is not None and known.result is not None and known.revision == shown.revision
    monkeypatch.setattr(module, "opened_run", None)
    served.answer_all()
    assert served.of(shown) is known and served.of(shown, "mismatch") is known, "the best gap is the mismatch"


def test_samples_that_cannot_be_read_have_the_reason_and_cost_no_diagnosis(
    shown: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: object, gap: str) -> None:
        raise OSError("the disk is gone")

    served = Diagnoses()
    monkeypatch.setattr(module, "samples_of", broken)
    served.of(shown)
    served.answer_all()
    known = served.of(shown)
    assert known is not None and known.result is not None and known.samples == ()
    said = next(samples_in_lines((), "mismatch", "", known.no_samples))
    assert isinstance(said, Paragraph) and said.text.endswith("because reading failed (OSError: the disk is gone)")


def test_equal_sides_have_no_worst_sample(tmp_path: Path) -> None:
    with Collector(tmp_path / "equal") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.0, -2.0]])
    served, equal = Diagnoses(), view(str(tmp_path / "equal"))
    served.of(equal)
    served.answer_all()
    known = served.of(equal)
    assert known is not None and known.samples == ()
    assert known.no_samples == "the two sides of mismatch are equal at every token row on record"


def test_an_older_diagnosis_is_shown_until_the_run_has_rested(shown: View, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Diagnoses()
    served.of(shown)
    served.answer_all()
    known = served.of(shown)
    grown = replace(shown, revision=shown.revision + 1)
    assert served.of(grown) is known and served._next() is None, "it rests"
    monkeypatch.setattr(module, "REST", 0.0)
    assert served.of(grown) is known and served._next() is not None
    served.answer_all()
    newer = served.of(grown)
    assert newer is not None and newer.revision == grown.revision


def test_another_run_at_the_same_path_has_no_diagnosis_yet(shown: View) -> None:
    served = Diagnoses()
    served.of(shown)
    served.answer_all()
    assert served.of(replace(shown, revision=shown.revision + (1 << 32))) is None


def test_answers_and_questions_are_bounded(shown: View, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Diagnoses()
    for last in range(MOST + 5):
        served.of(shown, steps=range(last))
    assert len(served._open) == MOST
    answered = Answered(shown.revision, None)
    monkeypatch.setattr(module, "_answered", lambda question, revision: answered)
    served.answer_all()
    for last in range(5):
        served.of(shown, steps=range(-1, last))
    served.answer_all()
    assert len(served._answered) == MOST and not served._open


def test_a_failure_is_an_answer(shown: View, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setattr(answered, "diagnosis_of", broken)
    served = Diagnoses()
    served.of(shown)
    served.answer_all()
    known = served.of(shown)
    assert known is not None and known.result is None and "nothing to divide" in known.reason
