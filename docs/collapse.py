"""Which numbers of the first steps tell the runs that collapse from those that learn? Writes docs/collapse.md.

    python docs/collapse.py [--runs]        # --runs trains the small policies again, some minutes, and keeps docs/collapse.json

A policy of 8 positions and 16 tokens, a table of logits by position and token before, is trained by policy gradients without
importance weights, on tokens that another policy sampled. The collector records the first steps, and the metrics measure them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ratioscope import Collector, open_run
from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.ingest.analysis.gradient_bias import gradient_bias
from ratioscope.ingest.analysis.support_numbers import support_numbers
from ratioscope.metrics.analysis.support_metrics import SUPPORT_METRICS
from ratioscope.metrics.definitions.registry import METRICS

PAGE, KEPT = Path(__file__).with_suffix(".md"), Path(__file__).with_suffix(".json")
LENGTH, VOCABULARY, PROMPTS, SAMPLES = 8, 16, 8, 8
STEPS, SEEN = 400, 40
"""Updates of a run, and those of them whose tokens are recorded and measured."""
GAP = "mismatch"
RATE, START, CONSTANT = 0.02, 2.5, 0.5
"""Learning rate of Adam; how much the right token's logit is above the others at the start; reward of any response."""
COLLAPSED = 0.9
"""A run has collapsed if the mean reward of its last tenth is below this share of that of its first tenth."""
CHOSEN, DRAWS = 2, 1000
"""Seeds by which the direction of a number is chosen; draws of cases for the interval of its AUC."""
Sampler = Callable[[list[Floats], np.random.Generator], Floats]


@dataclass(frozen=True)
class Case:
    """A way in which the sampling policy differs from the trained one."""

    kind: str
    """In words."""
    strength: float
    """Standard deviation of what is added to the logits, updates of lag, or the part by which logits grow."""
    sampler: Callable[[float, int], Sampler]
    """(strength, seed) -> the sampling logits from those of every update so far."""


def _biased(strength: float, seed: int) -> Sampler:
    added = np.random.default_rng(seed).normal(0, strength, (LENGTH, VOCABULARY, VOCABULARY))
    return lambda past, rng: past[-1] + added


def _noisy(strength: float, seed: int) -> Sampler:
    return lambda past, rng: past[-1] + rng.normal(0, strength, past[-1].shape)


def _stale(strength: float, seed: int) -> Sampler:
    return lambda past, rng: past[max(0, len(past) - 1 - int(strength))]


def _scaled(strength: float, seed: int) -> Sampler:
    return lambda past, rng: past[-1] * (1 + strength)


CASES = tuple(
    Case(kind, strength, sampler)
    for kind, sampler, strengths in (
        ("the same policy", _scaled, (0.0,)),
        ("persistent bias", _biased, (0.1, 0.2, 0.3, 0.5, 1.0)),
        ("symmetric noise", _noisy, (0.1, 0.2, 0.3, 0.5, 1.0)),
        ("staleness", _stale, (5.0, 20.0, 40.0, 80.0)),
        ("hotter sampler", _scaled, (-0.05, -0.1, -0.2, -0.3)),
        ("colder sampler", _scaled, (0.05, 0.1, 0.3, 0.5)),
    )
    for strength in strengths
)
ALGORITHMS, SEEDS = ("REINFORCE", "GRPO"), range(4)


NAMED = (
    "kl_k3", "kl_direct", "abs_log_ratio", "chi2_token", "chi2_sequence", "ess_token", "ess_sequence", "ppl_ratio",
    "share_outside_0.5_2", "slope", "surprisal_gap", "mean_weight_token", "logprob_correlation", "variance_ratio",
    "advantage_log_ratio", "advantage_excess", "persistence of advantage_excess, t", "support_kl",
    "support_total_variation", "expected_score_rollout", "score_drift",
)  # fmt: skip
"""The numbers that are compared, chosen before the runs were made."""


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass
class Batch:
    """The responses of a step, (responses, positions), with the log-probs of every token that could have followed."""

    tokens: Integers
    """The sampled tokens."""
    before: Integers
    """The token before each."""
    rollout: Floats
    """Log-probs of each next token under the sampler, (responses, positions, vocabulary)."""
    train: Floats
    """The same under the trained policy."""


