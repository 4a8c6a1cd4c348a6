"""One answer to since when and how bad, on every face; and a clean bill that says what was not checked."""

import json
from pathlib import Path

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st
from support.edge_runs import made
from support.frames import frame_of

from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import markdown_report
from ratioscope.app.figures.html.cards import verdict_line
from ratioscope.app.pages.timeline import periods_of
from ratioscope.app.presentation.alert_words import not_graded
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.run import open_run
from ratioscope.metrics.grading.alerts import alerts
from ratioscope.metrics.grading.episodes import spells, worst_episode, worst_step
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import decided, grade_signals
from ratioscope.metrics.grading.signals import SIGNALS

ON_RECORD: dict[str, str] = {}
SURE = st.sampled_from([0.0004, 0.002, 0.0035, 0.012, 0.05, 0.2, 0.9])


def graded_of(level: list[float], error: float = 0.01, **columns: list[float]) -> pl.DataFrame:
    return grade_signals(frame_of({"kl_k3": level, "kl_k3_se": [k * error for k in level], **columns}))


def test_a_burst_that_is_over_is_told_as_over_and_what_is_now_beside_it() -> None:
    level = [0.002] * 10 + [0.3] * 4 + [0.002] * 10 + [0.02] * 5
    found = verdict(graded_of(level))
    assert (found.severity, found.since_step, found.until_step, found.peak_step) == (Severity.ACT, 10, 13, 10)
    assert found.now == Severity.WATCH and found.now_since == 24
    assert found.when == "steps 10 to 13, over; now watch since step 24", "of the same signal"
    assert found.when in found.sentence and found.when in verdict_line(found)
    ended = verdict(graded_of(level[:24]))
    assert ended.when == "steps 10 to 13, over; now healthy"
    assert verdict(graded_of(level[:14])).when == "since step 10"
    assert verdict(graded_of(level[:17])).until_step is None, "not calm for long enough"


def test_what_is_wrong_now_is_named_where_it_is_something_else() -> None:
    level = [0.0008] * 10 + [0.3] * 4 + [0.0008] * 10 + [0.006] * 5
    assert verdict(graded_of(level)).when.endswith("; now watch since step 24: the gap has grown since the run began")


def test_the_worst_of_equal_grades_is_the_largest_value_as_charts_and_scores_show_it() -> None:
    level, errors = [0.0004] * 3 + [0.31, 0.304, 0.5], [0.0] * 3 + [0.03, 0.001, 0.45]
    graded = grade_signals(frame_of({"kl_k3": level, "kl_k3_se": errors}))
    found = verdict(graded)
    assert found.peak_step == spells(graded)[-1].peak == alerts(graded)[0].peak_step == 3
    assert "0.31 nats/token" in found.evidence, "0.5 is not graded act, for it may be 0.08"


def test_a_single_bad_step_is_over_once_the_run_is_calm_again() -> None:
    assert verdict(graded_of([0.002] * 4 + [0.3] + [0.002] * 2)).when == "since step 4"
    assert verdict(graded_of([0.002] * 4 + [0.3] + [0.002] * 9)).when == "step 4, over; now healthy"


def test_the_worst_reading_of_a_spell_is_its_worst_whichever_signal_decided_its_steps() -> None:
    """At some steps the ratio to the floor decides, at others the size: ratios to thresholds do not compare."""
    level = [0.0002] * 3 + [0.0866, 0.12, 0.304, 0.0866]
    (_, act) = spells(graded_of(level, 0.1))
    assert (act.first, act.last, act.peak) == (3, 6, 5) and "0.304" in act.reading


@example([0.002, 0.0004, 0.002, 0.002])  # the first step is as high as the last, and stands alone
@given(st.lists(SURE, min_size=1, max_size=40))
def test_every_spell_and_the_verdict_tell_the_largest_gap_of_their_steps(level: list[float]) -> None:
    graded = graded_of(level)
    found, told = verdict(graded), spells(graded)
    for spell in told:
        within = level[spell.first : spell.last + 1]
        if spell.signal == "kl_k3":
            assert level[spell.peak] == max(within)
    bad = [spell for spell in told if spell.severity == found.severity.label]
    episode = worst_episode(graded, decided(graded))
    if episode is None:
        assert found.severity == Severity.HEALTHY and worst_step(graded) is None
    else:
        assert found.since_step == episode.first <= episode.peak <= episode.last and bad
        assert level[episode.peak] == max(level[episode.first : episode.last + 1])
        steps = decided(graded)
        assert str(steps.filter(step=episode.first)["severity"][0]) != "healthy"


