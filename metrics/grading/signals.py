"""SIGNALS, the table of graded signals: what each measures, its thresholds of watch and act, its texts and their source.

A signal grades the lower end of a value's interval, see `at_least`; a K3 of few tokens is graded together with the steps before.
A small sample or a single enormous token is therefore not enough for a grade.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..columns import SHIFTS
from ..definitions.probability import ATTENUATION
from ..metric import ALL_GAPS, SAMPLED

MetricValues = Callable[[str], Floats]
"""Name of a metric -> its values for one gap, one per step; NaN if not available."""

ERRORS = 2.0
"""The lower end of an interval lies so many standard errors below the value, or as a bound of the same chance does (2.3%)."""
HARMLESS_K3 = 0.001
"""A gap below this is not graded relative to its floor; published readings call it "good" for dense bf16 models."""
HEALTHY_K3 = 0.01
"""A gap below this is at most watch relative to its floor. A floor above it is not used: the run began with a fault."""
OVER_FLOOR = (3.0, 10.0)
"""A gap of so many times its floor is watch, or act."""
SAME = 1e-12
"""The least floor. Rounding leaves about this much of equal float32 log-probs; growth from a floor of 0 would be infinite."""
VARYING = 0.5
"""Log-probs with a smaller standard deviation, in nats, correlate little for any gap, see ATTENUATION. Those of trained language
models vary by 1.4 to 4 nats in the labelled runs."""
TOKEN_SPREAD = 4.0
"""Standard deviation of one token's K3 relative to the mean: the largest of the labelled healthy runs, which have 2.1 to 4.0."""
FEW_TOKENS = 200
"""A step with fewer tokens has no z and no correlation that means anything: its own scatter is hardly known. A convention."""
POOLED = 100
"""A K3 of fewer tokens is graded together with the steps before it: their sequences understate its error. A convention."""
STEPS = 10
"""Steps that prove a K3 together which none of them proves. A convention."""
_LARGEST_K3 = 100.0
"""A larger K3 counts as this in a mean over steps, so that it leaves digits for the others."""
CLEAR_SURPRISAL = 0.05
"""A surprisal gap of at most so many nats is at most watch, however large its z."""
SURPRISED = (4.0, 6.0)
"""A surprisal gap with this z is watch, or act."""


@dataclass(frozen=True)
class Measurements:
    """The measurements of a signal at each step; every field has shape (steps,)."""

    value: Floats
    """The value that is shown."""
    tested: Floats
    """The value that is compared with the thresholds."""
    floor: Floats | None = None
    """The floor that it is relative to."""
    bound: Booleans | None = None
    """True where the value is only a lower bound, because k-hat has failed or is unknown."""


@dataclass(frozen=True)
class Signal:
    """One row of the table."""

    name: str
    reads: str
    """The metric without which the signal cannot be graded."""
    title: str
    """The problem, in a few words."""
    gaps: tuple[str, ...]
    measure: Callable[[MetricValues, Floats], Measurements]
    """(metrics of a gap, its floor at each step) -> what is graded."""
    watch: float
    """The least tested value that is graded watch."""
    act: float | None
    """The least tested value that is graded act; None: the signal is at most watch."""
    shown: str
    """A format string for the reading, with {value}, its digits {size} or {signed}, and the other words of `reading`."""
    meaning: str
    """Meaning of the problem for the run."""
    remedy: str
    """The action to try next."""
    source: str
    """Source of the thresholds."""
    lasting: bool = False
    """True if a grade needs two adjacent steps."""
    size: Callable[[Floats], Floats] = np.abs
    """Size of a value for grading; larger is worse."""
    unit: str = ""
    """Unit of the tested value; empty for a share or a chi-squared."""
    none: str = ""
    """The words in place of `shown` for a value that is 0 at every step; empty: there are none."""
    limit: Callable[[float], float] = float
    """Threshold of the tested value -> the value of the metric `reads` at which it is reached."""