def sampled(sampling: Floats, trained: Floats, rng: np.random.Generator) -> Batch:
    q, p, at = log_softmax(sampling), log_softmax(trained), np.repeat(rng.integers(0, VOCABULARY, PROMPTS), SAMPLES)
    tokens, before = [], []
    for position in range(LENGTH):
        before.append(at)
        at = (q[position, at] + rng.gumbel(size=(len(at), VOCABULARY))).argmax(axis=1)
        tokens.append(at)
    places = np.arange(LENGTH), np.stack(before, axis=1)
    return Batch(np.stack(tokens, axis=1), places[1], q[places], p[places])


def advantages(rewards: Floats, algorithm: str) -> Floats:
    """REINFORCE without a baseline: the reward; GRPO: the reward among those of its prompt, in standard deviations."""
    if algorithm == "REINFORCE":
        return rewards
    groups = rewards.reshape(PROMPTS, SAMPLES)
    spread = groups.std(axis=1, keepdims=True) + 1e-4
    return np.asarray(((groups - groups.mean(axis=1, keepdims=True)) / spread).ravel())


def trained(case: Case, algorithm: str, seed: int, steps: int = STEPS) -> Iterator[tuple[Batch, Floats, Floats]]:
    """(the batch, its rewards in 0..1, its advantages) of each step. Adam without weight decay."""
    rng, sampler = np.random.default_rng(seed), case.sampler(case.strength, seed + 1000)
    right = rng.integers(0, VOCABULARY, (LENGTH, VOCABULARY))
    logits = rng.normal(0, 0.5, (LENGTH, VOCABULARY, VOCABULARY))
    logits += START * (np.arange(VOCABULARY) == right[..., None])
    past, first, second = [logits], np.zeros_like(logits), np.zeros_like(logits)
    for step in range(1, steps + 1):
        batch = sampled(sampler(past, rng), logits, rng)
        rewards = (right[np.arange(LENGTH), batch.before] == batch.tokens).mean(axis=1)
        own = advantages(CONSTANT + (1 - CONSTANT) * rewards, algorithm)
        yield batch, rewards, own
        slope = np.zeros_like(logits)
        score = (np.arange(VOCABULARY) == batch.tokens[..., None]) - np.exp(batch.train)
        np.add.at(slope, (np.arange(LENGTH), batch.before), own[:, None, None] * score / len(own))
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        logits = logits + RATE * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-6)
        past = [*past, logits][-100:]


def measured(batches: list[tuple[Batch, Floats]]) -> dict[str, float]:
    """Name -> value over these steps, of a record of them, for every number that the record gives."""
    with TemporaryDirectory() as folder:
        with Collector(Path(folder) / "run", trainer="docs/collapse.py") as collector:
            for step, (batch, own) in enumerate(batches):
                both, at = {"rollout": batch.rollout, "old": batch.train}, batch.tokens[..., None]
                collector.log(
                    step=step,
                    advantages=own,
                    token_ids=batch.tokens,
                    mask=np.ones_like(batch.tokens, bool),
                    entropy=-(np.exp(batch.train) * batch.train).sum(axis=-1),
                    topk_ids=np.broadcast_to(np.arange(VOCABULARY), batch.rollout.shape),
                    **{f"{name}_logprobs": np.take_along_axis(side, at, -1)[..., 0] for name, side in both.items()},
                    **{f"{name}_topk_logprobs": side for name, side in both.items()},
                )
        run = open_run(Path(folder) / "run")
        row = run.metrics(by=()).row(0, named=True)
        values = {metric.name: row.get(f"{GAP}/{metric.name}") for metric in METRICS if metric.is_of(GAP)}
        bias = run.once(gradient_bias, GAP).found
        values["persistence of advantage_excess, t"] = bias.mean / bias.error if bias and bias.error > 0 else 0.0
        support = run.once(support_numbers, GAP)
        values |= {metric.name: own.value for metric, own in zip(SUPPORT_METRICS, support.whole, strict=True)}
        return {name: float(value) for name, value in values.items() if value is not None and np.isfinite(value)}


