"""Faults that show in the course of the gap over the steps: syncs that never happened, stopped, or were left out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Cause, Parameter, Result, absent, undecided
from ..evidence import Evidence, once
from ..factors import error_words, times
from ..fading import fading
from ..fits import prompts
from ..history import LEAST_STEPS, Course, History, course
from ..raised_steps import LEAST_SPAN, RaisedSteps, raised_steps
from ..share import Share, level_ratios, share_explained, strata, undone_by_leaving
from ..sharpening import sharpening
from ..step_noise import log_error
from ..subset_faults import CLEAR_LABEL, FEW_TOKENS, codes, log_sizes, mean_by, ratio_of, subset_fault
from .numerics import is_noise, noise
from .sources import LEAST_RATIO, few_sequences

LEAST_LONG = 8
"""Steps that a small lasting factor needs."""
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
OF_ALL = 0.8
"""Part of the prompts of high steps, and of low ones, that have the level of their step if a sync sets it. A convention."""
EARLY = 0.25
"""An adapter, or a state that ages, makes the gap grow from within this part of the steps on. A convention."""
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
def _courses(evidence: Evidence) -> tuple[Course, Course]:
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


def _tested(
    evidence: Evidence, kinds: tuple[str, ...], fits: Callable[[Course], bool], words: str, shown: str
) -> Result:
    history = history_of(evidence)
    if history is None or len(history.steps) < LEAST_STEPS:
        steps = 0 if history is None else len(history.steps)
        return undecided(f"too few steps to have a course: {steps}, and {LEAST_STEPS} are needed")
    if (raised := _raised(evidence)) is not None:
        return Result(False, _raised_in_words(raised), shown)
    own, shape = _courses(evidence)
    if own.kind != "flat" and shape.kind == "flat":
        return Result(False, f"{_in_words(own)}, and only because the mix of probabilities changes", shown)
    if _is_rounding(evidence, shape):
        return Result(False, f"{_in_words(shape)}, and is as small and as regular as rounding is", shown)
    told = next((each for each in (shape, *shape.alternatives) if each.kind in kinds and fits(each)), None)
    if told is None:
        return Result(False, _in_words(shape), shown)
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
        return Result(False, f"{_in_words(shape)}, but only in {part:.0%} of the sequences", shown)
    bad = evidence.facts["step"] >= shape.onset if evidence.has("step") else np.ones(len(evidence), np.bool_)
    if shape.kind == "sawtooth" or (~bad).sum() < FEW_TOKENS:
        bad = np.ones(len(evidence), np.bool_)
    if evidence.has("step") and _is_of_few(evidence, _high(evidence, history, shape), shape.factor):
        return Result(False, f"{_in_words(shape)}, but only at rare tokens: the others are as close as before", shown)
    share = _at_level_before(evidence, bad, shape)
    if shape.of_sizes and share.share <= 2 * share.error:
        return Result(False, f"{_in_words(shape)}, which explains no clear part of the gap", shown)
    parameters: dict[str, Parameter] = {
        "step": shape.onset,
        "factor": round(shape.factor, 2),
        "times": times(shape.factor),
    }
    kept, effect = evidence.kept(~bad), words.format(**_numbers(shape))
    alike = OF_PROMPTS if _is_early(evidence, shape) and fading(evidence).z < -FADES else ()
    doubts += (FADED,) if alike else ()
    return Result(True, effect, shown, share, kept, parameters, bad=bad, doubts=doubts, fit=shape.fit, alike=alike)


def _is_early(evidence: Evidence, shape: Course) -> bool:
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


def _high(evidence: Evidence, history: History, shape: Course) -> Booleans:
    """The tokens of steps since the onset, of a sawtooth of those clearly above its foot."""
    if shape.kind != "sawtooth":
        return np.asarray(evidence.facts["step"] >= shape.onset)
    return np.isin(evidence.facts["step"], history.steps[history.level > GROWN * shape.floor])


def _is_of_few(evidence: Evidence, bad: Booleans, factor: float) -> bool:
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
def _raised(evidence: Evidence) -> RaisedSteps | None:
    """The spans of steps in which the gap is larger and after which it falls back; None if there are none."""
    history = history_of(evidence)
    return None if history is None else raised_steps(history)


def _raised_in_words(raised: RaisedSteps) -> str:
    return f"at {raised.words} the gap has {times(raised.factor)} its level at the other steps"


def passing_change(evidence: Evidence) -> Result:
    """The gap is larger at some spans of steps, has one level there, and falls back after one of them at least."""
    raised, shown = _raised(evidence), f"{LEAST_SPAN} steps with three times the gap of the others would show"
    if raised is None:
        return Result(False, "at no span of steps the gap has another level from which it falls back", shown)
    bad = raised.among(evidence.facts["step"]) if evidence.has("step") else np.zeros(len(evidence), np.bool_)
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS:
        return undecided(f"{_raised_in_words(raised)}, and no token of one of the two levels was read")
    if part := few_sequences(evidence.kept(bad)):
        return Result(False, f"{_raised_in_words(raised)}, but only in {part:.0%} of the sequences", shown)
    if _is_of_few(evidence, bad, raised.factor):
        return Result(
            False, f"{_raised_in_words(raised)}, but only at rare tokens: the others are as close as before", shown
        )
    unknown = "other weights, another setting or other data may come and go"
    parameters: dict[str, Parameter] = {
        "steps": raised.words,
        "factor": round(raised.factor, 2),
        "times": times(raised.factor),
    }
    share = share_explained(evidence, undone_by_leaving(evidence, bad))
    kept = evidence.kept(~bad)
    return Result(True, _raised_in_words(raised), shown, share, kept, parameters, bad=bad, doubts=(unknown,))


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
    shape = _courses(evidence)[1]
    return () if shape.kind == "flat" or not max(shape.factor, 1 / shape.factor) > GROWN else (_in_words(shape),)


def _fresh(evidence: Evidence) -> bool:
    """True if no token is older than the newest weights, as far as versions are on record."""
    return not evidence.has("lag") or bool((evidence.facts["lag"] == 0).all())


def _without_due_sync(evidence: Evidence) -> Result:
    """By the events on record: the gap is larger at the steps before which a due weight sync is missing."""
    broken = evidence.record.syncs
    assert broken is not None
    if not evidence.has("step"):
        return undecided("the tokens that were read have no step")
    bad, first = broken.among(evidence.facts["step"]), broken.due
    result = subset_fault(
        evidence, bad, "the tokens of steps without a due sync", LEAST_RATIO, {"step": first}, CLEAR_LABEL
    )
    if not result.holds:
        return result
    effect = f"{broken.words}; {result.effect}"
    if evidence.has("lag"):
        before, after = (int(evidence.facts["lag"][part].max()) for part in (~bad, bad))
        effect += f", and a lag of up to {after} updates, of up to {before} elsewhere"
    ratio = times(ratio_of(evidence, bad)[0])
    parameters: dict[str, Parameter] = {"step": first, "times": ratio}
    doubts = () if broken.is_sure else ("the events on record may not hold each sync",)
    return replace(result, effect=effect, parameters=parameters, on_record=broken.is_sure, doubts=doubts)


def _grown(evidence: Evidence) -> Result:
    """The gap grows from within the first quarter of the steps on. A setting has one level, and a corrupted load has two."""
    history = history_of(evidence)
    begins = 0.0 if history is None or not len(history.steps) else float(np.quantile(history.steps, EARLY))
    return _tested(
        evidence,
        ("rise",),
        lambda s: s.onset <= begins and s.factor > GROWN,
        "the gap grows from step {step} on, {times} by the last step {error}",
        "a growth by three times would show",
    )


def ageing_state(evidence: Evidence) -> Result:
    """The gap grows, although by the record no weight changes."""
    result, fixed = _grown(evidence), evidence.record.fixed_weights
    if not result.holds:
        return result
    if not fixed:
        return undecided("it is not on record that the weights stayed the same")
    return replace(result, effect=f"{result.effect}, although {fixed}", doubts=(), alike=())


def adapter_scale(evidence: Evidence) -> Result:
    """The gap is small at first and grows with a low-rank adapter, which starts at zero."""
    result, adapter = _grown(evidence), evidence.record.adapter
    if not result.holds:
        return result
    if evidence.record.fixed_weights:
        return absent(f"the record rules it out: {evidence.record.fixed_weights}")
    if not _fresh(evidence):
        return absent("the recorded lag is not always 0: the version lag is tested instead")
    if not adapter:
        return undecided("no adapter is on record")
    is_delivered = "never_synced" in evidence.record.ruled_out
    doubts = () if is_delivered else ("without a digest it is not known whether the adapter was delivered",)
    return replace(result, effect=f"{result.effect}, with an adapter on record: {adapter}", doubts=doubts, alike=())


def never_synced(evidence: Evidence) -> Result:
    """The gap rises from the first step on, although the recorded versions say that the weights are fresh."""
    if not _fresh(evidence):
        return absent("the recorded lag is not always 0: the version lag is tested instead")
    return _tested(
        evidence,
        ("rise",),
        lambda s: s.from_start and s.factor > GROWN,
        "the gap rises from step {step} on, {times} by the last step {error}",
        "a rise by three times from the first step on would show",
    )


def corrupted_load(evidence: Evidence) -> Result:
    """The gap jumps to another level at one step and stays there."""
    result = _tested(
        evidence,
        ("jump",),
        lambda s: s.factor > GROWN,
        "the gap jumps at step {step} to {times} its level {error} and stays there",
        "a jump by three times at one step would show",
    )
    if not result.holds or "version_lag" in evidence.record.ruled_out or not _is_early(evidence, _courses(evidence)[1]):
        return result
    lag = "no version that the engine told excludes a lag, which reaches its size within the first steps"
    return replace(result, doubts=(*result.doubts, lag), alike=("version_lag", *reversed(result.alike)))


def sync_broke(evidence: Evidence) -> Result:
    """The gap leaves its level at one step and grows from there, or by the events on record regular syncs end there."""
    if evidence.record.syncs is not None and evidence.record.syncs.has_ended:
        return _without_due_sync(evidence)
    return _tested(
        evidence,
        ("rise",),
        lambda s: s.factor > GROWN and not s.from_start,
        "the gap leaves its level at step {step} and grows {times} from there {error}",
        "a rise by three times from a later step on would show",
    )


def missed_syncs(evidence: Evidence) -> Result:
    """The gap rises and is reset again and again: some updates pass without a sync, as the events on record may tell."""
    if (broken := evidence.record.syncs) is not None:
        return absent(f"the syncs end: {broken.words}") if broken.has_ended else _without_due_sync(evidence)
    if not _fresh(evidence):
        return absent("the recorded lag is not always 0: the version lag is tested instead")
    result = _tested(
        evidence,
        ("sawtooth",),
        lambda s: s.resets > 1,
        "from step {step} on the gap rises up to {times} and falls back {resets} times",
        "two falls to less than a third of its size between neighbouring steps would show",
    )
    return _unless_of_prompts(evidence, result) if result.holds and evidence.has("group", "step") else result


def _unless_of_prompts(evidence: Evidence, result: Result) -> Result:
    """The result of missed syncs, if nearly all prompts have the level of their step; with one a step it may be the prompt's."""
    history = history_of(evidence)
    assert history is not None
    prompt = prompts(evidence)
    high = _high(evidence, history, _courses(evidence)[1])
    sizes, _ = mean_by(prompt, log_sizes(evidence), int(prompt.max()) + 1)
    is_high = mean_by(prompt, high.astype(np.float64), len(sizes))[0] > 0
    parts = sizes[is_high], sizes[~is_high]
    if not min(map(len, parts)):
        return result
    middle = (parts[0].mean() + parts[1].mean()) / 2
    least = min((parts[0] > middle).mean(), (parts[1] < middle).mean())
    if least < OF_ALL:
        return Result(False, f"{result.effect}, but the prompts of a step have several levels", result.would_show)
    alone = len(sizes) < 2 * len(evidence.step_codes[0])
    return replace(result, alike=(*result.alike, "outlier_prompts")) if alone else result