def at_least(value: Floats, error: Floats) -> Floats:
    """The lower end of the interval of a positive value; half the value if it has no error (one sequence).

    A mean with the relative error r has its size from as few as 1 / r**2 large ones, whose number is by chance: the bound is that
    of a Poisson count, by Wilson and Hilferty 1931. It is two standard errors where many contribute, and 1% of a single one.
    """
    return np.where(np.isfinite(error), _of_count(value, error, -ERRORS), np.where(value > 0, value / 2, value))


def at_most(value: Floats, error: Floats) -> Floats:
    """The upper end of the same interval; twice the value if it has no error. 0 stays 0."""
    return np.where(np.isfinite(error), _of_count(value, error, ERRORS), value * 2)


def _of_count(value: Floats, error: Floats, errors: float) -> Floats:
    """The bound of a value that is as a Poisson count with its relative error; where there is no value it is NaN."""
    with np.errstate(all="ignore"):
        relative = error / value
        count = 1 / np.maximum(relative, 1e-9) ** 2
        degrees = count + (errors > 0)
        root = np.maximum(1 - 1 / (9 * degrees) + errors / (3 * np.sqrt(degrees)), 0.0)
        return np.asarray(value * np.where(relative > 0, degrees * root**3 / count, 1.0))


def kl_error(value: Floats, error: Floats, tokens: Floats) -> Floats:
    """The standard error of a K3 of so many tokens. Few tokens are of few sequences, which understate their own; NaN stays."""
    least = np.where(tokens < FEW_TOKENS, value * TOKEN_SPREAD / np.sqrt(np.maximum(tokens, 1.0)), 0.0)
    return np.asarray(np.maximum(error, least))


def _kl(column: MetricValues, floor: Floats) -> Measurements:
    value = column("kl_k3")
    return Measurements(value, _sure(value, column("kl_k3_se"), column("tokens")))


def _sure(value: Floats, error: Floats, tokens: Floats) -> Floats:
    """The K3 that a step has for sure: by itself, and with the steps before it if it has few tokens; or by all of the last STEPS.

    A step that does not prove its value may be one of several that do together. No step counts as more than its own value.
    """
    known, end = ~np.isnan(value), np.arange(1, len(value) + 1)
    counts, sizes = np.where(known, np.nan_to_num(tokens), 0.0), np.clip(value, 0.0, _LARGEST_K3)
    # A step of one sequence has no error of its own: it may be all chance.
    errors = np.where(np.isfinite(error), np.minimum(error, sizes), sizes)
    until, sums, squares = (
        np.concatenate(([0.0], np.cumsum(np.where(known, each, 0.0))))
        for each in (counts, counts * sizes, (counts * errors) ** 2)
    )

    def since(first: Integers) -> Floats:
        whole = until[end] - until[first]
        spread = np.sqrt(np.maximum(squares[end] - squares[first], 0.0))
        with np.errstate(all="ignore"):  # a scalar log has no number of tokens
            return at_least((sums[end] - sums[first]) / whole, spread / whole)

    own, enough = at_least(value, error), np.searchsorted(until, until[1:] - POOLED, "right") - 1
    is_few = (counts > 0) & (counts < POOLED) & np.isfinite(value)
    own = np.where(is_few, np.fmin(own, since(np.clip(enough, 0, end - 1))), own)
    return np.asarray(np.fmax(own, np.minimum(value, since(np.maximum(end - STEPS, 0)))))


def _kl_over_floor(column: MetricValues, floor: Floats) -> Measurements:
    value = column("kl_k3")
    sure = _sure(value, kl_error(value, column("kl_k3_se"), column("tokens")), column("tokens"))
    times = sure / np.maximum(np.where(floor < HEALTHY_K3, floor, np.nan), SAME)
    # No step before the floor has grown. A floor of the tokens at lag 0 may lie below every step.
    since = np.maximum.accumulate(value <= floor)
    times = np.where(since | ~since.any(), times, np.minimum(times, 0.0))
    # The most multiples of the floor that a K3 of this size may count as: watch from HARMLESS_K3 on, act from HEALTHY_K3
    # on. A power between the two, so that of two steps the one with the larger K3 is always the worse.
    watch, act = OVER_FLOOR
    power = np.log(act / watch) / np.log(HEALTHY_K3 / HARMLESS_K3)
    return Measurements(
        value,
        np.where(sure < HEALTHY_K3, np.minimum(times, np.asarray(act * (sure / HEALTHY_K3) ** power)), times),
        floor,
    )


