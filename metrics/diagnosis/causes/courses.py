"""Courses of the gap over the steps: what a fault that follows the updates must do to the level and to the usual size."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Parameter, Result, absent, undecided
from ..evidence import Evidence, once
from ..factors import error_words, times
from ..fading import fading
from ..history import LEAST_STEPS, Course, History, course
from ..raised_steps import RaisedSteps, raised_steps
from ..share import Share, level_ratios, share_explained, strata
from ..sharpening import sharpening
from ..step_noise import log_error
from ..subset_faults import FEW_TOKENS, codes, log_sizes, mean_by
from .numerics import is_noise, noise
from .sources import few_sequences

MOSTLY = 0.8
"""A change keeps its course if at a fixed mix of probabilities this part of its log factor is left; else the rest has its own."""
LEAST_SIZE, OF_SIZE = 1.1, 0.15
"""Factor by which the usual size of a log-ratio grows at least where other weights come, and its least part of the log growth.
Other weights move every token. Conventions."""
DOUBLED = 2.0
"""Factor of the usual size of a log-ratio from which on it alone shows a course. A convention."""
RARE = 5.0
"""A log-ratio of so many times the usual one of its step is rare. A convention."""
OF_RARE, FEW_RARE = 0.5, 5
"""Tokens that stand out of the usual size keep this part of their number where it grows, and have this part of its log growth, if
they grow with it; fewer at either end tell nothing. Conventions."""
GROWN = 3.0
"""A gap that grew by less than this factor is a lasting change, not a missing sync."""
STEADY = 12.0
"""A small and regular gap that grows all along by less than this factor is rounding, which a policy that learns moves."""
AT_FIRST = 0.2
"""A growth that begins within this part of the steps has no level before it. A convention."""
FADES = 3.0
"""Standard errors of the decay of sizes along the responses from which on older weights may have read their first part alone."""
FADED = "the gap fades along the responses, as that of old keys and values or of a switch inside them does"
OF_PROMPTS = ("stale_prefix", "switch_inside")
LAGS = 8
"""Steps from the first one on within which a lag that no version on record excludes may reach its size. A convention."""


@once
def history_of(evidence: Evidence) -> History | None:
    """The history of the run if it is known, else that of the evidence's own steps; None without steps."""
    if evidence.history is not None:
        return evidence.history
    if not evidence.has("step"):
        return None
    steps, index = codes(evidence.facts["step"])
    ratios, errors, counts = level_ratios(evidence, index)
    level = ratios * (evidence.mean(evidence.distance) or 1e-300)
    return History(steps, level, log_error(errors), counts.astype(np.float64))


@once
def courses(evidence: Evidence) -> tuple[Course, Course]:
    """(the course of the gap, the part of it that is not another mix of tokens).

    K3 is the mean of few large tokens. If its level has no course, the usual size of a log-ratio may have one.
    """
    history = history_of(evidence)
    if history is None:
        return Course("flat"), Course("flat")
    own = course(history)
    if own.kind == "flat" and evidence.has("step"):
        found = course(_sizes_by_step(evidence))
        others = tuple(replace(each, of_sizes=True) for each in found.alternatives)
        by_size = replace(found, of_sizes=True, alternatives=others)
        return (by_size, by_size) if by_size.factor > DOUBLED**2 else (own, own)
    if history.fixed_mix is None or own.kind == "flat":
        return own, own
    fixed = course(replace(history, level=history.fixed_mix))
    grown, without_mix = np.log(own.factor), np.log(fixed.factor)
    if fixed.kind == "flat" or grown * without_mix < 0:
        return own, Course("flat")
    return own, own if abs(without_mix) >= MOSTLY * abs(grown) else fixed


def _sizes_by_step(evidence: Evidence) -> History:
    """The squared usual size of a log-ratio at each step that was read, at equal probability; sequences are independent.

    Its mean over the tokens is that of K3, so that a level of it is one of the gap.
    """
    (steps, index), row = evidence.step_codes, evidence.row_codes
    sizes = log_sizes(evidence)
    means, counts = mean_by(index, sizes, len(steps))
    of_row = index[evidence.starts]
    rows = np.bincount(of_row, minlength=len(steps))
    squares = np.bincount(of_row, np.bincount(row, sizes - means[index]) ** 2, minlength=len(steps))
    error = 2 * np.sqrt(squares * rows / np.maximum(rows - 1, 1)) / counts
    level = np.exp(2 * means)
    level *= evidence.mean(evidence.distance) / max(float(np.average(level, weights=counts)), 1e-300)
    return History(steps, level, np.where(rows > 1, error, np.inf), counts.astype(np.float64))


_GOES_ON = {"jump": ", and keeps its level", "rise": ", and grows on"}
"""Kind of a course -> its steps after the onset, which another course than that of a cause has."""


