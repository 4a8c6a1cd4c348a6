"""Faults that depend on the token: penalties for repeated tokens, and biases on single ids."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Integers

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence, distances, once, unit_sums
from ..fits import least_squares
from ..share import Share, share_explained, strata
from ..subset_faults import codes, far_off, log_sizes, mean_by, subset_fault

WITHIN = 3.0
"""A |x| above this counts as this, so that one token cannot decide."""
LEAST_REPEATED = 12
"""Uncertain tokens that must be repeated, and new, for the comparison."""
AVOIDED = 0.5
"""Share of the repeats by chance below which repeats are avoided."""
FEW = 10
"""Tokens of a stratum with a mean or median of their own."""
PENALTY = (5.0, 0.03)
"""(standard errors, nats) of a difference between repeated and new tokens that counts."""
LEAST_MEAN = 0.01
"""Mean log-ratio in nats by which the trainer expects new tokens less, from which on a text without repeats is penalised."""
ID = (5, 4.5)
"""(least tokens, standard errors) of an id whose mean x is not 0."""
LARGER, ROW, RARE = 0.7, 20.0, 0.08
"""Log size of an id above the mean, and ratio of the gaps, from which on its row of a matrix may differ; more tokens than this
share are not of few ids."""
PURE, CHANCE = 0.7, 1e-3
"""An id is pure if this part of its tokens is far off, beyond this chance over all ids."""
LEAST_SHARE = 0.1
"""Share of the gap that such ids must explain: in a large gap of another cause some ids are always off."""


def repeated(evidence: Evidence) -> Booleans:
    """True if the token's id stands earlier in its response."""
    order = np.lexsort((evidence.position, evidence.facts["token"], evidence.row))
    row, token = evidence.row[order], evidence.facts["token"][order]
    again = (
        np.concatenate(([False], (row[1:] == row[:-1]) & (token[1:] == token[:-1])))
        if len(order)
        else np.zeros(0, bool)
    )
    result = np.zeros(len(evidence), np.bool_)
    result[order] = again
    return result


def _never_repeated(evidence: Evidence, again: Booleans) -> Result | None:
    """The result of a penalty so strong that hardly any token is repeated; None if tokens are repeated.

    A text repeats its own words more often than sequences do whose words are dealt at random. The mass of the repeated tokens is
    with the new ones, so that the trainer gives these less.
    """
    # The ids with those at the same position dealt to other sequences, shape (tokens,).
    dealt = np.lexsort((np.random.default_rng(0).random(len(evidence)), evidence.position))
    tokens = np.empty(len(evidence), np.int64)
    tokens[np.lexsort((evidence.row_codes, evidence.position))] = evidence.facts["token"][dealt]
    chance = replace(evidence, facts={**evidence.facts, "token": tokens})
    expected = int(repeated(chance).sum())
    if again.sum() > AVOIDED * expected or expected - again.sum() < PENALTY[0] * np.sqrt(expected):
        return None
    x = np.clip(evidence.log_ratio, -WITHIN, WITHIN)
    mean = evidence.mean(x)
    error = float(np.sqrt((unit_sums(evidence, x - mean) ** 2).sum()) / evidence.weights.sum())
    stratum = strata(evidence)
    own = [evidence.log_ratio[~again & (stratum == k)] for k in range(int(stratum.max()) + 1)]
    medians = np.array([np.median(x) if len(x) >= FEW else 0.0 for x in own])
    moved = evidence.with_earlier(evidence.earlier + medians[stratum]).kept(~again)
    after = np.full(len(evidence), moved.mean(moved.distance))
    after[~again] = moved.distance
    effect = (
        f"{int(again.sum())} tokens are repeated, and {expected} would be if the tokens of each position were dealt to other "
        f"sequences; the mean log-ratio is {mean:+.3f} nats"
    )
    return Result(
        mean < -max(PENALTY[0] * error, LEAST_MEAN),
        effect,
        f"fewer than {AVOIDED:.0%} of the repeats by chance would show",
        share_explained(evidence, after),
        moved,
        {"difference": round(-mean, 3)},
        doubts=("so few tokens are repeated that their difference cannot be measured",),
    )


