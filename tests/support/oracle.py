"""Every metric again, straight from its formula, in plain Python loops. Imports nothing of ours.

A gap is a list of Sequences. Tokens are looked at one at a time, sums are exact (math.fsum), K3 and products of many
weights are taken in 50-digit decimals. A metric that is not available is NaN.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

NAN = math.nan
Value = float


@dataclass(frozen=True)
class Tokens:
    """One sequence: the two logprobs per position, the mask, and the later policy's entropy and the advantages where they are on
    record. One advantage may stand for all tokens."""

    earlier: Sequence[float]
    later: Sequence[float]
    mask: Sequence[bool]
    entropy: Sequence[float] | None = None
    advantages: Sequence[float] | None = None

    def kept(self) -> list[int]:
        """Positions that count: unmasked, earlier finite, later finite or -inf."""
        return [t for t, on in enumerate(self.mask) if on and self.usable(t)]

    def usable(self, t: int) -> bool:
        return math.isfinite(self.earlier[t]) and (math.isfinite(self.later[t]) or self.later[t] == -math.inf)

    def finite(self) -> list[int]:
        return [t for t in self.kept() if math.isfinite(self.later[t])]

    def ratios(self) -> list[float]:
        return [self.later[t] - self.earlier[t] for t in self.finite()]

    def log_weights(self) -> list[float]:
        return [self.later[t] - self.earlier[t] for t in self.kept()]

    def aside(self) -> int:
        return sum(1 for t, on in enumerate(self.mask) if on and not self.usable(t))

    def whole(self) -> bool:
        return bool(self.kept()) and not self.aside()


Gap = Sequence[Tokens]


def exp(x: float) -> float:
    return math.inf if x >= 709 else math.exp(x)


def k3(x: float) -> float:
    if x > 709:
        return math.inf
    with localcontext() as context:
        context.prec = 50
        d = Decimal(x)
        return float(d.exp() - 1 - d)


def mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known) if known else NAN


def xs(gap: Gap) -> list[float]:
    return [x for s in gap for x in s.ratios()]


def weights(gap: Gap) -> list[float]:
    return [exp(x) for s in gap for x in s.log_weights()]


def whole(gap: Gap) -> list[Tokens]:
    return [s for s in gap if s.whole()]


def total(s: Tokens) -> float:
    return math.fsum(s.log_weights())


def average(s: Tokens) -> float:
    return total(s) / len(s.kept())


def log_mean_exp(logs: Sequence[float]) -> float:
    """log of the mean of exp, relative to the largest, in decimals."""
    if not logs:
        return NAN
    top = max(logs)
    if not math.isfinite(top):
        return top
    with localcontext() as context:
        context.prec = 50
        added = sum((Decimal(x - top).exp() for x in logs if x > -math.inf), Decimal(0))
        return top + float((added / len(logs)).ln())


def ess(logs: Sequence[float]) -> float:
    top = log_mean_exp(logs)
    return math.exp(2 * top - log_mean_exp([2 * x for x in logs])) if logs and top > -math.inf else NAN


def pearson(pairs: Sequence[tuple[float, float]]) -> float:
    if len(pairs) < 2:
        return NAN
    ma, mb = mean(a for a, _ in pairs), mean(b for _, b in pairs)
    aa, bb = math.fsum((a - ma) ** 2 for a, _ in pairs), math.fsum((b - mb) ** 2 for _, b in pairs)
    ab = math.fsum((a - ma) * (b - mb) for a, b in pairs)
    return ab / math.sqrt(aa) / math.sqrt(bb) if aa > 0 and bb > 0 else NAN


def shifted(gap: Gap, shift: int) -> list[tuple[float, float]]:
    """(earlier[t - shift], later[t]) where both are unmasked; earlier finite, later's own token finite on both sides."""
    pairs = []
    for s in gap:
        for t in s.finite():
            u = t - shift
            if 0 <= u < len(s.earlier) and s.mask[u] and math.isfinite(s.earlier[u]):
                pairs.append((s.earlier[u], s.later[t]))
    return pairs


