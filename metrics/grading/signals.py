"""The table of graded signals: what is measured, where it turns watch and act, and who says so.

A signal grades what is left of a value after its uncertainty: two standard errors, on a log scale where the value is a
positive size, so that a small sample or a single enormous token proves nothing by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..metric import ALL_GAPS, SAMPLED, Values

Column = Callable[[str], Values]
"""Metric name -> its values of one gap, one per step; NaN where not available."""

ERRORS = 2.0
"""Standard errors between a value and the bound that is graded (convention: about 2.5 % by chance)."""
HARMLESS_K3 = 0.001
"""Below it no change relative to the floor is graded; "good" for dense bf16 models in published reading orders."""
HEALTHY_K3 = 0.01
"""Below it no change relative to the floor is more than watch. A floor that is not below it is none: the run began sick."""
OVER_FLOOR = (3.0, 10.0)
"""Times the floor from which on a gap is watch, and act."""
SAME = 1e-12
"""A floor below this is taken for it: what rounding leaves of equal float32 log-probs, so that growth from 0 is finite."""
CLEAR_SURPRISAL = 0.05
"""Nats of surprisal gap up to which no z, however large, is more than watch."""
SURPRISED = (4.0, 6.0)
"""z of the surprisal gap from which on it is watch, and act."""


@dataclass(frozen=True)
class Measured:
    """value: what is shown; tested: what is compared with the thresholds; floor: what it is relative to.

    bound: where the value is only a lower bound, because k-hat has failed or cannot be told.
    """

    value: Values
    tested: Values
    floor: Values | None = None
    bound: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Signal:
    """One row of the table. watch, act: least `tested` of each grade; None: never. lasting: two adjacent steps needed.

    reads: the metric without which it cannot be graded. size: how bad a value is, the larger the worse.
    shown: a format of {value}, {floor}, {times} (value / floor, in words) and {least} for the reading.
    """

    name: str
    reads: str
    title: str
    gaps: tuple[str, ...]
    measure: Callable[[Column, Values], Measured]
    watch: float
    act: float | None
    shown: str
    meaning: str
    remedy: str
    source: str
    lasting: bool = False
    size: Callable[[Values], Values] = np.abs
    limit: Callable[[float], float] = float
    """From a threshold of `tested` to the value of the metric `reads` at which it is reached."""


def at_least(value: Values, error: Values) -> Values:
    """A positive value less ERRORS standard errors, on a log scale. Without an error (one sequence) half of it."""
    relative = np.where(np.isfinite(error), error / value, np.log(2.0) / ERRORS)
    return np.where(value > 0, value * np.exp(-ERRORS * relative), value)


def _kl(column: Column, floor: Values) -> Measured:
    value = column("kl_k3")
    return Measured(value, at_least(value, column("kl_k3_se")))


def _kl_over_floor(column: Column, floor: Values) -> Measured:
    value = column("kl_k3")
    sure = at_least(value, column("kl_k3_se"))
    times = sure / np.maximum(np.where(floor < HEALTHY_K3, floor, np.nan), SAME)
    return Measured(value, np.where(sure < HEALTHY_K3, np.minimum(times, _harm(sure)), times), floor)


def _harm(k3: Values) -> Values:
    """How many times the floor a K3 may count for, by its size alone: watch from HARMLESS_K3 on, act from HEALTHY_K3 on.

    A power between the two, so that of two steps the one with the larger K3 is always the worse.
    """
    watch, act = OVER_FLOOR
    power = np.log(act / watch) / np.log(HEALTHY_K3 / HARMLESS_K3)
    return np.asarray(act * (k3 / HEALTHY_K3) ** power)


def _chi2_of_ess(level: str) -> Callable[[Column, Values], Measured]:
    def measure(column: Column, floor: Values) -> Measured:
        ess = column(f"ess_{level}")
        value = 1 / ess - 1
        error = column(f"ess_{level}_se") / ess**2
        # Without an error k-hat has failed: the sample shows too little of the tail, and the value is a lower bound.
        return Measured(value, np.where(np.isnan(error), value, at_least(value, error)), bound=np.isnan(error))

    return measure


def _share(metric: str) -> Callable[[Column, Values], Measured]:
    def measure(column: Column, floor: Values) -> Measured:
        value = column(metric)
        return Measured(value, at_least(value, column(f"{metric}_se")))

    return measure


def _share_of_tokens(count: str) -> Callable[[Column, Values], Measured]:
    def measure(column: Column, floor: Values) -> Measured:
        tokens = column("tokens") + column("non_finite")
        value = column(count) / np.where(tokens > 0, tokens, np.nan)
        return Measured(value, value)

    return measure


def _uncorrelated(column: Column, floor: Values) -> Measured:
    value = column("logprob_correlation")
    different = at_least(column("kl_k3"), column("kl_k3_se")) >= HEALTHY_K3
    # Where all probabilities are near 1 rounding alone decides the correlation, but then K3 is tiny.
    return Measured(
        value, np.where(different & (column("tokens") >= 200), 1 - value, np.where(np.isnan(value), np.nan, 0.0))
    )


def _dishonest(column: Column, floor: Values) -> Measured:
    z, mean = column("mean_weight_token_z"), column("mean_weight_token")
    return Measured(mean, np.where(np.abs(mean - 1) > 0.01, np.abs(z), 0.0 * z))


def _surprised(column: Column, floor: Values) -> Measured:
    z, gap = np.abs(column("surprisal_gap_z")), column("surprisal_gap")
    watch, act = SURPRISED
    size = np.abs(gap) / CLEAR_SURPRISAL
    # Of two gaps too small to be more than watch the larger is the worse.
    return Measured(gap, np.where(size > 1, z, np.minimum(z, watch + 0.999 * (act - watch) * size)))


def _ess_of_chi2(chi2: float) -> float:
    """The effective sample size at which 1/ess - 1 is chi2."""
    return 1 / (1 + chi2)


def _below_one(value: Values) -> Values:
    return 1 - value


def _off_one(value: Values) -> Values:
    return np.abs(value - 1)


_CATALOGUE = "root-cause catalogue: measured on injected faults"

SIGNALS: tuple[Signal, ...] = (
    Signal("non_finite", "non_finite", "logprobs are NaN or infinite", ALL_GAPS, _share_of_tokens("non_finite"), 0.001, 0.01,
           "{value:.2%} of the tokens have a logprob that is no number",
           "Tokens without a usable logprob are left out of every metric, and their sequences out of sequence metrics.",
           "Look for missing logprobs in the engine's response, float16 overflow, or a mask that covers unscored tokens.",
           f"0.1 % warn, 1 % fail; {_CATALOGUE}"),
    Signal("positive_logprobs", "positive_logprobs", "logprobs are positive",
           ALL_GAPS, _share_of_tokens("positive_logprobs"), 0.001, 0.01,
           "{value:.2%} of the tokens have a logprob above 0",
           "A log-probability cannot be positive: the column holds a filler, probabilities, or another quantity.",
           "Check what the engine writes where it has no logprob (+1.0 is a known filler) and which column is recorded.",
           f"0.1 % warn, 1 % fail; {_CATALOGUE}"),
    Signal("alignment", "logprob_correlation", "the two logprob lists are not of the same tokens",
           SAMPLED, _uncorrelated, 0.1, 0.5,
           "logprobs correlate at {value:.2f}",
           "The two policies do not score the same tokens in the same contexts.",
           "Look at shift_correlation_-2 to shift_correlation_+2: one near 1 means that the list is off by so many tokens. Else "
           "compare token ids, prompts and the chat template of both sides.",
           f"below 0.5 misaligned; 0.9 is a convention; {_CATALOGUE}", size=_below_one),
    Signal("mean_weight", "mean_weight_token_z", "the recorded logprobs are not those of the sampler",
           SAMPLED, _dishonest, 4.0, 5.0,
           "the mean weight is {value:.3f}, not 1",
           "Whatever the gap, weights average 1 if the earlier policy really sampled these tokens. Above: it reports raw "
           "logprobs but sampled at another temperature. Below: its support was cut (top-p, top-k, min-p).",
           "Ask the engine for processed logprobs, and set temperature 1, top-p 1, top-k off, or mirror them in the trainer.",
           f"z beyond 5 and off by more than 0.01; {_CATALOGUE}", size=_off_one),
    Signal("kl_k3", "kl_k3", "the policies are far apart", SAMPLED, _kl, HEALTHY_K3, 0.1,
           "KL K3 is {value:.4g} nats/token",
           "Training is off-policy by this much at every token. Runs collapse from 0.1 on. Near 1 the weights are many updates "
           "old or both sides score other inputs: stale weights agree at lag 0 and right after a sync, other inputs nowhere.",
           "Look where it sits: by lag (stale weights), by replica (one engine not synced), by position (prompt or template).",
           "convention: bf16 and 8-bit engines at equal weights stay below 0.01; 1 means very stale weights or wrong input"),
    Signal("kl_k3_over_floor", "kl_k3", "the gap has left its floor", SAMPLED, _kl_over_floor, *OVER_FLOOR,
           "KL K3 is {value:.4g} nats/token, {times} times the floor of the run's first steps ({floor:.3g})",
           "The engines agreed better before: something changed since, most often weights that were not synced.",
           "Compare with the weight syncs and the version lag. If the tokens of lag 0 have risen too, look at precision "
           "and entropy.",
           "convention: 3 times the floor watch, 10 times act, on two adjacent steps; the floor is of the first 3", lasting=True),
    Signal("surprisal", "surprisal_gap", "tokens were not sampled from the policy that is trained",
           SAMPLED, _surprised, *SURPRISED,
           "the surprisal gap is {value:+.3f} nats",
           "The later policy is more (or less) surprised by the tokens than its entropy says, even where logprobs agree. "
           "Negative: sampling was sharper (top-p, top-k, low temperature). Positive: wrong context or higher temperature.",
           "Compare the sampling settings with the temperature the trainer divides by; turn off top-p, top-k and penalties.",
           f"z beyond 4; beyond 6 with more than 0.05 nats act; {_CATALOGUE}"),
    Signal("chi2_of_ess_token", "ess_token", "few tokens carry the weights", SAMPLED, _chi2_of_ess("token"), 1.0, 10.0,
           "1/ess_token - 1 is {least}{value:.3g}",
           "Correcting with per-token weights would leave this small a share of the tokens in effect.",
           "Truncate or mask token weights; find out first why the policies differ so much.",
           "published reading of chi-squared: below 1 low, from 10 high and in need of correction", limit=_ess_of_chi2),
    Signal("share_outside", "share_outside_0.5_2", "many tokens lie outside [0.5, 2]",
           SAMPLED, _share("share_outside_0.5_2"), 0.01, 0.1,
           "{value:.1%} of the tokens have a weight outside [0.5, 2]",
           "So many tokens would be clipped or masked by the usual bounds.",
           "Look at the distribution of weights, then at which positions and probabilities they come from.",
           "convention: healthy bf16 and 8-bit engines have none"),
    Signal("ppo_clip", "share_outside_0.8_1.2", "the update leaves the PPO clip range",
           ("drift",), _share("share_outside_0.8_1.2"), 0.2, 0.5,
           "{value:.1%} of the tokens lie outside the PPO clip range [0.8, 1.2]",
           "So many tokens no longer contribute a gradient: the update has moved further than PPO trusts.",
           "Fewer minibatches or epochs per batch, or a smaller learning rate.",
           "convention: PPO clip fractions of 0.1 to 0.2 are ordinary"),
    Signal("chi2_of_ess_sequence", "ess_sequence", "sequence-level weights cannot be used at these lengths", SAMPLED,
           _chi2_of_ess("sequence"), 10.0, None,
           "1/ess_sequence - 1 is {least}{value:.3g}",
           "Noise of sd s per token gives sequence log-weights of sd s sqrt(length), so long sequences lose their weights "
           "to noise alone: no fault by itself. variance_ratio far above 1 says it is more than noise.",
           "Correct per token or by the geometric mean, not by the product over the sequence.",
           "published reading of chi-squared; at most watch by itself", limit=_ess_of_chi2),
)  # fmt: skip