def test_since_when_and_how_bad_are_the_same_on_every_face(runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    found, data = verdict_of(run), material(run)
    alert = next(
        a for a in events_and_alerts(run).alerts if (a.signal.name, a.gap) == (found.signal, found.gap) and a.is_open
    )
    assert (alert.first_step, alert.peak_step) == (found.since_step, found.peak_step)
    assert alert.reading in found.evidence
    assert data.verdict == found and found.sentence.count(f"since step {found.since_step}") == 1
    twin = json.loads(json_report(data))["verdict"]
    assert (twin["since_step"], twin["until_step"], twin["peak_step"]) == (found.since_step, None, found.peak_step)
    assert twin["now"] == found.now.label if found.now is not None else False
    for text in (verdict_line(found), markdown_report(data)):
        assert f"since step {found.since_step}" in text and f"step {found.peak_step}" in text
    worst = next(
        s
        for s in data.view.of(periods_of, data.view)
        if s.severity == found.severity.label and s.first <= alert.peak_step <= s.last
    )
    assert worst.peak == alert.peak_step or worst.signal != found.signal


def test_a_clean_bill_says_what_was_not_checked_and_how_to_record_it(runs: Path) -> None:
    run = open_run(made(runs, "bypass"))
    found = verdict_of(run)
    assert found.severity == Severity.HEALTHY and found.confidence == "medium"
    absent = {check.name: check.absent for check in found.checks if not check.steps}
    assert {"mismatch", "drift", "staleness", "surprisal"} <= set(absent)
    assert "old_logprobs is not on record" in absent["mismatch"] and "log entropy" in absent["surprisal"]
    assert "log trainer_version and rollout_versions" in absent["staleness"]
    for face in (found.sentence, verdict_line(found), markdown_report(material(run)).replace("\\", "")):
        assert "Not checked: " in face and "log trainer_version and rollout_versions" in face
    assert "precision" not in found.meaning and "No check that ran" in found.meaning


CALM = {
    "non_finite": 0.0, "positive_logprobs": 0.0, "logprob_correlation": 0.99, "shift_correlation_+1": 0.2,
    "mean_weight_token": 1.0,
    "mean_weight_token_z": 0.0, "surprisal_gap": 0.0, "surprisal_gap_z": 0.0, "ess_token": 0.99, "ess_token_se": 0.001,
    "ess_sequence": 0.9, "ess_sequence_se": 0.01, "share_outside_0.5_2": 0.0, "share_outside_0.5_2_se": 0.0,
    "zero_weight_tokens": 0.0,
}  # fmt: skip


def all_checks(level: list[float], error: float = 0.01, without: tuple[str, ...] = ()) -> pl.DataFrame:
    """Grades of a run of all gaps on which every check ran, but for what reads these metrics."""
    one = frame_of({name: [value] * len(level) for name, value in CALM.items() if name not in without})
    one = one.with_columns(
        pl.Series("mismatch/kl_k3", level), pl.Series("mismatch/kl_k3_se", [k * error for k in level])
    )
    clip = [pl.lit(0.0).alias(f"drift/share_outside_0.8_1.2{end}") for end in ("", "_se")]
    own = one.drop("step")
    others = [own.rename({name: name.replace("mismatch", gap) for name in own.columns}) for gap in ("total", "drift")]
    return grade_signals(pl.concat([one, *others], how="horizontal").with_columns(*clip))


def test_confidence_in_health_falls_with_what_was_not_checked() -> None:
    level = [0.002] * 4
    assert verdict(all_checks(level), {}).confidence == "high"
    assert verdict(all_checks(level), {}).checked == "17 of 17 checks ran."
    found = verdict(
        all_checks(level, without=("surprisal_gap_z",)), {"surprisal gap": "because y", "staleness": "because x"}
    )
    assert found.confidence == "medium"
    assert found.checked == "15 of 17 checks ran. Not checked: surprisal, because y · staleness, because x."
    part = all_checks(level).filter((pl.col("signal") != "mean_weight") | (pl.col("step") == 2))
    assert verdict(part, {}).checked == "17 of 17 checks ran. Checked in part: mean_weight on 1 of 4 steps."
    few = verdict(graded_of(level), {"staleness": "because x", "total": "because y"})
    assert few.confidence == "low" and "total, because y" in few.checked


def test_a_check_that_one_gap_lacks_is_not_made_and_says_so_with_the_reason_of_its_metric() -> None:
    """The trainer's entropy is that of `current`: the surprisal of the total is known, that of the mismatch is not."""
    part = all_checks([0.002] * 4).filter((pl.col("signal") != "surprisal") | (pl.col("gap") == "total"))
    found = verdict(part, {})
    assert found.checked.startswith(
        "17 of 18 checks ran. Not checked: surprisal of mismatch, because the entropy of the later"
    )
    assert found.confidence == "high" and found.remedy == "Record what was not checked."
    (line,) = not_graded(part, found)
    assert "(surprisal of mismatch), because the entropy of the later policy is not on record" in line


def test_a_step_beyond_a_bound_by_less_than_its_uncertainty_is_said_to_be() -> None:
    found = verdict(all_checks([0.004] * 5 + [0.0225], 0.45), {})
    assert found.severity == Severity.HEALTHY and found.confidence == "medium"
    assert "watch begins at 0.01" in found.evidence and "the lower end of the 95% interval is graded" in found.evidence
    assert "which is 0.007 there" in found.evidence and "1 of 6 steps exceed the bound" in found.evidence
    assert verdict(all_checks([0.0225] * 6, 0.9), {}).confidence == "low"
    assert verdict(all_checks([0.0225] * 6, 0.45), {}).severity == Severity.WATCH, "together they prove it"


def test_every_signal_reads_a_metric_that_exists() -> None:
    from ratioscope.metrics.definitions.registry import METRICS

    assert {signal.reads for signal in SIGNALS} <= {metric.name for metric in METRICS}


def test_nothing_was_checked_of_a_run_without_both_sides() -> None:
    found = verdict(graded_of([])[:0], {"mismatch": "because old_logprobs is not on record"})
    assert found.confidence == "low" and "old_logprobs is not on record" in found.checked


def test_zero_is_said_as_none_and_not_as_a_share_of_nothing() -> None:
    found = verdict(grade_signals(frame_of({"tokens": [40.0] * 3, "non_finite": [0.0] * 3})))
    assert found.evidence == "mismatch: no NaN and no infinity in any step."
