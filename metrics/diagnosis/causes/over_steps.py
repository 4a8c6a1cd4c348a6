"""Faults that show in the course of the gap over the steps: syncs that never happened, stopped, or were left out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans

from ..cause import Cause, Parameter, Result, absent, undecided
from ..evidence import Evidence, once
from ..factors import error_words, times
from ..history import LEAST_STEPS, Course, History, course
from ..raised_steps import LEAST_SPAN, RaisedSteps, raised_steps
from ..share import Share, level_ratios, share_explained, undone_by_leaving
from ..subset_faults import FEW_TOKENS, codes
from .numerics import is_noise, noise
from .sources import few_sequences

LEAST_LONG = 8
"""Steps that a small lasting factor needs."""
MOSTLY = 0.8
"""A change keeps its course if at a fixed mix of probabilities this part of its log factor is left; else the rest has its own."""
GROWN = 3.0
"""A gap that grew by less than this factor is a lasting change, not a missing sync."""


@once
def history_of(evidence: Evidence) -> History | None:
    """The history of the run if it is known, else that of the evidence's own steps; None without steps."""
    if evidence.history is not None:
        return evidence.history
    if not evidence.has("step"):
        return None
    steps, index = codes(evidence.facts["step"])
    ratios, errors, counts = level_ratios(evidence, index)
    return History(steps, ratios * (evidence.mean(evidence.distance) or 1e-300), errors, counts.astype(np.float64))


@once
def _courses(evidence: Evidence) -> tuple[Course, Course]:
    """(the course of the gap, the part of it that is not another mix of tokens)."""
    history = history_of(evidence)
    if history is None:
        return Course("flat"), Course("flat")
    own = course(history)
    if history.fixed_mix is None or own.kind == "flat":
        return own, own
    fixed = course(replace(history, level=history.fixed_mix))
    grown, without_mix = np.log(own.factor), np.log(fixed.factor)
    if fixed.kind == "flat" or grown * without_mix < 0:
        return own, Course("flat")
    return own, own if abs(without_mix) >= MOSTLY * abs(grown) else fixed


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
    if shape.kind not in kinds or not fits(shape):
        return Result(False, _in_words(shape), shown)
    if evidence.has("step") and (part := few_sequences(evidence.kept(evidence.facts["step"] >= shape.onset))):
        return Result(False, f"{_in_words(shape)}, but only in {part:.0%} of the sequences", shown)
    bad = evidence.facts["step"] >= shape.onset if evidence.has("step") else np.ones(len(evidence), np.bool_)
    if shape.kind == "sawtooth" or (~bad).sum() < FEW_TOKENS:
        bad = np.ones(len(evidence), np.bool_)
    share = _at_level_before(evidence, bad, shape)
    parameters: dict[str, Parameter] = {
        "step": shape.onset,
        "factor": round(shape.factor, 2),
        "times": times(shape.factor),
    }
    return Result(True, words.format(**_numbers(shape)), shown, share, evidence.kept(~bad), parameters, bad=bad)


def _at_level_before(evidence: Evidence, bad: Booleans, shape: Course) -> Share:
    """The share of the gap that vanishes if the bad tokens have the level of the others; without any, the course's floor."""
    before = evidence.kept(~bad)
    floor = before.mean(before.distance) if len(before) else shape.floor
    share = share_explained(evidence, np.where(bad, floor, evidence.distance))
    if not share.before:
        return share
    return replace(share, error=min(float(np.hypot(share.error, shape.error * share.after / share.before)), 1.0))


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
    parameters: dict[str, Parameter] = {
        "steps": raised.words,
        "factor": round(raised.factor, 2),
        "times": times(raised.factor),
    }
    share = share_explained(evidence, undone_by_leaving(evidence, bad))
    return Result(True, _raised_in_words(raised), shown, share, evidence.kept(~bad), parameters, bad=bad)