@once
def penalty(evidence: Evidence) -> Result:
    """A repetition or presence penalty: repeated tokens are less likely for the sampler than for the trainer, new ones more."""
    again = repeated(evidence)
    unsure = evidence.later < -0.1
    if (result := _never_repeated(evidence, again)) is not None:
        return result
    if min((again & unsure).sum(), (~again & unsure).sum()) < LEAST_REPEATED:
        return undecided(f"fewer than {LEAST_REPEATED} uncertain tokens are repeated ones")
    x, surprisal = np.clip(evidence.log_ratio, -WITHIN, WITHIN), -evidence.later
    columns = np.stack([again.astype(np.float64), np.ones(len(x)), surprisal, np.minimum(surprisal, 3.0) ** 2], axis=1)
    coefficients, errors = least_squares(columns[unsure], x[unsure], evidence.kept(unsure))
    difference, error = float(coefficients[0]), float(errors[0])
    classes = 2 * strata(evidence) + again
    means, counts = mean_by(classes, x, int(classes.max()) + 1)
    flat = mean_by(strata(evidence), x, int(classes.max()) + 1)[0]
    shift = np.where(counts >= FEW, means, 0.0)[classes]
    moved = evidence.log_ratio - shift
    share = share_explained(evidence, distances(moved))
    plain = share_explained(evidence, distances(evidence.log_ratio - flat[strata(evidence)]))
    holds = difference > PENALTY[0] * error and difference > PENALTY[1] and share.share - max(plain.share, 0) > 0.05
    return Result(
        holds,
        f"repeated tokens have a log-ratio {difference:+.3f} ± {error:.3f} nats above that of new tokens",
        f"a difference above {max(PENALTY[0] * error, PENALTY[1]):.2g} nats would show",
        share,
        evidence.with_earlier(evidence.later - moved),
        {"difference": round(difference, 3)} if holds else {},
    )


def biased_ids(evidence: Evidence) -> Result:
    """A few token ids have a bias: it is estimated in one half of the sequences and undone in the other half."""
    token, index = codes(evidence.facts["token"])
    row = evidence.row_codes
    x = np.clip(evidence.log_ratio, -WITHIN, WITHIN)
    stratum = strata(evidence)
    spread = np.array([x[stratum == k].std() if (stratum == k).any() else 1.0 for k in range(int(stratum.max()) + 1)])
    scaled = x / np.maximum(spread[stratum], 1e-12)
    moved, flagged = evidence.log_ratio.copy(), np.zeros(len(token), np.bool_)
    bias = np.zeros(len(token))
    for half in (0, 1):
        own = row % 2 == half
        sizes, counts = mean_by(index[own], scaled[own], len(token))
        means, _ = mean_by(index[own], x[own], len(token))
        clear: Booleans = (counts >= ID[0]) & (np.abs(sizes) * np.sqrt(counts) > ID[1])
        at = ~own & clear[index]
        moved[at] -= means[index[at]]
        flagged |= clear
        bias = np.where(clear, means, bias)
    share = share_explained(evidence, distances(moved))
    few = flagged.sum() <= max(8, 0.1 * len(token))
    largest = token[np.argsort(-np.abs(bias), kind="stable")][: min(5, int(flagged.sum()))]
    named = ", ".join(str(int(value)) for value in largest)
    holds = bool(flagged.any() and few and share.z > 4 and share.share > LEAST_SHARE)
    kept: Booleans = ~flagged[index]
    return Result(
        holds,
        _biases(int(flagged.sum()), named, share),
        f"ids with at least {ID[0]} tokens and a mean beyond {ID[1]} standard errors that explain {LEAST_SHARE:.0%} of the gap "
        "would show",
        share,
        evidence.kept(kept),
        {"ids": named} if holds else {},
    )


@once
def row_tokens(evidence: Evidence) -> tuple[str, Booleans, str]:
    """(the place of the bad tokens against some ids, the tokens there, the ids): few ids have large gaps, or bring them.

    Ids are found in one half of the sequences and used in the other half; seldom ones, if nearly all of their tokens are large.
    Rows of the output layer show at their own ids, rows of the embeddings at the token after them.
    """
    weighted = evidence.weights * evidence.distance
    before = np.where(np.diff(evidence.row, prepend=-1) == 0, np.roll(evidence.facts["token"], 1), -1)
    best: tuple[str, Booleans, str, float] = ("at", np.zeros(len(evidence), np.bool_), "", 0.0)
    for place, ids in (("at", evidence.facts["token"]), ("after", before)):
        token, index = codes(ids)
        bad, flagged = np.zeros(len(evidence), np.bool_), np.zeros(len(token), np.bool_)
        for half in (0, 1):
            own = evidence.row_codes % 2 == half
            if not own.any():  # of one sequence
                continue
            sizes = log_sizes(evidence)[own]
            means, counts = mean_by(index[own], sizes - sizes.mean(), len(token))
            clear: Booleans = (
                (counts >= ID[0]) & (means * np.sqrt(counts) > ID[1] * sizes.std()) & (means > LARGER) & (token >= 0)
            )
            bad |= ~own & clear[index]
            flagged |= clear
        pure = _pure(evidence, index, len(token)) & (token >= 0)
        bad, flagged = bad | pure[index], flagged | pure
        share = float(weighted[bad].sum() / max(weighted.sum(), 1e-300))
        if bad.any() and evidence.mean(bad) < RARE and share > best[3]:
            best = place, bad, ", ".join(map(str, token[flagged][:5].tolist())), share
    return best[:3]