def surprisals(gap: Gap) -> list[list[float]]:
    return [
        [-s.later[t] - s.entropy[t] for t in s.finite() if math.isfinite(s.entropy[t])] if s.entropy is not None else []
        for s in gap
    ]


def by_advantage(gap: Gap, f: Callable[[float], float]) -> list[list[tuple[float, float]]]:
    """(A f(x), |A|) of every token of finite log-ratio with an advantage, by sequence."""
    found = []
    for s in gap:
        given = list(s.advantages or [NAN])
        own = given * len(s.mask) if len(given) == 1 else given
        tokens = [(own[t], s.later[t] - s.earlier[t]) for t in s.finite() if math.isfinite(own[t])]
        found.append([(a * f(x) if a else 0.0, abs(a)) for a, x in tokens])
    return found


def excess(x: float) -> float:
    return math.inf if x >= 709 else math.expm1(x)


def ratio_of_sums(parts: Sequence[Sequence[tuple[float, float]]]) -> Value:
    below = math.fsum(b for part in parts for _, b in part)
    return math.fsum(a for part in parts for a, _ in part) / below if below > 0 else NAN


def ratio_error(parts: Sequence[Sequence[tuple[float, float]]]) -> Value:
    """Standard error of a ratio of two sums, whole parts being drawn: from the residual sum of each part that has any weight."""
    filled = [part for part in parts if any(b for _, b in part)]
    if len(filled) < 2:
        return NAN
    center = ratio_of_sums(filled)
    spread = math.fsum(math.fsum(a - center * b for a, b in part) ** 2 for part in filled)
    return math.sqrt(spread * len(filled) / (len(filled) - 1)) / math.fsum(b for part in filled for _, b in part)


def z(values: Sequence[float], expected: float) -> float:
    if len(values) < 2:
        return NAN
    center = mean(values)
    spread = math.fsum((v - center) ** 2 for v in values)
    return (center - expected) / math.sqrt(spread / (len(values) - 1) / len(values)) if spread > 0 else NAN


def khat(log_weights: Sequence[float]) -> float:
    """Zhang and Stephens' fit to the largest weights' excesses, shrunk towards 1/2 by ten observations."""
    n = len(log_weights)
    m = int(min(0.2 * n, 3 * math.sqrt(n), 255))
    ordered = sorted(log_weights, reverse=True)
    if m < 25 or ordered[0] == ordered[m]:
        return NAN
    cut = exp(ordered[m] - ordered[0])
    x = sorted(exp(v - ordered[0]) - cut for v in ordered[:m])
    quarter = x[int(m / 4 + 0.5) - 1]
    if quarter <= 0:
        return NAN
    grid = 30 + int(math.sqrt(m))
    thetas = [1 / x[-1] + (1 - math.sqrt(grid / (j - 0.5))) / 3 / quarter for j in range(1, grid + 1)]
    logs = []
    for theta in thetas:
        k = mean(math.log1p(-theta * v) for v in x)
        logs.append(m * (math.log(-theta / k) - k - 1))
    top = max(logs)
    mass = [math.exp(value - top) for value in logs]
    theta = math.fsum(t * w for t, w in zip(thetas, mass, strict=True)) / math.fsum(mass)
    k = mean(math.log1p(-theta * v) for v in x)
    return (m * k + 5) / (m + 10)


def trusted(log_weights: Sequence[float]) -> bool:
    k = khat(log_weights)
    return not math.isnan(k) and k < min(1 - 1 / math.log10(len(log_weights)), 0.7)


def outside(low: float, high: float) -> Callable[[Gap], Value]:
    return lambda gap: mean(float(w < low or w > high) for w in weights(gap))


def variance_ratio(gap: Gap) -> Value:
    center = mean(xs(gap))
    tokens = math.fsum((x - center) ** 2 for x in xs(gap))
    sums = math.fsum(math.fsum(x - center for x in s.ratios()) ** 2 for s in gap)
    return sums / tokens if tokens > 0 else NAN


