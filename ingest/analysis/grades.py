"""The grades and the verdict of a run, computed once for the command line, the pages and the report, so that they agree."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.frame import why_absent
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.floor import FLOOR, Floors, at_lag_zero, first_steps, floors
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import decided, grade_signals, with_readings
from ratioscope.metrics.grading.signals import SIGNALS, Signal

from .comparability import greedy_words, scorers_of
from .copies import EQUAL, ZEROS, copied_steps, is_placeholder, judged_first
from .coverage import coverage_of, covered
from .feature_requirements import missing_of

if TYPE_CHECKING:
    from ..run import Run

SURPRISAL = "surprisal"
"""The signal that compares tokens with what the policy draws."""
OF_SCORERS = "Change one side (its weights, its dtype, its template or its prompt), and run `ratioscope parity` again."
"""The remedy of a gap between two scorers, which have no training that could be broken down or record more."""


def floors_of(run: "Run") -> Floors:
    """The floor of each gap: its value when the run began. Reads the lags of the run's first steps."""
    frame = run.metrics(by=("step",))
    steps = first_steps(frame)
    return floors(frame, at_lag_zero(run.metrics(by=("step", "lag"), steps=steps, names=FLOOR)) if steps else None)


def step_grades(run: "Run", graded: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per graded step: severity and the signal, gap, value, floor and reading that decided it.

    graded: its `signal_grades`.
    """
    return with_readings(decided(signal_grades(run) if graded is None else graded))


def signal_grades(run: "Run", floors: Floors | None = None, least_share: float | None = None) -> pl.DataFrame:
    """One row per step, signal and gap for which the signal has a value. Muted signals and copied gaps have none."""
    graded = grade_signals(run.metrics(by=("step",)), floors_of(run) if floors is None else floors, _signals(run))
    for gap, steps in copied_steps(run).items():
        graded = graded.filter((pl.col("gap") != gap) | ~pl.col("step").is_in(list(steps)))
    unknown = covered(run, run.rules.least_share if least_share is None else least_share).unknown_steps
    return graded.with_columns(known=~pl.col("step").is_in(list(unknown))) if unknown else graded


def whole_run_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per signal and gap, graded on all steps together. The column `step` is 0 and means nothing."""
    whole = run.metrics(by=()).with_columns(step=pl.lit(0, pl.Int64))
    return grade_signals(whole, floors_of(run) if floors is None else floors, _signals(run))


def _signals(run: "Run") -> tuple[Signal, ...]:
    """The signals of the run's rules, without the surprisal of tokens that are no draws."""
    greedy = greedy_words(run.info)
    return tuple(signal for signal in run.rules.rules.signals if not (greedy and signal.name == SURPRISAL))


def verdict_of(run: "Run", graded: pl.DataFrame | None = None, least_share: float | None = None) -> Finding:
    """The verdict: what is wrong, since when, how sure, what to try, what was not measured or checked.

    graded: `signal_grades` of the run. least_share: that of the offered sequences which must be measured; None: the
    one of the run's rules.
    """
    least = run.rules.least_share if least_share is None else least_share
    if graded is None:
        graded = signal_grades(run, least_share=least)
    found = verdict(graded, missing_checks(run), run.rules, coverage_of(run, least))
    if not scorers_of(run.info) or found.coverage.remedy:
        return found
    return replace(found, remedy="Nothing." if found.is_healthy else OF_SCORERS)


def missing_checks(run: "Run") -> dict[str, str]:
    """Gap, feature or signal -> why nothing of it can be graded. A scalar log lacks all signals whose metrics it has not."""
    missing = dict(missing_of(run))
    steps = len(run.steps)
    missing |= {
        gap: f"because {ZEROS if is_placeholder(run, gap) else EQUAL}"
        for gap, equal in copied_steps(run).items()
        if len(equal) == steps
    }
    missing |= {name: f"because {why}" for name, why in run.once(_not_graded).items() if name not in missing}
    if greedy := greedy_words(run.info):
        missing[SURPRISAL] = f"because {greedy}: its tokens are no draws from the policy"
    if run.no_tokens:
        logged = {name.partition("/")[2] for name in run.logged["metric"].drop_nulls().unique()}
        missing |= {s.name: f"because the log has no {s.reads}" for s in SIGNALS if s.reads not in logged}
    return missing


def _not_graded(run: "Run") -> dict[str, str]:
    """Signal -> why its metric has no value at the newest step of the gap that is judged, if several reasons could hold."""
    gap = next(iter(judged_first(run)), "")
    frame = run.metrics(by=("step",))
    chosen = [(signal, BY_NAME[signal.reads]) for signal in SIGNALS if gap in signal.gaps]
    return {signal.name: why_absent(metric, gap, frame) for signal, metric in chosen if metric.why is not None}


def plain_finding(finding: Finding) -> dict[str, Any]:
    """A Finding as values that JSON can hold."""
    return asdict(finding) | {"severity": finding.word, "now": None if finding.now is None else finding.now.label}