def tested(
    evidence: Evidence, kinds: tuple[str, ...], fits: Callable[[Course], bool], words: str, shown: str
) -> Result:
    history = history_of(evidence)
    if history is None or len(history.steps) < LEAST_STEPS:
        steps = 0 if history is None else len(history.steps)
        return undecided(f"too few steps to have a course: {steps}, and {LEAST_STEPS} are needed")
    if (raised := raised_of(evidence)) is not None:
        return absent(raised_words(raised))
    own, shape = courses(evidence)
    if own.kind != "flat" and shape.kind == "flat":
        return absent(f"{_in_words(own)}, and only because the mix of probabilities changes")
    bound = shown if shape.kind == "flat" else ""  # beside a course that is there, it would contradict it
    if _is_rounding(evidence, shape):
        return Result(False, f"{_in_words(shape)}, and is as small and as regular as rounding is", bound)
    told = next((each for each in (shape, *shape.alternatives) if each.kind in kinds and fits(each)), None)
    if told is None:
        goes_on = "" if shape.is_steady else _GOES_ON.get(shape.kind, "")
        return Result(False, f"{_in_words(shape)}{goes_on}", bound)
    if _is_lag(evidence, told.onset):
        return absent(f"{_in_words(told)}, and so is the lag on record: the version lag is tested instead")
    unseen = (
        ()
        if evidence.has("lag") or told.kind == "jump"
        else ("without a version on record it is not known whether weights arrived",)
    )
    as_well = f"another course predicts the steps as well: {_in_words(shape)}"
    doubts = unseen if told is shape else (*unseen, as_well)
    shape = told
    if evidence.has("step") and (part := few_sequences(evidence.kept(evidence.facts["step"] >= shape.onset))):
        return absent(f"{_in_words(shape)}, but only in {part:.0%} of the sequences")
    bad = evidence.facts["step"] >= shape.onset if evidence.has("step") else np.ones(len(evidence), np.bool_)
    if shape.kind == "sawtooth" or (~bad).sum() < FEW_TOKENS:
        bad = np.ones(len(evidence), np.bool_)
    if evidence.has("step") and is_of_few(evidence, high_tokens(evidence, history, shape), shape.factor):
        return absent(f"{_in_words(shape)}, but only at rare tokens: the others are as close as before")
    share = _at_level_before(evidence, bad, shape)
    if shape.of_sizes and share.share <= 2 * share.error:
        return absent(f"{_in_words(shape)}, which explains no clear part of the gap")
    parameters: dict[str, Parameter] = {
        "step": shape.onset,
        "factor": round(shape.factor, 2),
        "times": times(shape.factor),
    }
    kept, effect = evidence.kept(~bad), words.format(**_numbers(shape))
    alike = OF_PROMPTS if is_early(evidence, shape) and fading(evidence).z < -FADES else ()
    doubts += (FADED,) if alike else ()
    return Result(True, effect, shown, share, kept, parameters, bad=bad, doubts=doubts, fit=shape.fit, alike=alike)


def is_early(evidence: Evidence, shape: Course) -> bool:
    """True if the course begins so early that a lag may have reached its size there."""
    history = history_of(evidence)
    return history is not None and int((history.steps < shape.onset).sum()) <= LAGS


def _is_rounding(evidence: Evidence, shape: Course) -> bool:
    """True if the gap is like rounding, and grows no more than the rounding of logits that grow does."""
    history = history_of(evidence)
    if shape.kind != "rise" or history is None:
        return False
    begins = np.quantile(history.steps, AT_FIRST)
    has_level = any(each.onset > begins for each in (shape, *shape.alternatives))
    learns = not evidence.record.fixed_weights
    most = np.log(STEADY if learns and not has_level else GROWN) + 2 * sharpening(evidence)
    highest = max(evidence.mean(evidence.distance), shape.floor * shape.factor)
    return bool(np.log(max(shape.factor, 1e-300)) <= most and is_noise(highest, noise(evidence)))


def high_tokens(evidence: Evidence, history: History, shape: Course) -> Booleans:
    """The tokens of steps since the onset, of a sawtooth of those clearly above its foot."""
    if shape.kind != "sawtooth":
        return np.asarray(evidence.facts["step"] >= shape.onset)
    return np.isin(evidence.facts["step"], history.steps[history.level > GROWN * shape.floor])


def is_of_few(evidence: Evidence, bad: Booleans, factor: float) -> bool:
    """True if the usual size of a log-ratio is hardly larger at the bad tokens: then few tokens with heavy tails have it all.

    factor: of the gap there. Other weights move every token, by the root of it if they move all alike.
    """
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS:
        return False
    sizes = log_sizes(evidence)
    least = max(np.log(LEAST_SIZE), OF_SIZE * np.log(max(factor, 1.0)) / 2)
    return bool(sizes[bad].mean() - sizes[~bad].mean() < least)


