"""Faults that a column of the record names: cached prompts, old keys and values, media, packing, other experts, other ids.

Each label splits the tokens in two: those that may have the fault, and the others. The undoing keeps the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ratioscope.arrays import Array, Booleans

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence
from ..subset_faults import CLEAR_LABEL, behind, subset_fault


@dataclass(frozen=True)
class Label:
    """One column of the record as a split of the tokens."""

    fact: str
    """The fact of the evidence."""
    bad: Callable[[Array], Booleans]
    """Value of each token -> whether the token may have the fault. An unknown value may not."""
    words: str
    """The tokens that may, as a plural subject."""
    none: str
    """The record in words if no token may."""
    least: float = 1.3
    """The least ratio of the gaps that counts as a fault."""
    behind: bool = False
    """True if one such token makes every token behind it suspect."""


def labelled(label: Label, evidence: Evidence) -> Result:
    """The test of one label: its tokens have a larger gap than the others of equal probability."""
    bad = label.bad(evidence.facts[label.fact])
    if label.behind and bad.any():
        bad = behind(evidence, bad)
    if not bad.any():
        return absent(label.none)
    if bad.all():
        return undecided(f"all tokens are {label.words}: none shows the gap without it")
    return subset_fault(evidence, bad, label.words, label.least, clear=CLEAR_LABEL)


def _above_zero(values: Array) -> Booleans:
    return np.asarray(values > 0)


def _below_one(values: Array) -> Booleans:
    return np.asarray(values < 1)


CACHED = Label("cached", _above_zero, "tokens of sequences with a cached prompt", "no sequence had a cached prompt")
OLD_KEYS = Label(
    "kv_age", _above_zero, "tokens with keys and values of older weights than their own",
    "every token has keys and values of its own weights",
)  # fmt: skip
MEDIA = Label("media", _above_zero, "tokens of sequences with media", "no sequence has media")
PACKED = Label(
    "pack", _above_zero, "tokens of sequences behind another in a packed row", "every sequence is the first of its row"
)
ROUTED = Label(
    "router", _below_one, "tokens for which the two sides chose different experts",
    "both sides chose the same experts for every token", 2.0,
)  # fmt: skip
OTHER_IDS = Label(
    "other_id", _above_zero, "tokens from the first id on that is not the sampled one",
    "every trained id is the sampled one", 2.0, behind=True,
)  # fmt: skip

CAUSES = (
    Cause(
        "cached_prefix",
        "sequences with a cached prompt differ",
        "recorded label",
        partial(labelled, CACHED),
        "with the sequences without cached tokens only",
        "The engine took a part of the prompt from its prefix cache. Its keys and values are of older weights, or were computed "
        "in another way.",
        "Reset the prefix cache at each weight sync, or salt it with the version.",
        "Repeat one step with the prefix cache off: the gap must fall to that of sequences without cached tokens.",
        needs=("cached",),
        mistaken_for={
            "outlier_prompts": "Cached prompts are often long and popular: compare a long prompt that was not cached."
        },
    ),
    Cause(
        "old_keys",
        "tokens were sampled with keys and values of older weights",
        "recorded label",
        partial(labelled, OLD_KEYS),
        "with the tokens whose keys and values are of their own weights only",
        "The weights changed while sequences were being sampled, and the keys and values of earlier tokens stayed.",
        "Recompute the keys and values at a weight sync, or let running sequences end before it.",
        "Repeat one step with the cache recomputed at each sync.",
        needs=("kv_age",),
        mistaken_for={
            "version_lag": "A lag of the policy shows in tokens whose keys and values are as old as their weights, too."
        },
    ),
    Cause(
        "media",
        "sequences with media differ",
        "recorded label",
        partial(labelled, MEDIA),
        "with the sequences without media only",
        "The two sides read images, videos or sounds differently: another processor, another number of placeholder tokens, or "
        "positions of media that differ.",
        "Hand the processed media and their token ids to both sides; use one version of the processor.",
        "Compare the number of placeholder tokens, and the first features, of one image on both sides.",
        needs=("media",),
        course="constant",
        mistaken_for={"outlier_prompts": "Outlier prompts without media show another cause."},
    ),
    Cause(
        "packing_leak",
        "sequences behind others in a packed row differ",
        "recorded label",
        partial(labelled, PACKED),
        "with the first sequences of packed rows only",
        "The trainer packs several sequences into a row, and a later one sees those before it: by attention, by positions that "
        "go on, or by a convolution or state that is not reset.",
        "Give the attention the bounds of sequences (cu_seqlens), begin positions at 0 for each, and reset states.",
        "Score the same sequences one per row: the gap must fall to that of the first ones.",
        needs=("pack",),
        course="constant",
        mistaken_for={"outlier_sequences": "With the place in the row on record a leak shows by place."},
    ),
    Cause(
        "other_experts",
        "the two sides chose different experts for some tokens",
        "recorded label",
        partial(labelled, ROUTED),
        "with the tokens of equal experts only",
        "In a mixture of experts the engine and the trainer send these tokens through different experts.",
        "Replay the engine's routes in the trainer (R3), and check that the replay is not inert.",
        "Repeat one step with routing replay on.",
        needs=("router",),
        mistaken_for={"router_flips": "Without the agreement on record the same fault shows as rare tokens."},
    ),
    Cause(
        "other_ids",
        "other ids were trained than were sampled",
        "recorded label",
        partial(labelled, OTHER_IDS),
        "with the tokens before such an id only",
        "A response was decoded and encoded again, or its ids were changed, before training. The tokens behind such an id have "
        "another context, too.",
        "Keep the sampled ids through all turns. Never decode and encode a response before training.",
        "Compare sampled_ids and token_ids of one sequence up to the first difference.",
        needs=("other_id",),
        course="constant",
        mistaken_for={
            "retokenised": "Without the sampled ids on record the same fault shows from a point of each sequence on."
        },
    ),
)
