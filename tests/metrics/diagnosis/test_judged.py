"""The verdict in the light of the diagnosis: nothing is healthy whose gap has a cause that is known for sure."""

from dataclasses import replace
from typing import Literal

import pytest
from support.frames import frame_of

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import grade_signals

NOTHING = Diagnosis((), (), (), 0.0002, 0.0002, None, True, 1000, 10)
HEALTHY = verdict(grade_signals(frame_of({"kl_k3": [0.0002] * 4, "kl_k3_se": [0.00001] * 4})))
ACT = verdict(grade_signals(frame_of({"kl_k3": [0.5] * 4, "kl_k3_se": [0.001] * 4})))


def found(confidence: Literal["high", "medium", "low"]) -> Diagnosis:
    return replace(NOTHING, likely=(Likely(CAUSE["filler_values"], "x", {}, None, 0.0, confidence),))


def test_a_cause_with_high_confidence_leaves_no_run_healthy() -> None:
    assert HEALTHY.is_healthy and judged(HEALTHY, NOTHING) == judged(HEALTHY, None) == HEALTHY
    raised = judged(HEALTHY, found("high"))
    assert raised.severity == raised.now == Severity.WATCH and raised.word == "watch" and not raised.is_healthy
    assert CAUSE["filler_values"].title in raised.title and raised.remedy == CAUSE["filler_values"].remedy


@pytest.mark.parametrize("confidence", ["medium", "low"])
def test_a_cause_that_is_not_sure_changes_no_verdict(confidence: Literal["medium", "low"]) -> None:
    assert judged(HEALTHY, found(confidence)) == HEALTHY


def test_a_fault_keeps_its_own_words() -> None:
    assert judged(ACT, found("high")) == ACT
