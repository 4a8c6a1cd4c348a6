"""The statements beside the verdict: now, the worst, the trend, the cause and the checks."""

from dataclasses import replace

from ratioscope.app.presentation.statements import statements
from ratioscope.metrics.diagnosis.doubling import Doubling
from ratioscope.metrics.grading.coverage import MEASURED
from ratioscope.metrics.grading.finding import Check, Finding, Severity

HEALTHY = Finding(
    Severity.HEALTHY, "no signal is out of its bounds", "kl_k3", "mismatch", None, "high", "", "", "", MEASURED
)
BURST = replace(
    HEALTHY,
    severity=Severity.ACT,
    since_step=1500,
    until_step=1519,
    peak_step=1507,
    now=Severity.WATCH,
    now_since=1880,
)


def _words(finding: Finding, growing: Doubling | None = None) -> dict[str, str]:
    return {statement.name: statement.words for statement in statements(finding, growing)}


def test_what_is_over_is_told_apart_from_now() -> None:
    told = _words(BURST)
    assert told["now"] == "▲ watch since step 1880"
    assert told["worst"] == "■ act at step 1507, out of bounds at steps 1500 to 1519, over"
    lone = _words(replace(BURST, until_step=1500, peak_step=1500, now=Severity.HEALTHY, now_since=None))
    assert lone["worst"] == "■ act at step 1500, over" and lone["now"] == "● healthy"
    still = _words(replace(BURST, until_step=None, now=Severity.ACT, now_since=1500))
    assert still["worst"] == "■ act at step 1507"


def test_a_healthy_run_has_nothing_worst_and_names_what_was_not_checked() -> None:
    because = "because the run has no versions"
    absent = tuple(Check(name, 0, because) for name in ("staleness", "surprisal", "drift", "total"))
    told = _words(replace(HEALTHY, checks=(Check("kl_k3", 60), *absent)))
    assert "now" not in told and "worst" not in told
    assert told["checks"] == "1 of 5 checks ran; not checked: staleness, surprisal, drift and 1 more"
    last = list(statements(replace(HEALTHY, checks=absent)))[-1]
    assert last.page == "record" and because in last.help


def test_growth_is_told_with_few_digits() -> None:
    assert _words(HEALTHY, Doubling(0, 2000, 303.4, 2.2))["trend"] == "doubling every 300 steps since step 0"
    assert _words(HEALTHY, Doubling(30, 80, 6.84, 0.3))["trend"] == "doubling every 6.8 steps since step 30"
    assert _words(HEALTHY, Doubling(30, 80, 96.4, 0.3))["trend"] == "doubling every 96 steps since step 30"


def test_the_peak_leads_to_its_sequences() -> None:
    worst = next(statement for statement in statements(BURST) if statement.name == "worst")
    assert worst.page == "samples" and worst.choices == {"step": 1507}


def test_the_begin_of_now_is_that_of_the_episode_which_is_open() -> None:
    other = replace(BURST, until_step=None, now=Severity.ACT, now_since=1507)
    assert _words(other)["now"] == "■ act since step 1500"
