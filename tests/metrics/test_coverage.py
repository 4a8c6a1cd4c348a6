"""The coverage of a question: green needs that all of it was measured."""

from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from support.frames import frame_of

from ratioscope.metrics.grading.coverage import LEAST_SHARE, Absence, Coverage, Known, Offered, coverage
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import decided, grade_signals

CALM = {"kl_k3": [0.0002] * 4, "kl_k3_se": [0.00001] * 4}


def offered(*absences: Absence, each: float = 100, steps: int = 10, tokens: float = 50_000) -> Offered:
    return Offered(dict.fromkeys(range(steps), each), tokens, absences)


def test_a_tenth_of_the_sequences_may_be_missing_if_it_is_a_random_part() -> None:
    few = Absence("dropped", dict.fromkeys(range(10), 10.0))
    assert coverage(offered(few)) == Coverage(Known.MEASURED, 1000 / 1100)
    many = coverage(offered(Absence("dropped (queue full)", dict.fromkeys(range(10), 20.0))))
    assert many.known == Known.PARTLY and many.word == "partly measured"
    assert "83.3% of the offered sequences were measured: 200 dropped (queue full)" in many.why
    assert coverage(offered(Absence("dropped", dict.fromkeys(range(10), 20.0))), least=0.8).is_measured


def test_a_step_that_is_missing_whole_is_told() -> None:
    found = coverage(offered(Absence("dropped", {3: 100.0}), steps=100))
    assert found.known == Known.PARTLY and "Less than 90% were measured at step 3." in found.why
    assert found.share is not None and found.share > LEAST_SHARE


def test_a_step_of_which_some_may_be_copies_is_told_if_they_are_most_of_it() -> None:
    for share, is_measured in ((0.4, True), (0.6, False)):
        possible = Absence("equal on both sides", {3: 100.0 * share / (1 - share)}, is_possible=True)
        assert coverage(offered(possible, steps=100)).is_measured is is_measured
    everywhere = Absence("equal on both sides", dict.fromkeys(range(10), 20.0), is_possible=True)
    assert not coverage(offered(everywhere)).is_measured, "a sixth of the run"
    lost = Absence("dropped", {3: 30.0})
    assert not coverage(offered(replace(everywhere, by_step={3: 5.0}), lost, steps=100)).is_measured


def test_long_sequences_that_are_missing_are_told_however_few_they_are() -> None:
    lost = Absence("dropped (too long)", {step: 1.0 for step in range(10)}, tokens=10 * 400)
    found = coverage(offered(lost))
    assert found.known == Known.PARTLY and "are longer: 400 tokens each against 50" in found.why
    assert coverage(offered(Absence("dropped", {0: 5.0}, tokens=5 * 55))).is_measured


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1e6)), max_size=8), st.floats(0, 1e6), st.floats(0, 1))
def test_the_share_never_exceeds_one_and_falls_with_what_is_missing(
    placed: list[tuple[int, float]], unplaced: float, least: float
) -> None:
    absences = [Absence("dropped", {step: number}) for step, number in placed]
    before, after = offered(*absences), offered(*absences, Absence("lost", {}, unplaced))
    assert before.share is not None and after.share is not None
    assert 0 <= after.share <= before.share <= 1
    assert set(before.thin_steps(least)) == set(after.thin_steps(least))
    found = coverage(after, least)
    assert found.is_measured == (not found.why) and found.is_measured == (not found.remedy)
    assert not found.is_measured or after.share >= least


def test_only_a_measured_run_is_healthy() -> None:
    graded = grade_signals(frame_of(CALM))
    assert verdict(graded).is_healthy and verdict(graded).word == "healthy"
    for known in (Known.PARTLY, Known.COPY, Known.NOT_MEASURED):
        found = verdict(graded, coverage=Coverage(known, 0.5, "Half is missing.", "Mend it."))
        assert found.word in ("partly measured", "not measured") and not found.is_healthy
        assert found.confidence == "low" and "Half is missing." in found.brief and found.remedy == "Mend it."


def test_a_fault_keeps_its_word_and_says_what_it_rests_on() -> None:
    ill = grade_signals(frame_of({"kl_k3": [0.5] * 4, "kl_k3_se": [0.001] * 4}))
    found = verdict(ill, coverage=Coverage(Known.PARTLY, 0.5, "Half is missing.", "Mend it."))
    assert found.word == "act" and "Half is missing." in found.brief


def test_the_drift_alone_makes_nothing_healthy() -> None:
    frame = frame_of(CALM)
    drift = grade_signals(frame.rename({name: name.replace("mismatch", "drift") for name in frame.columns}))
    assert len(drift) and decided(drift).is_empty()
    assert verdict(drift).word == "not measured"


def test_a_step_of_which_too_little_is_known_has_no_grade_but_a_fault() -> None:
    graded = grade_signals(frame_of({"kl_k3": [0.0002, 0.5, 0.0002], "kl_k3_se": [0.00001] * 3}))
    unknown = graded.with_columns(known=pl.lit(False))
    assert decided(unknown)["step"].to_list() == [1]