def one(case: Case, algorithm: str, seed: int) -> dict[str, Any]:
    """The end of one run, and the numbers of its first steps."""
    steps = list(trained(case, algorithm, seed))
    rewards = np.array([rewards.mean() for _, rewards, _ in steps])
    first, last = rewards[: STEPS // 10].mean(), rewards[-STEPS // 10 :].mean()
    return {
        "kind": case.kind, "strength": case.strength, "algorithm": algorithm, "seed": seed, "first": float(first),
        "last": float(last), "numbers": measured([(batch, own) for batch, _, own in steps[:SEEN]]),
    }  # fmt: skip


def collapsed(run: dict[str, Any]) -> bool:
    return bool(run["last"] < COLLAPSED * run["first"])


def auc(values: Floats, falls: Booleans) -> float:
    """The probability that a run which collapses has the larger value; ties count half. NaN where all do, or none."""
    above = values[falls][:, None] - values[~falls][None]
    return float(((above > 0) + 0.5 * (above == 0)).mean()) if above.size else float("nan")


@dataclass(frozen=True)
class Separation:
    """A number of the first steps, and how well it tells the runs that collapse."""

    name: str
    direction: str
    """Which of its values go with a collapse, as chosen on the first seeds."""
    area: float
    """AUC on the other seeds: 0.5 is chance."""
    low: float
    """2.5th percentile over draws of cases."""
    high: float
    """97.5th percentile."""


DIRECTIONS: dict[str, Callable[[Floats], Floats]] = {
    "high": lambda values: values, "low": np.negative, "far from 0": np.abs, "near 0": lambda values: -np.abs(values),
}  # fmt: skip


def separation(name: str, runs: list[dict[str, Any]]) -> Separation:
    values = np.array([run["numbers"].get(name, np.nan) for run in runs])
    falls, seeds = np.array([collapsed(run) for run in runs]), np.array([run["seed"] for run in runs])
    cases = np.array([f"{run['kind']} {run['strength']}" for run in runs])
    first, known = seeds < CHOSEN, np.isfinite(values)
    direction = max(DIRECTIONS, key=lambda each: auc(DIRECTIONS[each](values[first & known]), falls[first & known]))
    values, tested, rng = DIRECTIONS[direction](values), ~first & known, np.random.default_rng(0)
    names = np.unique(cases)
    draws = []
    for _ in range(DRAWS):
        drawn = rng.choice(names, len(names))
        places = np.concatenate([np.flatnonzero(tested & (cases == each)) for each in drawn])
        draws.append(auc(values[places], falls[places]))
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return Separation(name, direction, auc(values[tested], falls[tested]), float(low), float(high))


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def of_kinds(runs: list[dict[str, Any]]) -> str:
    """A row per case: K3 of the first steps, reward at the end over that at the start, collapses."""
    rows = []
    for case in CASES:
        mine = [run for run in runs if (run["kind"], run["strength"]) == (case.kind, case.strength)]
        per = {name: [run for run in mine if run["algorithm"] == name] for name in ALGORITHMS}
        k3 = np.mean([run["numbers"]["kl_k3"] for run in per["REINFORCE"]])
        cells = [
            f"{np.mean([run['last'] / run['first'] for run in own]):.2f}, {sum(map(collapsed, own))} of {len(own)}"
            for own in per.values()
        ]
        rows.append((case.kind, f"{case.strength:g}", f"{k3:.2g}", *cells))
    return table(("sampler", "strength", "K3 of the first steps", *ALGORITHMS), rows)


def of_numbers(runs: list[dict[str, Any]]) -> str:
    mine = [run for run in runs if run["algorithm"] == "REINFORCE"]
    found = [separation(name, mine) for name in NAMED]
    found.sort(key=lambda each: -each.area)
    return table(
        ("number", "goes with a collapse", "AUC", "95% interval"),
        (
            (f"`{each.name}`", each.direction, f"{each.area:.2f}", f"{each.low:.2f} to {each.high:.2f}")
            for each in found
        ),
    )


def page(runs: list[dict[str, Any]]) -> str:
    """The page of these runs."""
    level = 0.3
    biased, noisy = (_end(runs, kind, level) for kind in ("persistent bias", "symmetric noise"))
    hot, cold = (_end(runs, kind, strength) for kind, strength in (("hotter sampler", -0.1), ("colder sampler", 0.5)))
    return PAGE_TEXT.format(
        seeds=len(SEEDS), seen=SEEN, steps=STEPS, share=COLLAPSED, cases=of_kinds(runs), numbers=of_numbers(runs),
        biased=biased, noisy=noisy, hot=hot, cold=cold, runs=len(runs), chosen=CHOSEN,
    )  # fmt: skip


def _end(runs: list[dict[str, Any]], kind: str, strength: float) -> str:
    """K3 of the first steps of a case under REINFORCE, and the reward at its end."""
    mine = [run for run in runs if (run["kind"], run["strength"], run["algorithm"]) == (kind, strength, "REINFORCE")]
    ends = np.mean([run["last"] / run["first"] for run in mine])
    return f"K3 {np.mean([run['numbers']['kl_k3'] for run in mine]):.2g}, reward {ends:.2f} times that of the start"


PAGE_TEXT = """\
# Which number foretells a collapse?

**None alone.** In {runs} runs of a small policy, K3 tells those that collapse with an AUC of about 0.8. Its misses are the
point:

* A **hotter sampler** collapses at a small gap ({hot}). A **colder** one learns at a large gap ({cold}).
* At one K3, a bias that stays does harm that noise does not: persistent bias {biased}; symmetric noise {noisy}.
* **GRPO never collapsed here**, whatever the gap. Its advantages have mean 0 in a group, which takes the score that the
  sampler expects out of the sum. REINFORCE without a baseline keeps it; [score centering](bias_and_noise.md) removes it.

So read the size of the gap first, then its direction (`slope`, `surprisal_gap`: is the sampler hotter than the trainer?),
and then whether your advantages have a mean of 0. A K3 below 0.01 is no promise: the hotter sampler needs less.

## The runs

The reward of the last tenth over that of the first, and how many of {seeds} seeds collapsed (below {share}). Strength: the
standard deviation of what is added to the logits, updates of lag, or the part by which the sampler's logits grow.

{cases}

## Numbers of the first steps

REINFORCE, the first {seen} of {steps} steps. The direction of each number was chosen on {chosen} seeds, the AUC is of the
others; 0.5 is chance. The interval is of draws of the cases above, which are few: most of the numbers cannot be told from
each other.

{numbers}

Persistent bias and symmetric noise of one strength differ in none of these numbers for sure. A bias that belongs to a token
and its context shows only if the same token is met again: `ratioscope diagnose` looks at token ids for it.

## Method

`docs/collapse.py` trains a table of logits (8 positions, 16 tokens) with Adam, without importance weights or clip, from a
policy that is right in 45% of the tokens. The reward is a constant of 0.5 and half of the share of right tokens. The
collector recorded the first steps with all 16 log-probs of each position, and the numbers are those of `ratioscope
metrics`. The list of numbers was written before the runs were made.

A table is no language model: nothing generalises between contexts, rewards are dense, and runs are short. Read the
contrasts, not the thresholds.
"""


def main() -> None:
    if "--runs" in sys.argv:
        kept = [one(*each) for each in product(CASES, ALGORITHMS, SEEDS)]
        for run in kept:
            run["numbers"] = {name: float(f"{run['numbers'][name]:.6g}") for name in NAMED if name in run["numbers"]}
        KEPT.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")
    PAGE.write_text(page(json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
