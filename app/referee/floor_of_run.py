"""The noise floor that a run shows: by how much two computations of one policy differ in it."""

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.ingest.analysis.comparability import run_facts
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.grades import step_grades, verdict_of
from ratioscope.ingest.files.reference_file import pinned_above
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS, POLICIES, gap_between

from ..presentation.escape import visible
from ..presentation.gap_words import direction
from ..presentation.metric_places import OF_FLOOR
from ..presentation.noise_floor import FloorValue, NoiseFloor, compared, floor_sentence, stands_beside
from .answer import READ_AGAIN, TRAINER_AGAIN
from .baselines import baseline
from .distance import sums_of, sums_of_steps

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


def floor_of_run(run: "Run", name: str) -> NoiseFloor:
    """The floor by two readings of one model, else by the trainer read twice, else by the gap of a healthy run.

    SourceError if the run shows none of these.
    """
    gap = _read_twice(run)
    return _of_readings(run, name, gap) if gap else _of_healthy(run, name)


def against_floor(run: "Run", floor: NoiseFloor, gap: str) -> str:
    """The size of a gap of the run beside the floor, in one sentence. gap: "" is the first one with a floor."""
    own = gap if gap and stands_beside(floor, gap) else next((gap for gap in run.gaps if stands_beside(floor, gap)), "")
    if not own:
        return f"not comparable with your {floor.kind} {floor.name}, because the run has no gap but drift"
    whole = run.metrics(by=(), gap=None if own in GAPS else own)
    row = whole.row(0, named=True) if len(whole) else {}
    name = f"{own}/{compared(floor, own)[0]}"
    return f"{own} is {floor_sentence(floor, own, row.get(name), row.get(f'{name}_se'))}"


def reference_floor(run: "Run", name: str, gap: str) -> NoiseFloor | None:
    """The values of a pinned run at a gap, to compare other runs with; None where it has no size of that gap."""
    if gap not in (*run.gaps, *run.reading_gaps):
        return None
    whole = run.metrics(by=(), gap=gap)
    row = whole.row(0, named=True) if len(whole) else {}
    found = {
        metric.name: FloorValue(float(value), math.nan if error is None else float(error))
        for metric in METRICS
        if (value := row.get(f"{gap}/{metric.name}")) is not None and math.isfinite(value)
        for error in (row.get(f"{gap}/{metric.name}_se"),)
    }
    if size_metric(gap) not in found:
        return None
    tokens, sequences = (int(found[each].value) if each in found else 0 for each in ("tokens", "sequences"))
    values = tuple(found.items())
    how = "the values of the pinned run"
    return NoiseFloor(
        name, gap, how, values, tokens, sequences, run.name, run.digest, tuple(run.steps), kind="pinned run"
    )


def pinned_floor(run: "Run", gap: str) -> NoiseFloor | None:
    """The values of the run or baseline pinned in the run's folder or one above, at a gap; None without one that can be read."""
    from ratioscope.ingest.run import open_run

    with suppress(RatioscopeError, OSError):
        known, folder = (None, run.path) if run.is_remote else pinned_above(run.path)
        if known is not None and known.kind == "baseline":
            return baseline(known.name)
        if known is not None and (folder / known.name).resolve() != run.path.resolve():
            return reference_floor(open_run(folder / known.name), visible(known.name, 60), gap)
    return None


def _read_twice(run: "Run") -> str | None:
    """The gap between two computations of the same policy; None where nothing was read twice."""
    readings = run.readings
    twice = [one for one in readings if f"{one}{READ_AGAIN}" in readings]
    if twice:
        return gap_between(twice[0], f"{twice[0]}{READ_AGAIN}")
    policy = next((policy for policy in POLICIES[1:] if policy in run.policies), None)
    return gap_between(policy, TRAINER_AGAIN) if TRAINER_AGAIN in readings and policy else None


def _of_readings(run: "Run", name: str, gap: str) -> NoiseFloor:
    by_step = sums_of(run, (gap,), run.readings[gap.partition(":")[2]].steps)[gap]
    if not by_step:
        raise SourceError(
            f"{run.name} has no token that both sides of {gap} read; wanted the same sequences read twice"
        )
    whole = sums_of_steps(by_step.values())
    distance = whole.distance
    values = (FloorValue(distance.k3, distance.k3_error), FloorValue(distance.mean, distance.mean_error))
    how = f"{direction(gap)}: the same policy computed twice"
    return _floor(run, name, gap, how, values, (distance.tokens, len(whole.counts)), tuple(by_step))


def _of_healthy(run: "Run", name: str) -> NoiseFloor:
    verdict, gap = verdict_of(run), next((gap for gap in judged_first(run) if gap in SAMPLED), None)
    graded = step_grades(run)
    if gap is None or not verdict.is_healthy or graded.is_empty():
        state = f"its verdict is {verdict.word}" if gap and len(graded) else "no step of it could be graded"
        raise SourceError(
            f"{run.name} shows no noise floor: nothing in it was computed twice, and {state}; wanted a healthy run, the reading"
            " trainer_again (self_noise of attach), or `ratioscope rescore RUN --model PATH --floor`"
        )
    row = run.metrics(by=()).row(0, named=True)
    values = [_value(row.get(f"{gap}/{metric}"), row.get(f"{gap}/{metric}_se")) for metric in OF_FLOOR]
    size = int(row[f"{gap}/tokens"]), int(row[f"{gap}/sequences"] or 0)
    how = f"the {gap} of a healthy run, {direction(gap)}: an upper bound of the noise"
    return _floor(run, name, gap, how, (values[0], values[1]), size, tuple(run.steps))


def _value(value: float | None, error: float | None) -> FloorValue:
    return FloorValue(float("nan") if value is None else value, float("nan") if error is None else error)


def _floor(
    run: "Run",
    name: str,
    gap: str,
    how: str,
    values: tuple[FloorValue, FloorValue],
    size: tuple[int, int],
    steps: tuple[int, ...],
) -> NoiseFloor:
    if not all(own.value >= 0 for own in values):
        raise SourceError(f"{run.name}: {gap} has no finite size; wanted finite log-probs on both sides")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    pairs = tuple(zip(OF_FLOOR, values, strict=True))
    return NoiseFloor(name, gap, how, pairs, *size, run.name, run.digest, steps, _facts(run), now)


def _facts(run: "Run") -> tuple[tuple[str, str], ...]:
    known, versions = run_facts(run.info), run.info.get("versions")
    facts = {
        "model": known.model,
        "engine's precision": known.engine,
        "trainer's precision": known.trainer,
        "trainer": run.info.get("trainer"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items())
        if isinstance(versions, dict)
        else "",
    }
    return tuple((name, str(value)[:200]) for name, value in facts.items() if value)
