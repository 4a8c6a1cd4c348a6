"""The verdict on a run: one Finding with the worst grade, since when, how sure, what to try, and the checks not made.

To change what a verdict says: thresholds, titles, meanings and remedies are rows of SIGNALS (signals.py); which signal decides
a step is in severity.py; since when, and whether it is over, in episodes.py; confidence and evidence here.
"""

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from ratioscope.record import GAPS

from ..definitions.registry import METRICS
from ..digits import digits
from ..metric import SAMPLED, Metric
from .coverage import MEASURED, NOT_MEASURED, PARTLY, Coverage, Known
from .episodes import worst_episode
from .finding import Check, Confidence, Finding, Severity
from .run_rules import NO_FILE, RunRules
from .severity import decided, reading, signal_named
from .signals import HEALTHY_K3, SIGNALS

STALENESS = "staleness"
VIEWS = {"surprisal": "surprisal gap"}
"""Signal -> the name by which `missing` names its column."""
_CONFIDENCES: tuple[Confidence, ...] = ("low", "medium", "high")
_METRIC: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def verdict(
    graded: pl.DataFrame,
    missing: Mapping[str, str] | None = None,
    in_force: RunRules = NO_FILE,
    coverage: Coverage | None = None,
) -> Finding:
    """The verdict on a run: its worst grade, since when, how sure it is, and what to try.

    graded: rows of grade_signals. missing: what is not on record (a gap, signal, staleness, surprisal gap) -> "because ...";
    None if that is unknown. in_force: the rules by which it was graded; whatever they mute or tune is part of the verdict.
    coverage: what is known of the gap between sampler and trainer; None: measured, if a step of such a gap is graded.
    Confidence depends on the number of steps at the worst grade: high from three on, medium for two, low for one.
    """
    steps = decided(graded)
    coverage = coverage or (MEASURED if len(graded.filter(pl.col("gap").is_in(SAMPLED))) else NOTHING)
    if steps.is_empty() and coverage.word == PARTLY:
        steps = decided(graded.with_columns(known=pl.lit(True)))  # all of them are healthy, as far as they are known
    fine = steps.is_empty() or steps["severity"].to_physical().max() == Severity.HEALTHY
    if steps.is_empty() and (coverage.is_measured or (coverage.known == Known.PARTLY and graded.is_empty())):
        coverage, missing = UNGRADED, dict.fromkeys(SAMPLED, _UNGRADED) | dict(missing or {})
    if steps.is_empty() or (fine and coverage.word == NOT_MEASURED):
        return _unmeasured(coverage, checks(graded, missing, in_force), in_force)
    worst = worst_episode(graded, steps, in_force.rules)
    if worst is None:
        return _healthy(steps, checks(graded, missing, in_force), in_force, coverage)
    newest = steps.tail(in_force.rules.close_after)
    now = worst_episode(graded, newest, in_force.rules)
    severity = worst.severity
    at_worst = steps.filter(pl.col("severity") == severity.label)
    own = at_worst.filter(signal=worst.signal, gap=worst.gap)
    signal = signal_named(worst.signal)
    evidence = (
        f"{worst.reading} at step {worst.peak}; {len(at_worst):,} of {len(steps):,}"
        f" {'step is' if len(steps) == 1 else 'steps are'} graded {severity.label}"
        f"{'' if len(own) == len(at_worst) else f', {len(own):,} of them by this signal'}."
    )
    return Finding(
        severity, signal.title, signal.name, worst.gap, worst.first, _confidence(len(at_worst)), evidence,
        signal.meaning, signal.remedy, coverage, worst.last if worst.over else None, worst.peak,
        Severity.HEALTHY if now is None else now.severity, None if now is None else now.first,
        "" if now is None else signal_named(now.signal).title, checks(graded, missing, in_force), in_force.sentence,
    )  # fmt: skip


NOTHING = Coverage(
    Known.NOT_MEASURED, None, "No step has both sides of a gap between sampler and trainer.",
    "Pass rollout_logprobs= and old_logprobs= to Collector.log.",
)  # fmt: skip

UNGRADED = Coverage(
    Known.NOT_MEASURED, None, "A gap between sampler and trainer is on record, and no signal grades its numbers.",
    "Record the log-probs of sampler and trainer, which every signal reads.",
)  # fmt: skip
"""The coverage of a scalar log whose numbers have no bounds, and of a run whose signals are all muted."""
_UNGRADED = "because no signal grades its numbers"


def _unmeasured(coverage: Coverage, all_checks: tuple[Check, ...], in_force: RunRules) -> Finding:
    """The verdict on a run without a measured gap between sampler and trainer, in which nothing else is out of bounds."""
    muted = " Every signal that could grade it is muted." if in_force.muted and any(c.steps for c in all_checks) else ""
    return Finding(
        Severity.HEALTHY, "the gap between sampler and trainer is not known", "", "", None, "low", muted.strip(),
        "The policy that sampled may be far from the policy that trains. Nothing on record shows how far it is.", coverage.remedy,
        coverage, checks=all_checks, rules=in_force.sentence,
    )  # fmt: skip