def _chi2_of_ess(level: str) -> Callable[[MetricValues, Floats], Measurements]:
    def measure(column: MetricValues, floor: Floats) -> Measurements:
        ess = column(f"ess_{level}")
        value = 1 / ess - 1
        error = column(f"ess_{level}_se") / ess**2
        # Without an error k-hat has failed: the sample shows too little of the tail, and the value is a lower bound.
        return Measurements(value, np.where(np.isnan(error), value, at_least(value, error)), bound=np.isnan(error))

    return measure


def _share(metric: str) -> Callable[[MetricValues, Floats], Measurements]:
    def measure(column: MetricValues, floor: Floats) -> Measurements:
        value = column(metric)
        return Measurements(value, at_least(value, column(f"{metric}_se")))

    return measure


def _share_of_tokens(count: str) -> Callable[[MetricValues, Floats], Measurements]:
    def measure(column: MetricValues, floor: Floats) -> Measurements:
        tokens = column("tokens") + column("non_finite")
        value = column(count) / np.where(tokens > 0, tokens, np.nan)
        return Measurements(value, value)

    return measure


def _shifted(column: MetricValues, floor: Floats) -> Measurements:
    own, best = column("logprob_correlation"), np.full(len(floor), np.nan)
    for shift in SHIFTS:
        best = np.fmax(best, column(f"shift_correlation_{shift:+d}"))
    return _told_by_correlation(column, best, (1 - own) / np.maximum(1 - best, 1e-3))


def _uncorrelated(column: MetricValues, floor: Floats) -> Measurements:
    value = column("logprob_correlation")
    difference = 2 * column("kl_k2") - column("mean_log_ratio") ** 2  # its variance over tokens
    # The variance of the log-probs by ATTENUATION, and the standard error of a correlation of so many tokens.
    varies = difference / (2 * (1 - value)) >= VARYING**2
    sure = value + ERRORS * (1 - value**2) / np.sqrt(np.maximum(column("tokens"), 1.0))
    return _told_by_correlation(column, value, np.where(varies | np.isnan(value), np.maximum(1 - sure, 0.0), 0.0))


def _told_by_correlation(column: MetricValues, value: Floats, tested: Floats) -> Measurements:
    # If all probabilities are near 1, rounding alone determines a correlation, but then K3 is tiny.
    different = at_least(column("kl_k3"), column("kl_k3_se")) >= HEALTHY_K3
    return Measurements(
        value, np.where(different & (column("tokens") >= FEW_TOKENS), tested, np.where(np.isnan(tested), np.nan, 0.0))
    )


def _of_tokens(column: MetricValues, t: Floats) -> Floats:
    """A z that counts less for few tokens, whose own scatter is no measure of the tails of all.

    It is Student's t of so many tokens, and first the normal variable of about the same probability: Wallace 1959.
    """
    freedom = np.maximum(column("tokens") - 1, 1.0)
    normal = np.sign(t) * np.sqrt(freedom * np.log1p(t**2 / freedom))
    return np.asarray(normal * np.minimum(column("tokens") / FEW_TOKENS, 1.0))


def _dishonest(column: MetricValues, floor: Floats) -> Measurements:
    z, mean = _of_tokens(column, column("mean_weight_token_z")), column("mean_weight_token")
    return Measurements(mean, np.where(np.abs(mean - 1) > 0.01, np.abs(z), 0.0 * z))


def _surprised(column: MetricValues, floor: Floats) -> Measurements:
    z, gap = column("surprisal_gap_z"), column("surprisal_gap")
    # Tokens without a surprise have no scatter. A policy near certainty expects an entropy of at least -gap, and so surprises
    # with at least the variance of one of two tokens: p log(p)^2, which is gap log(-gap) where p is small.
    entropy = np.clip(-gap, 1e-12, 1 / np.e)
    least = np.sqrt(-entropy * np.log(entropy) / np.maximum(column("tokens"), 1.0))
    with np.errstate(all="ignore"):
        z = np.where(gap < 0, gap / np.maximum(gap / z, least), z)
    z = np.abs(_of_tokens(column, z))
    watch, act = SURPRISED
    size = np.abs(gap) / CLEAR_SURPRISAL
    # If two gaps are too small for act, the larger one is the worse.
    return Measurements(gap, np.where(size > 1, z, np.minimum(z, watch + 0.999 * (act - watch) * size)))


