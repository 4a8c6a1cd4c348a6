"""Which side is off: the distance of each recorded policy from the referee, in one sentence.

Which side is off, for pages and the report: the answer of the run's referee in words and numbers, or why there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from ratioscope.ingest.analysis.third_reading import told
from ratioscope.record import POLICIES, gap_between

from ..presentation.digits import count
from ..presentation.gap_words import direction
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.sentence import capital, sentence
from ..presentation.step_words import steps_words
from .choice import at_even_distances
from .distance import Distance, SumsByStep, distances_of, sums_of, sums_of_steps

if TYPE_CHECKING:
    from ratioscope.ingest.rows.readings import Reading
    from ratioscope.ingest.run import Run

NEARER = 3.0
"""A policy stands beside the referee, and another off, if their mean |x| differ by this factor. A convention."""
FARTHER = 1.4
"""Between this factor and NEARER both differ, and the farther one is the first to look at. A convention."""
ROUNDING = 1e-4
"""mean |x| in nats/token up to which two float32 computations agree. A convention: ten times what two of ours differ by."""
BOUND = 1.5
"""A column is reproduced to the floor if its mean |x| is at most so many times that of the reading from itself at the column's
precision. Measured with engines under each of 192 to 264 detectable alternatives (192 tokens): the true one has 0.95 to 1.07
(tiny Llama, GPT-2 and Qwen2 in bfloat16, Llama and GPT-NeoX in float16), and 0.74 to 1.17 with a KV cache (SmolLM2). Another
one has at most 1.5 in 1.6%, 0.5% and 2.3% in bfloat16 and never in float16, all of faults little above rounding, which are told
as sets. Chosen on all of these but one, any bound from 1.1 to 1.5 misses no fault of the one left out; 1.5 leaves room for
kernels."""
CURRENT_STEPS = 3.0
"""The referee's weights are taken for those of the steps whose nearest policy is at most so many times as far as at the nearest
step. A convention."""
WHO = {"rollout": "engine", "old": "trainer", "current": "trainer's current weights"}
"""Policy -> its name in a sentence."""
TRAINER_AGAIN = "trainer_again"
"""The reading that `self_noise` records."""
Side = Literal["rollout", "old", "current", "neither", "both", "referee", "unknown"]

REFEREE, READ_AGAIN = "referee", "_again"
MOST_STEPS = 32
"""Most steps that are compared here. Convention; `ratioscope rescore` compares all."""
MOST_TOKENS = 2_000_000
"""Most recorded tokens that are read for it: about a second."""


@dataclass(frozen=True)
class RefereeAnswer:
    """Which side stands off, and the numbers behind it."""

    off: Side
    """The policy that stands off; neither: all agree; both: about equally far; referee: it is far from all of them."""
    sentence: str
    """The answer for people."""
    distances: Mapping[str, Distance]
    """Policy -> its distance from the referee over `steps`."""
    between: Distance | None
    """The distance of the recorded policies from each other, over the same steps; None where one alone is recorded."""
    steps: tuple[int, ...]
    """The steps that the answer is of: those whose weights the referee may have."""
    by_step: Mapping[str, Mapping[int, Distance]]
    """Policy -> step -> distance."""


def answer(run: "Run", reading: str, steps: list[int]) -> RefereeAnswer:
    """The answer over these steps, which have rows of the reading."""
    gaps = {policy: gap_between(policy, reading) for policy in run.policies}
    apart = gap_between(*run.policies[:2]) if len(run.policies) > 1 else None
    sums = sums_of(run, [*gaps.values(), *([apart] if apart else [])], steps)
    of_policy = {policy: sums[gap] for policy, gap in gaps.items() if sums[gap]}
    by_step = {policy: {step: each.distance for step, each in own.items()} for policy, own in of_policy.items()}
    fitting = nearest_steps(by_step)
    distances = {policy: whole for policy, own in of_policy.items() if (whole := _over(own, fitting)) is not None}
    sides = [policy for policy in POLICIES if policy in distances][:2]
    between = _over(sums[apart], fitting) if apart and len(sides) == 2 else None
    off, words = _judged({policy: distances[policy] for policy in sides}, between, _floors(run, reading))
    where = _where(fitting, by_step)
    return RefereeAnswer(off, f"{words}{where}", distances, between, tuple(fitting), by_step)


def trainer_noise(run: "Run") -> Distance | None:
    """The distance of the trainer from its own second forward (`self_noise` of attach); None where there is none."""
    again = run.readings.get(TRAINER_AGAIN)
    policy = next((name for name in ("old", "current") if name in run.policies), None)
    if again is None or policy is None:
        return None
    return distances_of(run, gap_between(policy, TRAINER_AGAIN), list(again.steps)).get(None)


def _over(by_step: SumsByStep, steps: list[int]) -> Distance | None:
    """The distance over those of the steps that have the gap; None if none has."""
    own = [by_step[step] for step in steps if step in by_step]
    return sums_of_steps(own).distance if own else None


def nearest_steps(by_step: Mapping[str, Mapping[int, Distance]]) -> list[int]:
    """The steps at which some policy is about as near to the referee as it ever is: a checkpoint is of one step."""
    nearest: dict[int, float] = {}
    for own in by_step.values():
        for step, found in own.items():
            nearest[step] = min(found.mean, nearest.get(step, float("inf")))
    least = min(nearest.values(), default=0.0)
    return sorted(step for step, value in nearest.items() if value <= max(CURRENT_STEPS * least, ROUNDING))


@dataclass(frozen=True)
class Floor:
    """The referee's own distance at the precision of a policy."""

    precision: str
    mean: float
    """mean |x| between the referee in float32 and in this precision, nats/token."""
    is_recorded: bool
    """False if the precision of the policy is not on record, and is taken to be this one."""