def lasting_change(evidence: Evidence) -> Result:
    """The gap changes its level by a small factor and keeps it."""
    history = history_of(evidence)
    if history is None or len(history.steps) < LEAST_LONG:
        return undecided(f"a small lasting factor needs {LEAST_LONG} steps")
    return _tested(
        evidence,
        ("jump",),
        lambda s: 1 < s.factor <= GROWN,
        "the gap is {times} {error} as large from step {step} on",
        "a lasting factor beyond five standard errors would show",
    )


CAUSES = (
    Cause(
        "never_synced",
        "the weights of the two sides move apart from the first step on",
        "place",
        never_synced,
        "at the level of the first steps",
        "Each update of the trainer makes the gap larger: the engine does not get the trained weights or a part of them, such as "
        "an adapter, or one of the two sides applies a part otherwise than the other.",
        "Check that the sync sends the weights the engine uses: parameter names, the LoRA adapter's name, tied layers, "
        "sleep level; and that both sides apply an adapter with one scale.",
        "Compare a digest of each tensor of the engine with the trainer's after a sync: if they are equal, a side applies them "
        "otherwise.",
        course="grows",
        estimate="{times} the gap from step {step} on",
        alike=("stale_prefix",),
        sided={
            "engine": "the engine never got the trained weights",
            "trainer": "the trainer computes with other weights than it sends, more so with each update",
        },
        mistaken_for={
            "stale_prefix": "Old keys and values of the prompt grow, too; with cached_tokens on record they are seen.",
            "version_lag": "A lag on record explains the gap by its size; here the weights are fresh by the record.",
        },
    ),
    Cause(
        "sync_broke",
        "weight syncs broke at one step",
        "place",
        sync_broke,
        "at the level before that step",
        "Up to this step the sides agreed. Since then one of them has other weights or another configuration.",
        "Look at what happened at this step: a restart, a resume, a sleep level, a changed setting. Then sync again from "
        "the trainer.",
        "Force a full weight sync and look whether the gap returns to its level.",
        course="grows",
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
        mistaken_for={
            "lasting_change": "A change of kernels or versions gives a small factor, a broken sync one that grows."
        },
    ),
    Cause(
        "corrupted_load",
        "one of the two sides has had wrong weights since one step",
        "place",
        corrupted_load,
        "at the level before that step",
        "A load, a sync or a resume put wrong weights into one side: a missing or renamed tensor, a wrong layout, a stale tied "
        "layer, a sleep level that drops weights, an adapter that is merged or counted otherwise. Or a setting changed at this "
        "step.",
        "Load the weights into a fresh engine from a checkpoint, and compare all tensors of both engines and of the trainer.",
        "Compare a digest of each tensor of the engine with the trainer's, lm_head and embeddings first.",
        course="jumps",
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
        sided={
            "engine": "the engine has had wrong weights since one step",
            "trainer": "the trainer has had wrong weights since one step",
        },
        mistaken_for={
            "sync_broke": "Without syncs the gap grows with every update; wrong weights give a level at once.",
            "lasting_change": "A change of kernels or versions gives a small factor.",
        },
    ),
    Cause(
        "missed_syncs",
        "some updates pass without a weight sync",
        "place",
        missed_syncs,
        "at the level right after a sync",
        "The gap grows until the next sync and falls back. The recorded versions do not show it.",
        "Sync after every update, or record the version that each response was sampled with.",
        "Compare the steps of the falls with the times of the weight syncs.",
        course="resets",
        estimate="up to {times} between syncs",
        mistaken_for={"version_lag": "With versions on record the lag explains the sawtooth."},
    ),
    Cause(
        "adapter_scale",
        "one of the two sides counts the adapter otherwise than the other, or does not have it",
        "recorded label",
        adapter_scale,
        "at the level of the first steps",
        "A low-rank adapter starts at zero: at first the sides agree, and each update moves them apart. One side scales it "
        "otherwise, counts it once per tensor-parallel rank, merges it twice, or was never given it.",
        "Compare the scale (alpha / rank) and the merge of the adapter on both sides, and that each request names it.",
        "Score one batch with the adapter off on both sides: the gap must fall to that of the first step. Then score it with the "
        "adapter on one side only, and at another scale.",
        course="grows",
        estimate="{times} the gap at first",
        sided={
            "engine": "the engine counts the adapter otherwise than the trainer, or does not have it",
            "trainer": "the trainer counts the adapter otherwise than the engine",
        },
        mistaken_for={"never_synced": "Digests of the adapter's tensors are equal on both sides if it was delivered."},
    ),
    Cause(
        "ageing_state",
        "something in one of the two sides ages: the gap grows although the weights stay the same",
        "place",
        ageing_state,
        "at the level of the first steps",
        "No weight changes, so that no sync can mend it. A state that outlives steps grows old or adds up: caches, buffers that "
        "are rescaled at each wake-up, statistics, an adapter that is merged again and again.",
        "Restart the engine, then the trainer, and look at which restart the gap falls back; then look for the state that "
        "outlives a step there.",
        "Score one batch of the first step again now, with a fresh engine and with the running one.",
        course="grows",
        estimate="{times} the gap at first",
        sided={
            "engine": "something in the engine ages: the gap grows although the weights stay the same",
            "trainer": "something in the trainer ages: the gap grows although the weights stay the same",
        },
        mistaken_for={"corrupted_load": "Wrong weights give one level at once; what ages grows."},
    ),
    Cause(
        "passing_change",
        "something that comes and goes changes the gap",
        "place",
        passing_change,
        "with the other steps only",
        "At these steps one side had other weights or another setting, or other data came. Before and after them the sides "
        "are as close as ever.",
        "Look at what began and what ended it: a restart, a sync that failed and the next that did not, a changed setting, other "
        "data.",
        "Score the batch of such a step again with the weights and settings of a good step: the gap must be gone.",
        course="resets",
        estimate="{times} the gap at {steps}",
        localises="at {steps}",
        mistaken_for={"missed_syncs": "Without syncs the gap grows until the next one; here it has one level."},
    ),
    Cause(
        "lasting_change",
        "the level of the gap changed",
        "cluster",
        lasting_change,
        "at the level before that step",
        "A small and lasting factor points to a change of kernels, precision, versions or data, not to stale weights.",
        "Compare versions, settings and data before and after that step.",
        "Repeat a step from before with the new configuration.",
        course="jumps",
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
        mistaken_for={"sync_broke": "A broken sync grows without end."},
    ),
)