def kurtosis(gap: Gap) -> Value:
    values = xs(gap)
    center = mean(values)
    variance = mean((x - center) ** 2 for x in values)
    return mean((x - center) ** 4 for x in values) / variance**2 - 3 if values and variance > 0 else NAN


def largest(values: Sequence[float]) -> Value:
    return max(values) if values else NAN


def probability_pairs(gap: Gap) -> list[tuple[float, float]]:
    return [(exp(s.earlier[t]), exp(s.later[t])) for s in gap for t in s.kept()]


def slope(gap: Gap) -> Value:
    pairs = shifted(gap, 0)
    bottom = math.fsum(a * a for a, _ in pairs)
    return math.fsum(a * b for a, b in pairs) / bottom if bottom > 0 else NAN


def one_sided(gap: Gap) -> Value:
    return mean(float(x < 0) for x in xs(gap) if abs(x) > 1e-3)


def token_z(gap: Gap) -> Value:
    logs = [x for s in gap for x in s.log_weights()]
    return z(weights(gap), 1.0) if trusted(logs) else NAN


def sequence_z(gap: Gap) -> Value:
    logs = [total(s) for s in whole(gap)]
    return z([exp(x) for x in logs], 1.0) if trusted(logs) else NAN


def perplexity(side: str) -> Callable[[Gap], Value]:
    return lambda gap: exp(log_mean_exp([-mean(getattr(s, side)[t] for t in s.kept()) for s in whole(gap)]))


def log_perplexity(side: str) -> Callable[[Gap], Value]:
    return lambda gap: mean(-mean(getattr(s, side)[t] for t in s.kept()) for s in whole(gap))


ORACLE: dict[str, Callable[[Gap], Value]] = {
    "tokens": lambda gap: len(weights(gap)),
    "sequences": lambda gap: len(whole(gap)),
    "non_finite": lambda gap: sum(s.aside() for s in gap),
    "sequences_set_aside": lambda gap: sum(1 for s in gap if s.aside()),
    "empty_sequences": lambda gap: sum(1 for s in gap if not any(s.mask)),
    "zero_weight_tokens": lambda gap: sum(1 for s in gap for t in s.kept() if s.later[t] == -math.inf),
    "positive_logprobs": lambda gap: sum(
        1 for s in gap for t, on in enumerate(s.mask) if on and (s.earlier[t] > 1e-6 or s.later[t] > 1e-6)
    ),
    "kl_direct": lambda gap: -mean(xs(gap)),
    "ppo_kl": lambda gap: -mean(xs(gap)),
    "mean_log_ratio": lambda gap: mean(xs(gap)),
    "kl_k2": lambda gap: mean(x * x / 2 for x in xs(gap)),
    "kl_k3": lambda gap: mean(k3(x) for x in xs(gap)),
    "abs_log_ratio": lambda gap: mean(abs(x) for x in xs(gap)),
    "max_abs_log_ratio": lambda gap: largest([abs(x) for x in xs(gap)]),
    "max_log_ratio": lambda gap: largest(xs(gap)),
    "min_log_ratio": lambda gap: -largest([-x for x in xs(gap)]),
    "advantage_log_ratio": lambda gap: ratio_of_sums(by_advantage(gap, lambda x: x)),
    "advantage_excess": lambda gap: ratio_of_sums(by_advantage(gap, excess)),
    "mean_abs_advantage": lambda gap: mean(size for part in by_advantage(gap, excess) for _, size in part),
    "chi2_token": lambda gap: mean(w * w for w in weights(gap)) - 1,
    "chi2_sequence": lambda gap: math.expm1(log_mean_exp([2 * total(s) for s in whole(gap)])),
    "log_mean_square_weight_sequence": lambda gap: log_mean_exp([2 * total(s) for s in whole(gap)]),
    "ess_token": lambda gap: ess([x for s in gap for x in s.log_weights()]),
    "ess_sequence": lambda gap: ess([total(s) for s in whole(gap)]),
    "ess_geometric": lambda gap: ess([average(s) for s in whole(gap)]),
    "share_outside_0.9_1.1": outside(0.9, 1.1),
    "share_outside_0.8_1.2": outside(0.8, 1.2),
    "share_outside_0.5_2": outside(0.5, 2.0),
    "pareto_k_token": lambda gap: khat([x for s in gap for x in s.log_weights()]),
    "pareto_k_sequence": lambda gap: khat([total(s) for s in whole(gap)]),
    "mean_weight_token": lambda gap: mean(weights(gap)),
    "mean_weight_token_z": token_z,
    "mean_weight_sequence": lambda gap: exp(log_mean_exp([total(s) for s in whole(gap)])),
    "mean_weight_sequence_z": sequence_z,
    "log_ppl_rollout": log_perplexity("earlier"),
    "ppl_rollout": perplexity("earlier"),
    "log_ppl_old": log_perplexity("later"),
    "ppl_old": perplexity("later"),
    "log_ppl_current": log_perplexity("later"),
    "ppl_current": perplexity("later"),
    "log_ppl_gap": lambda gap: mean(-average(s) for s in whole(gap)),
    "ppl_ratio": lambda gap: exp(log_mean_exp([-average(s) for s in whole(gap)])),
    "prob_diff": lambda gap: mean(abs(b - a) for a, b in probability_pairs(gap)),
    "max_prob_diff": lambda gap: largest([abs(b - a) for a, b in probability_pairs(gap)]),
    "prob_correlation": lambda gap: pearson(probability_pairs(gap)),
    "logprob_correlation": lambda gap: pearson(shifted(gap, 0)),
    "shift_correlation_-2": lambda gap: pearson(shifted(gap, -2)),
    "shift_correlation_-1": lambda gap: pearson(shifted(gap, -1)),
    "shift_correlation_+1": lambda gap: pearson(shifted(gap, 1)),
    "shift_correlation_+2": lambda gap: pearson(shifted(gap, 2)),
    "slope": slope,
    "surprisal_gap": lambda gap: mean(g for part in surprisals(gap) for g in part),
    "surprisal_gap_z": lambda gap: z([g for part in surprisals(gap) for g in part], 0.0),
    "one_sided_share": one_sided,
    "variance_ratio": variance_ratio,
    "excess_kurtosis": kurtosis,
}