def _pure(evidence: Evidence, index: Integers, ids: int) -> Booleans:
    """The ids of whose tokens so many are far off that no chance brings them together, shape (ids,).

    index: the id of each token, from 0 on. The bound is Chernoff's for a binomial count, over all ids.
    """
    rare = far_off(evidence)
    counts, base = np.bincount(index, minlength=ids), max(float(rare.mean()), 1 / max(len(rare), 1))
    share = np.clip(np.bincount(index, rare, minlength=ids) / np.maximum(counts, 1), 1e-12, 1 - 1e-12)
    apart = share * np.log(share / base) + (1 - share) * np.log((1 - share) / max(1 - base, 1e-12))
    return np.asarray((share > PURE) & (counts * apart > np.log(ids / CHANCE)), np.bool_)


def token_rows(evidence: Evidence) -> Result:
    """Few ids have nearly the whole gap, with either sign, or the tokens right after them have."""
    place, bad, ids = row_tokens(evidence)
    if not bad.any():
        return absent("no few ids have a larger gap than the others, at their own tokens or right after them")
    words, parameters = f"tokens {place} the ids {ids}", {"ids": f"{place} ids {ids}"}
    result = subset_fault(evidence, bad, words, ROW, parameters, by_size=True)
    return replace(result, alike=("biased_ids",)) if place == "at" else result


def _biases(number: int, named: str, share: Share) -> str:
    """The number of ids that are off, and their share of the gap: few ids that explain nothing are no bias."""
    if not number:
        return f"no id with {ID[0]} tokens has a mean log-ratio that is not 0"
    is_one, more = number == 1, ", …" if number > 5 else ""
    ids = f"the token id {named} has" if is_one else f"{number} token ids ({named}{more}) have"
    error = f" ± {100 * share.error:.1g}%" if share.error < 1 else ""
    explained = f"{share.share:.0%}{error}" if share.share > 0.005 else "none"
    return f"{ids} a mean log-ratio that is not 0 and {'explains' if is_one else 'explain'} {explained} of the gap"


CAUSES = (
    Cause(
        "penalty",
        "a repetition or presence penalty acts on sampling alone",
        "changed numbers",
        penalty,
        "without the difference between repeated and new tokens",
        "The engine lowers the probability of tokens that it has seen; the trainer does not know.",
        "Set repetition_penalty 1, presence_penalty 0 and frequency_penalty 0.",
        "Read the sampling parameters of a request as the engine received it.",
        needs=("token",),
        partial="the undoing takes out the mean difference; the rest depends on the probability of all repeated tokens, which no "
        "record holds",
        estimate="{difference:+.2f} nats between repeated and new tokens",
        course="constant",
        mistaken_for={
            "trainer_temperature": "A temperature depends on the entropy, not on whether a token is repeated."
        },
    ),
    Cause(
        "biased_ids",
        "single token ids have a bias on one side",
        "cluster",
        biased_ids,
        "without the bias of these ids",
        "A logit bias, a resized vocabulary or a stale row of the output layer changes a few ids on one side.",
        "Compare the rows of the output layer for these ids on both sides, and the logit_bias of the requests.",
        "Look the ids up in the tokenizer: special tokens and the newest ids point to a resized vocabulary.",
        needs=("token",),
        estimate="ids {ids}",
        alike=("token_rows",),
        mistaken_for={"end_token": "A fault of the last token alone has the id of the end token."},
    ),
    Cause(
        "token_rows",
        "few token ids carry the gap: their rows of the embeddings or of the output layer differ",
        "cluster",
        token_rows,
        "without the tokens of these ids",
        "The two sides have other rows for these ids: a vocabulary that was resized, padded or split in another way, or rows "
        "that a sync left out. A ban or a grammar that one side applies touches few ids, too.",
        "Compare the shapes and the rows of the embeddings and of the output layer for these ids on both sides.",
        "Compare a digest of the embeddings and of the output layer, whole and by shard.",
        needs=("token",),
        estimate="{ids}",
        alike=("biased_ids",),
        mistaken_for={"biased_ids": "A logit bias moves an id by one amount; another row moves it by the context."},
    ),
)
