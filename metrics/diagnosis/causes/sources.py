"""Faults of a part of the sequences: of one lag, one replica, some prompts, or a cluster that no recorded label explains."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence, once
from ..factors import LARGEST, rank_among_equals, split_in_two
from ..fits import correlation, repeats
from ..on_record import LAG_ABOVE
from ..share import level_ratios
from ..subset_faults import CLEAR_LABEL, FEW_TOKENS, behind, codes, log_sizes, mean_by, subset_fault

LEAST_RATIO = 1.3
"""A lag, replica or turn with a smaller ratio than this is no fault."""
FURTHER = 1.5
"""The tokens behind older ones count with them if they explain so many times as much. A convention."""
REPEATABLE = 0.5
"""Correlation between two halves of the tokens of a sequence or prompt from which on a cluster is real."""
APART = 5.0
"""Sequences whose gap is so many times that of the others are a class of their own."""
FEW = 0.4
"""A class with more than this share of the sequences is no small part of them."""
LEAST_ROWS = 16
VARIES = 0.25
"""Variance of a side between equal tokens, relative to the squared gap and to the other side, from which on it varies alone."""
LONGER = 2.0
"""Ratio of mean lengths from which on the length may be what bad sequences share."""


def version_lag(evidence: Evidence) -> Result:
    """Tokens of older weights have a larger gap than those of the newest weights on record."""
    lags, index = codes(evidence.facts["lag"])
    if len(lags) < 2:
        lag = int(lags[0]) if len(lags) else 0
        if lag == 0:
            return Result(
                False,
                "every token is of the newest weights on record: the lag is 0",
                "a gap that grows with the lag would show",
            )
        return undecided(f"every token has lag {lag}: no token shows the gap without lag")
    least = int(np.argmin(np.abs(lags)))
    bad = index != least
    ratios, errors, _ = level_ratios(evidence, index)
    fact = {"most": int(lags.max()), "worst_lag": int(lags[int(np.argmax(ratios))])}
    course = ", ".join(
        f"lag {int(lag)}: {ratio / ratios[least]:.3g}"
        for lag, ratio in list(zip(lags, ratios, strict=True))[:6]
        if ratio < LARGEST * ratios[least]
    )
    result = subset_fault(
        evidence,
        bad,
        f"tokens with a lag other than {int(lags[least])}",
        LEAST_RATIO,
        fact,
        CLEAR_LABEL,
        by_size=True,
    )
    if result.share and (later := behind(evidence, bad)).sum() > bad.sum():
        # Newer weights read the keys and values that the older ones of this sequence left.
        words = "tokens of older weights, and those behind them in their sequences,"
        mixed = subset_fault(evidence, later, words, LEAST_RATIO, fact, CLEAR_LABEL, by_size=True)
        if mixed.holds and mixed.share and mixed.share.share > FURTHER * result.share.share:
            result = mixed
    allowed = evidence.record.settings.get(LAG_ABOVE)
    bound = f"; the settings on record allow a lag of at most {allowed}" if allowed else ""
    return replace(result, effect=f"{result.effect} ({course}){bound}") if course and not result.too_few else result


def stuck_replica(evidence: Evidence) -> Result:
    """One replica has a larger gap than all others."""
    return _one_of(evidence, "replica", "one replica sampled everything")


def odd_rank(evidence: Evidence) -> Result:
    """The sequences of one rank of the trainer have a larger gap than those of all others."""
    alone = "the record has one rank at most"
    return _one_of(evidence, "rank", alone) if evidence.has("rank") else absent(alone)


def _one_of(evidence: Evidence, fact: str, alone: str) -> Result:
    """The label of a fact with the largest gap, against all others. alone: the record in words if there is one label."""
    labels, index = codes(evidence.facts[fact])
    if len(labels) < 2:
        return absent(alone)
    ratios, _, counts = level_ratios(evidence, index)
    worst = int(np.argmax(np.where(counts >= FEW_TOKENS, ratios, 0)))
    names = evidence.names.get(fact, ())
    code = int(labels[worst])
    name = names[code] if 0 <= code < len(names) else str(code)
    return subset_fault(
        evidence, index == worst, f"tokens of {fact} {name}", LEAST_RATIO, {fact: name}, CLEAR_LABEL, True
    )


def _halves(evidence: Evidence, unit: Integers, half: Integers, least: int) -> tuple[float, Booleans, float] | None:
    """(correlation of the two halves, bad tokens, share of bad units); None if fewer than LEAST_ROWS / 2 units have both halves.

    A unit is bad in one half if the split of the other half says so.
    """
    size = int(unit.max()) + 1
    values = _within_steps(evidence, log_sizes(evidence))
    means, counts = zip(*(mean_by(unit[half == h], values[half == h], size) for h in (0, 1)), strict=True)
    known = (counts[0] >= least) & (counts[1] >= least)
    if known.sum() < LEAST_ROWS // 2:
        return None
    agreement = correlation(means[0][known], means[1][known])
    bad, shares = np.zeros(len(evidence), np.bool_), []
    stands_for = mean_by(unit, evidence.weights, size)[0]
    for h in (0, 1):
        high = known & (means[h] > split_in_two(means[h][known]))
        bad |= (half != h) & high[unit]
        shares.append(stands_for[high].sum() / stands_for[known].sum())
    return agreement, bad, float(np.mean(shares))


def _within_steps(evidence: Evidence, values: Floats) -> Floats:
    """The values less the mean of their step: a cluster is not the same as a bad step."""
    if not evidence.has("step"):
        return values
    _, step = codes(evidence.facts["step"])
    return values - mean_by(step, values, int(step.max()) + 1)[0][step]


@once
def outlier_prompts(evidence: Evidence) -> Result:
    """Some prompts have a large gap in every response."""
    _, group = codes(evidence.facts["group"])
    starts = evidence.starts
    of_row = group[starts]
    rank = rank_among_equals(of_row)
    row = evidence.row_codes
    halves = _halves(evidence, group, rank[row] % 2, 8)
    if halves is None:
        return undecided("fewer than 8 prompts have two responses")
    agreement, bad, share = halves
    result = subset_fault(
        evidence, bad, f"the responses of {share:.0%} of the prompts", APART, {"prompts": f"{share:.0%}"}
    )
    return _if_repeatable(result, agreement, "prompt")


def outlier_sequences(evidence: Evidence) -> Result:
    """A part of the sequences has a larger gap from its first to its last token, and no recorded label explains which."""
    if evidence.has("group") and outlier_prompts(evidence).holds:
        return absent("the bad sequences are all those of some prompts")
    row = evidence.row_codes
    halves = _halves(evidence, row, evidence.position % 2, 3)
    if halves is None:
        return undecided(f"fewer than {LEAST_ROWS // 2} sequences have 6 tokens")
    agreement, bad, share = halves
    result = subset_fault(evidence, bad, f"{share:.0%} of the sequences", APART, {"sequences": f"{share:.0%}"})
    result = _if_repeatable(result, agreement, "sequence")
    words = f"{_lengths_in_words(evidence, bad)}{_varying(evidence)}"
    return replace(result, effect=f"{result.effect}{words}") if result.holds else result


def _varying(evidence: Evidence) -> str:
    """The side that does not repeat its own log-probs, in words; empty if both do or neither does."""
    if not evidence.has("group", "token"):
        return ""
    found = repeats(evidence)
    sides = {"sampler": (found.earlier, found.later), "trainer": (found.later, found.earlier)}
    named = [name for name, (own, other) in sides.items() if own > VARIES and other < VARIES * own]
    if not named or found.tokens < FEW_TOKENS:
        return ""
    return f"; the {named[0]} gives the same token after the same ids several log-probs, and the other side one"


def _lengths_in_words(evidence: Evidence, bad: Booleans) -> str:
    """The mean length of the bad sequences beside that of the others; empty unless one is twice the other."""
    lengths = np.maximum.reduceat(evidence.position, evidence.starts) + 1
    is_bad = mean_by(evidence.row_codes, bad.astype(np.float64), len(lengths))[0] > 0.5
    if is_bad.all() or not is_bad.any():
        return ""
    own, others = float(lengths[is_bad].mean()), float(lengths[~is_bad].mean())
    apart = max(own, others) >= LONGER * min(own, others)
    return f"; they have {own:.0f} tokens on average, and the others {others:.0f}" if apart else ""


def few_sequences(evidence: Evidence) -> float | None:
    """Share of the sequences that have nearly the whole gap, if they are clearly apart from the others; else None."""
    if len(evidence) < FEW_TOKENS:
        return None
    row = evidence.row_codes
    halves = _halves(evidence, row, evidence.position % 2, 3)
    if halves is None or halves[0] <= REPEATABLE or halves[2] > FEW:
        return None
    result = subset_fault(evidence, halves[1], "sequences", APART)
    return halves[2] if result.holds else None


def _if_repeatable(result: Result, agreement: float, unit: str) -> Result:
    if result.too_few:
        return result
    effect = f"{result.effect}; two halves of a {unit} correlate at {agreement:.2f}"
    return replace(result, holds=result.holds and agreement > REPEATABLE, effect=effect)


def worst_turn(evidence: Evidence) -> Result:
    """Later turns have a larger gap than the first one."""
    turns, index = codes(evidence.facts["turn"])
    if len(turns) < 2:
        return absent("every response has one turn")
    return subset_fault(evidence, index > 0, "tokens after the first turn", 2.0, {"turns": len(turns)}, CLEAR_LABEL)


CAUSES = (
    Cause(
        "version_lag",
        "the sampler's weights are older than the trainer's",
        "recorded label",
        version_lag,
        "with the tokens of the newest weights only",
        "Asynchronous training samples with weights of earlier updates. The gap grows with the lag and is small without it.",
        "Sync weights more often, lower the allowed lag, or take fewer updates per batch.",
        "Run some steps with a sync before every batch: the gap must fall to that of lag 0.",
        needs=("lag",),
        estimate="up to {most} updates",
        follows_from=("sync_broke", "missed_syncs"),
        mistaken_for={"never_synced": "Without any sync the gap does not depend on the recorded lag."},
    ),
    Cause(
        "stuck_replica",
        "one replica samples with other weights than the rest",
        "recorded label",
        stuck_replica,
        "without the worst replica",
        "A replica missed a weight sync, or has another precision or kernel.",
        "Restart the replica, and check that each sync waits for its answer.",
        "Compare a digest of one tensor between this replica and another one.",
        needs=("replica",),
        estimate="replica {replica}",
        localises="at replica {replica}",
        mistaken_for={"outlier_prompts": "Outlier prompts are bad on every replica."},
    ),
    Cause(
        "odd_rank",
        "one rank, or the engine beside it, computes with other weights than the rest",
        "recorded label",
        odd_rank,
        "without the worst rank",
        "A rank has other weights, another precision or a failing device, or the engine beside it has.",
        "Restart the rank, and look whether it loads the same checkpoint and the same settings as the others.",
        "Compare a digest of each tensor of this rank and of its engine with those of another rank.",
        estimate="rank {rank}",
        localises="at rank {rank}",
        mistaken_for={
            "stuck_replica": "With the replica on record, a replica that serves several ranks shows by name."
        },
    ),
    Cause(
        "worst_turn",
        "later turns of a conversation differ",
        "recorded label",
        worst_turn,
        "with the first turn only",
        "The history of a conversation is rendered differently on the two sides: dropped thinking, tool text or "
        "re-encoded turns.",
        "Append the sampled ids of each turn to the context; do not render the conversation anew.",
        "Compare the ids before the second turn on both sides.",
        needs=("turn",),
        localises="after the first turn",
        mistaken_for={"retokenised": "Re-encoding shows within a turn, too."},
    ),
    Cause(
        "outlier_prompts",
        "some prompts differ in every response",
        "cluster",
        outlier_prompts,
        "without the worst prompts",
        "Whole responses of the same prompts are bad: the two sides read these prompts differently (truncation, media, "
        "template), or one replica served them, or kernels fail for their shape.",
        "Look for the property that the bad prompts share on Samples, tab Sequences: length, media, system prompt, language.",
        "Score one bad and one good prompt alone, in a batch of one.",
        needs=("group",),
        estimate="{prompts} of the prompts",
        localises="in {prompts} of the prompts",
        alike=("stuck_replica", "packing_leak"),
        mistaken_for={"stuck_replica": "A stuck replica is bad for all prompts it serves."},
    ),
    Cause(
        "outlier_sequences",
        "a part of the sequences differs, and no recorded label explains which",
        "cluster",
        outlier_sequences,
        "without the worst sequences",
        "Sequences fall into a clean and a bad class that no column separates: a replica, a version, the place in a packed "
        "row, media, or responses that were encoded again.",
        "Record the replica, the version and the environment of each sequence, and look at the classes again.",
        "Compare hosts, lengths and prompts of ten bad and ten good sequences on Samples, tab Sequences.",
        estimate="{sequences} of the sequences",
        localises="in {sequences} of the sequences",
        alike=("stuck_replica", "packing_leak"),
        mistaken_for={"stuck_replica": "With the replica on record a stuck one shows by name."},
    ),
)