def _is_lag(evidence: Evidence, onset: int) -> bool:
    """True if by the record every token from this step on is of older weights, and none before."""
    if not evidence.has("lag", "step"):
        return False
    late = evidence.facts["step"] >= onset
    is_older = evidence.facts["lag"] > 0
    return bool(late.any() and is_older[late].all() and not late.all() and not is_older[~late].any())


def _at_level_before(evidence: Evidence, bad: Booleans, shape: Course) -> Share:
    """The share of the gap that vanishes if the bad tokens have the level of the others; without any, the course's floor.

    Rare tokens beside a course of usual sizes are another matter, and keep their gap, unless theirs has the same course.
    """
    before = evidence.kept(~bad)
    floor = before.mean(before.distance) if len(before) else shape.floor
    if shape.of_sizes and not _rare_ones_follow(evidence, shape):
        bad = bad & ~_rare(evidence)
    share = share_explained(evidence, np.where(bad, floor, evidence.distance))
    if not share.before:
        return share
    return replace(share, error=min(float(np.hypot(share.error, shape.error * share.after / share.before)), 1.0))


@once
def _rare(evidence: Evidence) -> Booleans:
    """True for a token whose log-ratio is many times the usual one of its step, at equal probability, shape (tokens,)."""
    return np.asarray(_relative(_of_stratum(evidence), evidence.step_codes[1]) > RARE, np.bool_)


@once
def _of_stratum(evidence: Evidence) -> Floats:
    """The size of each log-ratio in medians of those of equal probability, shape (tokens,)."""
    return _relative(np.abs(evidence.log_ratio), strata(evidence))


def _relative(size: Floats, labels: Integers) -> Floats:
    usual = np.array([np.median(size[labels == at]) if (labels == at).any() else 1.0 for at in range(labels.max() + 1)])
    with np.errstate(over="ignore"):  # a median of 0
        return np.asarray(size / np.maximum(usual[labels], 1e-300))


def _rare_ones_follow(evidence: Evidence, shape: Course) -> bool:
    """True if log-ratios many times the usual one of their step are as frequent at the high steps, and grow as the usual ones do.

    Rare tokens of another cause keep their size, so that fewer of them stand out where the usual one has grown.
    """
    steps, rare, size = evidence.facts["step"], _rare(evidence), _of_stratum(evidence)
    late = steps >= (shape.onset if shape.kind == "jump" else np.median(steps))
    if min((rare & late).sum(), (rare & ~late).sum()) < FEW_RARE:
        return False
    with np.errstate(divide="ignore", invalid="ignore"):  # most log-ratios of the low steps may be 0
        grown, usual = (np.log(np.median(size[own & late]) / np.median(size[own & ~late])) for own in (rare, ~rare))
    return bool(rare[late].mean() >= OF_RARE * rare[~late].mean() and grown >= OF_RARE * usual)


@once
def raised_of(evidence: Evidence) -> RaisedSteps | None:
    """The spans of steps in which the gap is larger and after which it falls back; None if there are none."""
    history = history_of(evidence)
    return None if history is None else raised_steps(history)


def raised_words(raised: RaisedSteps) -> str:
    return f"at {raised.words} the gap has {times(raised.factor)} its level at the other steps"


def _numbers(shape: Course) -> dict[str, object]:
    return {
        "step": f"{shape.onset}{_between(shape)}",
        "times": times(shape.factor),
        "error": error_words(shape.error),
        "resets": shape.resets,
    }


def _in_words(shape: Course) -> str:
    match shape.kind:
        case "flat":
            return "the gap has one level over all steps"
        case "sawtooth":
            return f"the gap falls {shape.resets} times to less than a third of its size"
        case "rise" if shape.is_steady:
            return f"the gap grows all along, {times(shape.factor)} by the last step"
        case _:
            return f"the gap is {times(shape.factor)} as large from step {shape.onset}{_between(shape)} on"


def _between(shape: Course) -> str:
    """The steps between which the onset lies, in brackets; empty if it is one."""
    return f" (between {shape.earliest} and {shape.latest})" if shape.earliest < shape.latest else ""


def course_words(evidence: Evidence) -> tuple[str, ...]:
    """The course of the gap in words, if it changes by more than GROWN and not only by another mix of tokens."""
    history = history_of(evidence)
    if history is None or len(history.steps) < LEAST_STEPS:
        return ()
    shape = courses(evidence)[1]
    return () if shape.kind == "flat" or not max(shape.factor, 1 / shape.factor) > GROWN else (_in_words(shape),)