def _ess_of_chi2(chi2: float) -> float:
    """The effective sample size at which 1/ess - 1 is chi2."""
    return 1 / (1 + chi2)


def _below_one(value: Floats) -> Floats:
    return 1 - value


def _off_one(value: Floats) -> Floats:
    return np.abs(value - 1)


_CATALOGUE = "root-cause catalogue: measured on injected faults"

SIGNALS: tuple[Signal, ...] = (
    Signal("non_finite", "non_finite", "log-probs are NaN or infinite", ALL_GAPS, _share_of_tokens("non_finite"), 0.001, 0.01,
           "{value:.2%} of the tokens have a log-prob that is NaN or infinite",
           "Tokens without a usable log-prob are left out of every metric, and their sequences out of sequence metrics.",
           "Look for missing log-probs in the engine's response, float16 overflow, or a mask that covers unscored tokens.",
           f"0.1% warn, 1% fail; {_CATALOGUE}", none="no NaN and no infinity"),
    Signal("zero_weight", "zero_weight_tokens", "the trainer rules out tokens that were sampled",
           SAMPLED, _share_of_tokens("zero_weight_tokens"), 1e-12, 0.001,
           "{value:.2%} of the tokens have a log-prob of -inf under the later policy: the KL is infinite",
           "The trainer gives these tokens probability 0, although they were sampled. K3 and all other means are of the other "
           "tokens alone.",
           "Look for a mask of the trainer's vocabulary (top-k, grammar, padding ids), float16 overflow, or other token ids.",
           "convention: one such token makes the KL infinite; 0.1% act"),
    Signal("positive_logprobs", "positive_logprobs", "log-probs are positive",
           ALL_GAPS, _share_of_tokens("positive_logprobs"), 0.001, 0.01,
           "{value:.2%} of the tokens have a log-prob above 0",
           "A log-probability cannot be positive: the column holds a filler, probabilities, or another quantity.",
           "Check what the engine writes where it has no log-prob (+1.0 is a known filler) and which column is recorded.",
           f"0.1% warn, 1% fail; {_CATALOGUE}"),
    Signal("alignment", "shift_correlation_+1", "the two log-prob lists do not belong to the same tokens",
           SAMPLED, _shifted, 2.0, 4.0,
           "log-probs correlate at {value:.2f} once a list is moved by one or two tokens",
           "One list is shifted against the other, so each weight compares a token with its neighbour.",
           "Align the lists at their own token: the one of shift_correlation_-2 to shift_correlation_+2 near 1 tells the shift.",
           f"4 times nearer to 1 than without the move act, twice watch; {_CATALOGUE}", unit="times nearer to 1"),
    Signal("correlation", "logprob_correlation", "log-probs of the two sides correlate too little",
           SAMPLED, _uncorrelated, 0.1, None,
           "log-probs correlate only at {value:.2f}",
           "Two sides with equal weights correlate above 0.99, also with an 8-bit engine. Less can mean old or other weights, "
           f"another temperature or context, or lists of other tokens. The correlation alone does not tell which. {ATTENUATION}",
           "Run the diagnosis: it tests shifts, swapped sequences, old weights and settings by undoing each.",
           f"0.9 is a convention; not graded where log-probs vary by less than {VARYING:g} nats", size=_below_one),
    Signal("mean_weight", "mean_weight_token_z", "the recorded log-probs are not those of the sampler",
           SAMPLED, _dishonest, 4.0, 5.0,
           "the mean weight is {size}, not 1",
           "Weights average 1 for any gap, if the earlier policy sampled these tokens. Above 1: the engine reports raw log-probs "
           "but sampled at another temperature. Below 1: sampling excluded tokens (top-p, top-k, min-p).",
           "Ask the engine for processed log-probs, and set temperature 1, top-p 1, top-k off, or mirror them in the trainer.",
           f"z beyond 5 and off by more than 0.01; {_CATALOGUE}", size=_off_one, unit="standard errors"),
    Signal("kl_k3", "kl_k3", "engine and trainer disagree on the same tokens", SAMPLED, _kl, HEALTHY_K3, 0.1,
           "KL K3 is {size} nats/token",
           "This is the mean over tokens: few tokens may have most of it. Runs collapse from 0.1 on. Near 1, the weights are "
           "many updates old, or the two sides score other inputs. Stale weights agree at lag 0 and right after a sync; other "
           "inputs agree nowhere.",
           "Break the gap down by lag (stale weights), replica (one engine not synced) and position (prompt or template).",
           "convention: bf16 and 8-bit engines at equal weights stay below 0.01; 1 means very stale weights or wrong input",
           unit="nats/token"),
    Signal("kl_k3_over_floor", "kl_k3", "the gap has grown since the run began", SAMPLED, _kl_over_floor, *OVER_FLOOR,
           "KL K3 is {size} nats/token, {times} times the floor of the run's first steps ({of})",
           "The engines agreed better at the start. Something has changed since, most often weights that were not synced.",
           "Compare with the weight syncs and the version lag. If the gap at lag 0 has grown too, look at precision and entropy.",
           "convention: 3 times the floor watch, 10 times act, on two adjacent steps; at most healthy below a K3 of 0.001, at "
           "most watch below 0.01; the floor is of the first 3", lasting=True,
           unit="times the floor"),
    Signal("surprisal", "surprisal_gap", "tokens were not sampled from the policy that is trained",
           SAMPLED, _surprised, *SURPRISED,
           "the surprisal gap is {signed} nats",
           "The later policy is more (or less) surprised by the tokens than its entropy implies, even where log-probs agree. "
           "Negative: sampling was sharper (top-p, top-k, low temperature). Positive: wrong context or higher temperature.",
           "Compare the sampling settings with the temperature the trainer divides by; turn off top-p, top-k and penalties.",
           f"z beyond 4; beyond 6 with more than 0.05 nats act; {_CATALOGUE}", unit="standard errors"),
    Signal("chi2_of_ess_token", "ess_token", "a few tokens have most of the weight", SAMPLED, _chi2_of_ess("token"), 1.0, 10.0,
           "the effective sample size is {most}{ess} of the tokens",
           "Per-token importance weights would leave a small effective sample size.",
           "First find out why the policies differ so much; then truncate or mask token weights.",
           "published reading of chi-squared: below 1 low, from 10 high and in need of correction", limit=_ess_of_chi2),
    Signal("share_outside", "share_outside_0.5_2", "many tokens lie outside [0.5, 2]",
           SAMPLED, _share("share_outside_0.5_2"), 0.01, 0.1,
           "{value:.1%} of the tokens have a weight outside [0.5, 2]",
           "The usual bounds would clip or mask these tokens.",
           "Look at the distribution of weights, then at the positions and probabilities of these tokens.",
           "convention: healthy bf16 and 8-bit engines have none"),
    Signal("ppo_clip", "share_outside_0.8_1.2", "the update leaves the PPO clip range",
           ("drift",), _share("share_outside_0.8_1.2"), 0.2, 0.5,
           "{value:.1%} of the tokens lie outside the PPO clip range [0.8, 1.2]",
           "These tokens no longer contribute a gradient: the update has moved the policy further than PPO allows.",
           "Use fewer minibatches or epochs per batch, or a smaller learning rate.",
           "convention: PPO clip fractions of 0.1 to 0.2 are ordinary"),
    Signal("chi2_of_ess_sequence", "ess_sequence", "sequence-level weights cannot be used at these lengths", SAMPLED,
           _chi2_of_ess("sequence"), 10.0, None,
           "the effective sample size is {most}{ess} of the sequences",
           "Noise with standard deviation s per token gives sequence log-weights one of s sqrt(length): noise alone makes the "
           "weights of long sequences useless, which is no fault. A variance_ratio far above 1 means more than noise.",
           "Correct per token or by the geometric mean, not by the product over the sequence.",
           "published reading of chi-squared; at most watch by itself", limit=_ess_of_chi2),
)  # fmt: skip