def clustered(parts: Sequence[Sequence[float]]) -> Value:
    """Standard error of the mean of all values, whole parts being drawn: from the residual sum of each part."""
    filled = [part for part in parts if part]
    count = sum(map(len, filled))
    if len(filled) < 2:
        return NAN
    center = mean(v for part in filled for v in part)
    spread = math.fsum((math.fsum(part) - center * len(part)) ** 2 for part in filled)
    return math.sqrt(spread * len(filled) / (len(filled) - 1)) / count


def of_ratios(f: Callable[[float], float]) -> Callable[[Gap], Value]:
    return lambda gap: clustered([[f(x) for x in s.ratios()] for s in gap])


def of_weights(f: Callable[[float], float]) -> Callable[[Gap], Value]:
    return lambda gap: clustered([[f(x) for x in s.log_weights()] for s in gap])


def of_sequences(f: Callable[[Tokens], float]) -> Callable[[Gap], Value]:
    def error(gap: Gap) -> Value:
        values = [f(s) for s in whole(gap)]
        return clustered([[v] for v in values])

    return error


def delta_of_ess(triples: Sequence[tuple[float, float, float]]) -> Value:
    """Delta method for (sum a)^2 / (sum n * sum b): the influence of each unit, squared and summed."""
    if len(triples) < 2:
        return NAN
    n, a, b = (math.fsum(part) for part in zip(*triples, strict=True))
    influence = [2 * ai / a - ni / n - bi / b for ni, ai, bi in triples]
    m = len(triples)
    return a * a / (n * b) * math.sqrt(math.fsum(i * i for i in influence) * m / (m - 1))