def _floors(run: "Run", reading: str) -> dict[str, Floor]:
    """Policy -> its floor, as `rescore` measured it; empty if it did not."""
    content = told(run, "floors")
    if not isinstance(content, dict) or content.get("reading") != reading:
        return {}
    own = {policy: value for policy, value in content.items() if policy in WHO and value.get("mean") is not None}
    return {
        policy: Floor(str(each["precision"]), float(each["mean"]), bool(each["is_recorded"]))
        for policy, each in own.items()
    }


def _judged(
    distances: Mapping[str, Distance], between: Distance | None, floors: Mapping[str, Floor]
) -> tuple[Side, str]:
    """By mean |x|: K3 of a few heavy tails has an error of its own size."""
    said = " and ".join(f"the {WHO[policy]} at {words(d)}" for policy, d in distances.items())
    if not distances:
        return "unknown", "no token of a recorded policy was read: nothing can be said"
    if between is None:
        return "unknown", f"{said} from the referee; with one recorded policy there is no second side to compare"
    (near, nearest), (far, farthest) = sorted(distances.items(), key=lambda item: item[1].mean)
    if farthest.mean <= ROUNDING:
        return "neither", f"all agree to rounding: {said} from the referee"
    beside = {
        policy
        for policy, own in floors.items()
        if policy in distances and distances[policy].mean <= max(ROUNDING, BOUND * own.mean)
    }
    if len(beside) == len(distances):
        gives = f"{floors[far].precision} alone gives {floors[far].mean:.2g}"
        if floors[far].is_recorded:
            return "neither", f"both sides are as near to the referee as their precision allows: {said}; {gives}"
        record = f"the precision of the {WHO[far]} is not on record: record it to tell rounding from a fault"
        return "unknown", f"{said} from the referee; {gives}, and {record}"
    if nearest.mean > NEARER * between.mean:
        apart = f"{between.mean:.2g} from each other"
        return "referee", (
            f"the referee is off, not one of the sides: {said}, {apart}. It has other weights, or reads other tokens: try the"
            " checkpoint of these steps, or --try"
        )
    certain = farthest.mean - nearest.mean > 3 * _error(nearest, farthest)
    if certain and (farthest.mean >= NEARER * nearest.mean or near in beside):
        first = f"the {WHO[near]} stands at {words(nearest)} from the referee, the {WHO[far]} at {words(farthest)}"
        return far, f"{first}: the difference is the {WHO[far]}'s"  # type: ignore[return-value]
    by = " and ".join(f"the {WHO[policy]} by {words(d)}" for policy, d in distances.items())
    differ = f"both sides differ from the referee: {by}"
    if certain and farthest.mean >= FARTHER * nearest.mean:
        return "both", f"{differ}. The {WHO[far]} is {farthest.mean / nearest.mean:.2g} times as far: look there first"
    return "both", f"{differ}. So neither side alone explains the gap between them"