def _numbers(shape: Course) -> dict[str, object]:
    return {
        "step": shape.onset,
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
            return f"the gap is {times(shape.factor)} as large from step {shape.onset} on"


def _fresh(evidence: Evidence) -> bool:
    """True if no token is older than the newest weights, as far as versions are on record."""
    return not evidence.has("lag") or bool((evidence.facts["lag"] == 0).all())


def never_synced(evidence: Evidence) -> Result:
    """The gap rises from the first step on, although the recorded versions say that the weights are fresh."""
    if not _fresh(evidence):
        return absent("the recorded lag is not always 0: the version lag is tested instead")
    shape = _courses(evidence)[1]
    if shape.is_steady and is_noise(evidence.mean(evidence.distance), noise(evidence)):
        return absent(f"{_in_words(shape)}, and is as small and as regular as rounding is")
    return _tested(
        evidence,
        ("rise",),
        lambda s: s.from_start and s.factor > GROWN,
        "the gap rises from step {step} on, {times} by the last step {error}",
        "a rise by three times from the first step on would show",
    )


def corrupted_load(evidence: Evidence) -> Result:
    """The gap jumps to another level at one step and stays there."""
    return _tested(
        evidence,
        ("jump",),
        lambda s: s.factor > GROWN,
        "the gap jumps at step {step} to {times} its level {error} and stays there",
        "a jump by three times at one step would show",
    )


def sync_broke(evidence: Evidence) -> Result:
    """The gap leaves its level at one step and grows from there."""
    return _tested(
        evidence,
        ("rise",),
        lambda s: s.factor > GROWN and not s.from_start,
        "the gap leaves its level at step {step} and grows {times} from there {error}",
        "a rise by three times from a later step on would show",
    )


def missed_syncs(evidence: Evidence) -> Result:
    """The gap rises and is reset again and again: some updates pass without a sync."""
    return _tested(
        evidence,
        ("sawtooth",),
        lambda s: s.resets > 1,
        "from step {step} on the gap rises up to {times} and falls back {resets} times",
        "two falls to less than a third of its size between neighbouring steps would show",
    )


def lasting_change(evidence: Evidence) -> Result:
    """The gap changes its level by a small factor and keeps it."""
    history = history_of(evidence)
    if history is None or len(history.steps) < LEAST_LONG:
        return undecided(f"a small lasting factor needs {LEAST_LONG} steps")
    return _tested(
        evidence,
        ("jump", "rise"),
        lambda s: 1 < s.factor <= GROWN and not s.is_steady,
        "the gap is {times} {error} as large from step {step} on",
        "a lasting factor beyond five standard errors would show",
    )


CAUSES = (
    Cause(
        "never_synced",
        "the engine never got the trained weights",
        "place",
        never_synced,
        "at the level of the first steps",
        "The sampler stays at the weights of the start while the trainer moves on. The gap grows with every update.",
        "Check that the sync sends the weights the engine uses: parameter names, the LoRA adapter's name, tied layers, "
        "sleep level.",
        "Compare a digest of one tensor of the engine with the trainer's after a sync.",
        estimate="{times} the gap from step {step} on",
        alike=("stale_prefix",),
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
        "Up to this step the sides agreed. Since then the engine has other weights or another configuration.",
        "Look at what happened at this step: a restart, a resume, a sleep level, a changed setting. Then sync again from "
        "the trainer.",
        "Force a full weight sync and look whether the gap returns to its level.",
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
        mistaken_for={
            "lasting_change": "A change of kernels or versions gives a small factor, a broken sync one that grows."
        },
    ),
    Cause(
        "corrupted_load",
        "the engine has had wrong weights since one step",
        "place",
        corrupted_load,
        "at the level before that step",
        "A load or sync put wrong weights into the engine: a missing or renamed tensor, a wrong layout, a stale tied "
        "layer, a sleep "
        "level that drops weights. Or a setting changed at this step.",
        "Load the weights into a fresh engine from a checkpoint, and compare all tensors of both engines.",
        "Compare a digest of each tensor of the engine with the trainer's, lm_head and embeddings first.",
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
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
        estimate="up to {times} between syncs",
        mistaken_for={"version_lag": "With versions on record the lag explains the sawtooth."},
    ),
    Cause(
        "passing_change",
        "something that comes and goes changes the gap",
        "place",
        passing_change,
        "with the other steps only",
        "At these steps the engine had other weights or another setting, or other data came. Before and after them the sides "
        "are as close as ever.",
        "Look at what began and what ended it: a restart, a sync that failed and the next that did not, a changed setting, other "
        "data.",
        "Score the batch of such a step again with the weights and settings of a good step: the gap must be gone.",
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
        estimate="{times} the gap from step {step} on",
        localises="from step {step} on",
        mistaken_for={"sync_broke": "A broken sync grows without end."},
    ),
)