def checks(graded: pl.DataFrame, missing: Mapping[str, str] | None, in_force: RunRules = NO_FILE) -> tuple[Check, ...]:
    """A Check for every gap, every signal and staleness: the number of steps it could be made on, or why it could not.

    A muted signal is a check that was not made. A signal that was checked in one gap on record and not in another has a Check for
    that one, too, which was not made.
    """
    unrecorded = {} if missing is None else missing
    muted = {signal.name: f"because {in_force.source} mutes it: {reason}" for signal, reason in in_force.muted}
    gaps = dict(graded.group_by("gap").agg(pl.col("step").n_unique()).rows())
    ran = dict(graded.group_by("signal").agg(pl.col("step").n_unique()).rows())
    result = [Check(gap, gaps.get(gap, 0), unrecorded.get(gap, _UNKNOWN)) for gap in GAPS]
    made = set(graded.select("signal", "gap").unique().rows())
    for signal in SIGNALS:
        there = [gap for gap in signal.gaps if gap in gaps]
        why = muted.get(signal.name) or _why(signal.name, unrecorded)
        if there:
            result.append(Check(signal.name, ran.get(signal.name, 0), why))
        if signal.name in ran:
            lacking = [gap for gap in there if (signal.name, gap) not in made]
            result += [Check(f"{signal.name} of {gap}", 0, why, gap) for gap in lacking]
    if missing is not None:
        result.append(
            Check(STALENESS, 0 if STALENESS in missing else max(gaps.values(), default=0), missing.get(STALENESS, ""))
        )
    return tuple(replace(check, absent="" if check.steps else check.absent) for check in result)


_UNKNOWN = "because no token has both of its sides"


def _why(name: str, missing: Mapping[str, str]) -> str:
    signal = signal_named(name)
    if name in missing:
        return missing[name]
    if (view := VIEWS.get(name, "")) in missing:
        return missing[view]
    if name == "kl_k3_over_floor":
        return f"because the run's first steps do not surely lie below {HEALTHY_K3:g}: there is no floor to grow from"
    return f"because {_METRIC[signal.reads].absent}"


def _healthy(steps: pl.DataFrame, all_checks: tuple[Check, ...], in_force: RunRules, coverage: Coverage) -> Finding:
    """The verdict if every step is healthy. Its evidence is the highest value.

    The highest value may exceed a bound by less than its uncertainty; then the confidence is lower.
    """
    of_kl = steps.filter(signal="kl_k3")
    own = of_kl if len(of_kl) else steps
    peak = own.sort("value", descending=True, nulls_last=True).row(0, named=True)
    signal = in_force.rules.signal(peak["signal"])
    among = f"the highest of {len(own)} steps" if len(own) > 1 else "the only step"
    beyond = int((own["value"] >= signal.watch).sum()) if len(of_kl) else 0
    bound = f"; watch begins at {signal.watch:g}" if len(of_kl) else ""
    highest = f"{reading(signal, peak)} at step {peak['step']}, {among}{bound}."
    if signal.none and not peak["value"]:
        highest = f"{peak['gap']}: {signal.none} in any step."
    unsure = (
        f" {beyond} of {len(own)} steps exceed the bound by no more than chance may: the lower end of the 95% interval is graded,"
        f" which is {digits(peak['tested'])} there."
        if beyond
        else ""
    )
    ran = [check for check in all_checks if check.steps]
    absent = len(all_checks) - len(ran)
    whole = sum(not check.gap for check in all_checks)
    remedy = coverage.remedy or ("Record what was not checked." if absent else "Nothing.")
    span = f"any of {len(steps)} steps" if len(steps) > 1 else "the only step"
    among_measured = "" if coverage.is_measured else " in what was measured"
    # Confidence in a healthy verdict by the steps whose value exceeds a bound by less than its uncertainty. Such a step is
    # neither a fault nor evidence of health.
    sure = _least(
        _confidence(len(steps)),
        _of_checks(len(ran), whole),
        ("high" if not beyond else "medium" if 2 * beyond < (len(own)) else "low"),
    )
    return Finding(
        Severity.HEALTHY, f"no signal is out of its bounds{among_measured}", peak["signal"], peak["gap"], None,
        sure if coverage.is_measured else "low",
        f"{highest}{unsure}",
        f"No check that ran found a value beyond its bound on {span}.", remedy, coverage,
        now=Severity.HEALTHY, checks=all_checks, rules=in_force.sentence,
    )  # fmt: skip


def _least(*confidences: Confidence) -> Confidence:
    return min(confidences, key=_CONFIDENCES.index)


def _confidence(steps: int) -> Confidence:
    return "high" if steps >= 3 else "medium" if steps == 2 else "low"


def _of_checks(ran: int, total: int) -> Confidence:
    """Confidence in a healthy verdict by the number of checks that could be made."""
    return "high" if ran == total else "medium" if 2 * ran >= total else "low"