def words(distance: Distance) -> str:
    """mean |x| with its error, and K3.

    >>> words(Distance(9, 0, 0.1234, 0.01, 0.0361, 0.0021, 1.0))
    '0.12 ± 0.01 nats/token (mean |x|; K3 0.036)'
    """
    error = "" if distance.mean_error != distance.mean_error else f" ± {distance.mean_error:.2g}"
    return f"{distance.mean:.2g}{error} nats/token (mean |x|; K3 {distance.k3:.2g})"


def _error(one: Distance, other: Distance) -> float:
    known = [each.mean_error for each in (one, other) if each.mean_error == each.mean_error]
    return float(sum(error**2 for error in known) ** 0.5)


def _where(fitting: list[int], by_step: Mapping[str, Mapping[int, Distance]]) -> str:
    """The steps that the sentence is of, where they are not all that were read."""
    every = {step for own in by_step.values() for step in own}
    if len(fitting) == len(every):
        return ""
    named = f"step {fitting[0]}" if len(fitting) == 1 else f"{len(fitting)} steps from {fitting[0]} to {fitting[-1]}"
    return f". These numbers are of {named}, of {len(every)} that were read; at the other steps the referee has other weights"


@dataclass(frozen=True)
class SideOff:
    """The answer of a run's referee."""

    reading: str
    """The name of the reading."""
    answer: RefereeAnswer
    sentence: str
    """One sentence with a full stop."""
    facts: LabelledTexts
    """Label and text: the distance of each policy and of the policies from each other, and what was read."""


def side_off(run: "Run") -> SideOff | None:
    """None if no referee read the run. It reads token rows of some steps that were read; a run without readings costs nothing."""
    readings = run.readings
    name = referee_of(readings)
    if name is None:
        return None
    steps = compared_steps(run, name)
    result = answer(run, name, steps)
    return SideOff(name, result, sentence(capital(result.sentence)), _facts(run, readings[name], result, steps))


def referee_of(readings: "Mapping[str, Reading]") -> str | None:
    """The reading that judges: `referee`, else the first that a model made and that repeats no other reading.

    The prefill of an engine judges nobody: it is one of the sides, read otherwise (engine_part.py).
    """
    models = (
        name
        for name, reading in readings.items()
        if not name.endswith(READ_AGAIN) and any("model" in made for made in reading.made_of)
    )
    return REFEREE if REFEREE in readings else next(models, None)


def plain_side_off(side: SideOff) -> dict[str, Any]:
    """The answer as values that JSON can hold."""
    return {"off": side.answer.off, "sentence": side.sentence, "reading": side.reading, "facts": dict(side.facts)}


def compared_steps(run: "Run", reading: str) -> list[int]:
    """The steps, among those of a reading, whose rows are read to say which side is off."""
    read = [step for step in run.readings[reading].steps if step in run.row_digests()]
    size = run.size.tokens / max(1, len(run.steps))
    return at_even_distances(read, max(1, min(MOST_STEPS, int(MOST_TOKENS / max(size, 1.0)))))


def _facts(run: "Run", reading: "Reading", result: RefereeAnswer, steps: list[int]) -> LabelledTexts:
    rows = [(direction(gap_between(policy, reading.name)), words(own)) for policy, own in result.distances.items()]
    if result.between is not None:
        sides = [policy for policy in run.policies if policy in result.distances][:2]
        rows.append((direction(gap_between(sides[0], sides[1])), f"{words(result.between)}, at the same steps"))
    return (*rows, ("what was read", _read(run, reading, steps)))


def _read(run: "Run", reading: "Reading", steps: list[int]) -> str:
    size = f"{count(reading.sequences, 'sequence')} of {count(reading.tokens, 'token')}"
    compared = "" if len(steps) == len(reading.steps) else f", {count(len(steps))} of them compared here"
    drawn = ", and drawn, because the rows of the others are on a store" if compared and run.is_remote else ""
    lacking = [step for step in run.steps if step not in reading.steps]
    have = "has" if len(lacking) == 1 else "have"
    rest = f"; {steps_words(lacking, run.steps)} {have} no reading" if lacking else ""
    return f"{size} at {steps_words(reading.steps, run.steps)}{compared}{drawn}{_made_by(reading)}{rest}"


def _made_by(reading: "Reading") -> str:
    """The model that made the newest part of the reading, without its folder."""
    made = reading.made_of[0] if reading.made_of else {}
    name, dtype = PurePath(str(made.get("model") or "")).name, made.get("dtype")
    more = len(reading.made_of) - 1
    others = f" and {count(more, 'other model or setting')}" if more > 0 else ""
    return f", by {name}{f' in {dtype}' if dtype else ''}{others}" if name else ""