def ess_token_error(gap: Gap) -> Value:
    parts = [s.log_weights() for s in gap if s.kept()]
    return delta_of_ess([(len(p), math.fsum(map(exp, p)), math.fsum(exp(2 * x) for x in p)) for p in parts])


def ess_error(value: Callable[[Tokens], float]) -> Callable[[Gap], Value]:
    def error(gap: Gap) -> Value:
        logs = [value(s) for s in whole(gap)]
        top = max(logs, default=0.0)
        return delta_of_ess([(1.0, exp(x - top), exp(2 * (x - top))) for x in logs])

    return error


def where_square_trusted(logs: Callable[[Gap], list[float]], error: Callable[[Gap], Value]) -> Callable[[Gap], Value]:
    """The tail of w^2 has twice the shape of that of w; where it cannot be trusted there is no error."""

    def gated(gap: Gap) -> Value:
        values = logs(gap)
        k = khat(values)
        if math.isnan(k) or 2 * k >= min(1 - 1 / math.log10(len(values)), 0.7):
            return NAN
        return error(gap)

    return gated


def _token_logs(gap: Gap) -> list[float]:
    return [x for s in gap for x in s.log_weights()]


def _sequence_logs(gap: Gap) -> list[float]:
    return [total(s) for s in whole(gap)]


ERRORS: dict[str, Callable[[Gap], Value]] = {
    "kl_direct": of_ratios(lambda x: -x),
    "ppo_kl": of_ratios(lambda x: -x),
    "mean_log_ratio": of_ratios(lambda x: x),
    "kl_k2": of_ratios(lambda x: x * x / 2),
    "kl_k3": of_ratios(k3),
    "abs_log_ratio": of_ratios(abs),
    "advantage_log_ratio": lambda gap: ratio_error(by_advantage(gap, lambda x: x)),
    "advantage_excess": lambda gap: ratio_error(by_advantage(gap, excess)),
    "mean_abs_advantage": lambda gap: clustered([[size for _, size in part] for part in by_advantage(gap, excess)]),
    "chi2_token": where_square_trusted(_token_logs, of_weights(lambda x: exp(2 * x))),
    "chi2_sequence": where_square_trusted(_sequence_logs, of_sequences(lambda s: exp(2 * total(s)))),
    "ess_token": where_square_trusted(_token_logs, ess_token_error),
    "ess_sequence": where_square_trusted(_sequence_logs, ess_error(total)),
    "ess_geometric": ess_error(average),
    "share_outside_0.9_1.1": of_weights(lambda x: float(not 0.9 <= exp(x) <= 1.1)),
    "share_outside_0.8_1.2": of_weights(lambda x: float(not 0.8 <= exp(x) <= 1.2)),
    "share_outside_0.5_2": of_weights(lambda x: float(not 0.5 <= exp(x) <= 2.0)),
    "mean_weight_token": of_weights(exp),
    "mean_weight_sequence": of_sequences(lambda s: exp(total(s))),
    "log_ppl_rollout": of_sequences(lambda s: -mean(s.earlier[t] for t in s.kept())),
    "ppl_rollout": of_sequences(lambda s: exp(-mean(s.earlier[t] for t in s.kept()))),
    "log_ppl_old": of_sequences(lambda s: -mean(s.later[t] for t in s.kept())),
    "ppl_old": of_sequences(lambda s: exp(-mean(s.later[t] for t in s.kept()))),
    "log_ppl_current": of_sequences(lambda s: -mean(s.later[t] for t in s.kept())),
    "ppl_current": of_sequences(lambda s: exp(-mean(s.later[t] for t in s.kept()))),
    "log_ppl_gap": of_sequences(lambda s: -average(s)),
    "ppl_ratio": of_sequences(lambda s: exp(-average(s))),
    "prob_diff": lambda gap: clustered([[abs(exp(s.later[t]) - exp(s.earlier[t])) for t in s.kept()] for s in gap]),
    "surprisal_gap": lambda gap: clustered(surprisals(gap)),
    "one_sided_share": lambda gap: clustered([[float(x < 0) for x in s.ratios() if abs(x) > 1e-3] for s in gap]),
}
