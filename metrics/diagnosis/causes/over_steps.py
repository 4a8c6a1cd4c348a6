"""Faults that show in the course of the gap over the steps: syncs that never happened, stopped, or were left out."""

from dataclasses import replace

import numpy as np

from ..cause import Cause, Parameter, Result, absent, undecided
from ..evidence import Evidence
from ..factors import times
from ..fits import prompts
from ..raised_steps import LEAST_SPAN
from ..share import share_explained, undone_by_leaving
from ..subset_faults import CLEAR_LABEL, FEW_TOKENS, log_sizes, mean_by, ratio_of, subset_fault
from .courses import GROWN, courses, high_tokens, history_of, is_early, is_of_few, raised_of, raised_words, tested
from .sources import LEAST_RATIO, few_sequences

LEAST_LONG = 8
"""Steps that a small lasting factor needs."""
OF_ALL = 0.8
"""Part of the prompts of high steps, and of low ones, that have the level of their step if a sync sets it. A convention."""
EARLY = 0.25
"""An adapter, or a state that ages, makes the gap grow from within this part of the steps on. A convention."""


def passing_change(evidence: Evidence) -> Result:
    """The gap is larger at some spans of steps, has one level there, and falls back after one of them at least."""
    raised, shown = raised_of(evidence), f"{LEAST_SPAN} steps with three times the gap of the others would show"
    if raised is None:
        return Result(False, "at no span of steps the gap has another level from which it falls back", shown)
    bad = raised.among(evidence.facts["step"]) if evidence.has("step") else np.zeros(len(evidence), np.bool_)
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS:
        return undecided(f"{raised_words(raised)}, and no token of one of the two levels was read")
    if part := few_sequences(evidence.kept(bad)):
        return Result(False, f"{raised_words(raised)}, but only in {part:.0%} of the sequences", shown)
    if is_of_few(evidence, bad, raised.factor):
        return Result(
            False, f"{raised_words(raised)}, but only at rare tokens: the others are as close as before", shown
        )
    unknown = "other weights, another setting or other data may come and go"
    parameters: dict[str, Parameter] = {
        "steps": raised.words,
        "factor": round(raised.factor, 2),
        "times": times(raised.factor),
    }
    share = share_explained(evidence, undone_by_leaving(evidence, bad))
    kept = evidence.kept(~bad)
    return Result(True, raised_words(raised), shown, share, kept, parameters, bad=bad, doubts=(unknown,))


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
    return tested(
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
    return tested(
        evidence,
        ("rise",),
        lambda s: s.from_start and s.factor > GROWN,
        "the gap rises from step {step} on, {times} by the last step {error}",
        "a rise by three times from the first step on would show",
    )


def corrupted_load(evidence: Evidence) -> Result:
    """The gap jumps to another level at one step and stays there."""
    result = tested(
        evidence,
        ("jump",),
        lambda s: s.factor > GROWN,
        "the gap jumps at step {step} to {times} its level {error} and stays there",
        "a jump by three times at one step would show",
    )
    if not result.holds or "version_lag" in evidence.record.ruled_out or not is_early(evidence, courses(evidence)[1]):
        return result
    lag = "no version that the engine told excludes a lag, which reaches its size within the first steps"
    return replace(result, doubts=(*result.doubts, lag), alike=("version_lag", *reversed(result.alike)))


def sync_broke(evidence: Evidence) -> Result:
    """The gap leaves its level at one step and grows from there, or by the events on record regular syncs end there."""
    if evidence.record.syncs is not None and evidence.record.syncs.has_ended:
        return _without_due_sync(evidence)
    return tested(
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
    result = tested(
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
    high = high_tokens(evidence, history, courses(evidence)[1])
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
    return tested(
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
