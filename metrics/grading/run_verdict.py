"""The verdict on a run: what is wrong, since when, how sure, what to try; and what was not checked."""

from collections.abc import Mapping

import polars as pl

from ratioscope.record import GAPS

from ..definitions.registry import METRICS
from ..metric import Metric
from .course import episode_now, worst_episode
from .finding import Check, Confidence, Finding, Severity
from .severity import decided, reading, signal_named
from .signals import HEALTHY_K3, SIGNALS

STALENESS = "staleness"
VIEWS = {"surprisal": "surprisal gap"}
"""A signal, and what its column gives elsewhere: the name under which it may be missing."""
_CONFIDENCES: tuple[Confidence, ...] = ("low", "medium", "high")
_METRIC: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def verdict(graded: pl.DataFrame, missing: Mapping[str, str] | None = None) -> Finding:
    """What is wrong with the run, since when, how sure, and what to try: the worst grade of all.

    graded: rows of grade_signals. missing: what is not on record (a gap, staleness, surprisal gap) -> "because ..."; None where
    that is not known. Confidence in a fault is of how often it was seen: high from three steps on, medium for two, low for one.
    """
    steps = decided(graded)
    if not len(steps):
        return Finding(
            Severity.HEALTHY, "nothing could be graded", "", "", None, "low", "No step has both sides of a gap.",
            "There is no evidence of anything.", "Record the logprobs of two policies.", checks=checks(graded, missing),
        )  # fmt: skip
    worst = worst_episode(graded)
    if worst is None:
        return _healthy(graded, steps, checks(graded, missing))
    now = episode_now(graded)
    severity = worst.severity
    at_worst = steps.filter(pl.col("severity") == severity.label)
    own = at_worst.filter(signal=worst.signal, gap=worst.gap)
    signal = signal_named(worst.signal)
    evidence = (
        f"{worst.reading} at step {worst.peak}; {len(at_worst)} of {len(steps)} steps are graded {severity.label}"
        f"{'' if len(own) == len(at_worst) else f', {len(own)} of them by this signal'}."
    )
    return Finding(
        severity, signal.title, signal.name, worst.gap, worst.first, _confidence(len(at_worst)), evidence,
        signal.meaning, signal.remedy, worst.last if worst.over else None, worst.peak,
        Severity.HEALTHY if now is None else now.severity, None if now is None else now.first,
        "" if now is None else signal_named(now.signal).title, checks(graded, missing),
    )  # fmt: skip


def checks(graded: pl.DataFrame, missing: Mapping[str, str] | None) -> tuple[Check, ...]:
    """Every signal, every gap and staleness: on how many steps each could be looked at, or why it could not."""
    unrecorded = {} if missing is None else missing
    gaps = dict(graded.group_by("gap").agg(pl.col("step").n_unique()).rows())
    ran = dict(graded.group_by("signal").agg(pl.col("step").n_unique()).rows())
    found = [Check(gap, gaps.get(gap, 0), unrecorded.get(gap, _UNKNOWN)) for gap in GAPS]
    found += [Check(signal.name, ran.get(signal.name, 0), _why(signal.name, unrecorded)) for signal in SIGNALS
              if ran.get(signal.name) or any(gap in gaps for gap in signal.gaps)]  # fmt: skip
    if missing is not None:
        found.append(
            Check(STALENESS, 0 if STALENESS in missing else max(gaps.values(), default=0), missing.get(STALENESS, ""))
        )
    return tuple(Check(check.name, check.steps, "" if check.steps else check.absent) for check in found)


_UNKNOWN = "because no step has both of its sides"


def _why(name: str, missing: Mapping[str, str]) -> str:
    signal = signal_named(name)
    if (view := VIEWS.get(name, "")) in missing:
        return missing[view]
    if name == "kl_k3_over_floor":
        return f"because the run's first steps do not surely lie below {HEALTHY_K3:g}: there is no floor to grow from"
    return f"because {_METRIC[signal.reads].absent}"


def _healthy(graded: pl.DataFrame, steps: pl.DataFrame, found: tuple[Check, ...]) -> Finding:
    """No check found anything. The evidence is the highest value, which may lie beyond a bound by less than its uncertainty."""
    of_kl = steps.filter(signal="kl_k3")
    own = of_kl if len(of_kl) else steps
    peak = own.sort("value", descending=True, nulls_last=True).row(0, named=True)
    signal = signal_named(peak["signal"])
    among = f"the highest of {len(own)} steps" if len(own) > 1 else "the only step"
    beyond = int((own["value"] >= signal.watch).sum()) if len(of_kl) else 0
    bound = f"; watch begins at {signal.watch:g}" if len(of_kl) else ""
    unsure = (
        f" It counts as {peak['tested']:.4g}, which is two standard errors less. {beyond} of {len(own)} steps lie beyond the"
        " bound, but by no more than their uncertainty."
        if beyond
        else ""
    )
    ran = [check for check in found if check.steps]
    absent = len(found) - len(ran)
    remedy = "Record what was not checked." if absent else "Nothing."
    return Finding(
        Severity.HEALTHY, "no signal is out of its bounds", peak["signal"], peak["gap"], None,
        _least(_confidence(len(steps)), _of_checks(len(ran), len(found)), _of_doubt(beyond, len(own))),
        f"{reading(signal, peak)} at step {peak['step']}, {among}{bound}.{unsure}",
        f"No check that ran found a value beyond its bound on any of {len(steps)} steps.", remedy,
        now=Severity.HEALTHY, checks=found,
    )  # fmt: skip


def _least(*known: Confidence) -> Confidence:
    return min(known, key=_CONFIDENCES.index)


def _confidence(steps: int) -> Confidence:
    return "high" if steps >= 3 else "medium" if steps == 2 else "low"


def _of_checks(ran: int, known: int) -> Confidence:
    """How far a clean bill can be believed: as far as was looked."""
    return "high" if ran == known else "medium" if 2 * ran >= known else "low"


def _of_doubt(beyond: int, steps: int) -> Confidence:
    """Steps beyond a bound by less than their uncertainty are no fault, and no evidence of health either."""
    return "high" if not beyond else "medium" if 2 * beyond < steps else "low"
