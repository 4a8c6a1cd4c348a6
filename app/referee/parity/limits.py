"""Limits on a comparison: those that a user gives, and those that trainers and engines publish, each with its source."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ratioscope.errors import ConfigError

from ...presentation.digits import digits, percent, plus_minus
from .comparison import Comparison

SIGMAS = 2.0
"""Standard errors that a value is given before a limit counts as broken, as in `check`: chance alone breaks nothing."""


QUANTITIES: Mapping[str, tuple[str, Callable[[Comparison], tuple[float, float]]]] = {
    "mean": ("mean |x|, nats/token", lambda found: (found.distance.mean, found.distance.mean_error)),
    "max": ("max |x|, nats", lambda found: (found.distance.largest, 0.0)),
    "k3": ("K3, nats/token", lambda found: (found.distance.k3, found.distance.k3_error)),
    "equal": ("share equal to the last bit", lambda found: (found.equal, 0.0)),
    "probability": ("mean |difference of probabilities|", lambda found: (found.probability, 0.0)),
    "multiplicative": ("mean exp(|x|)", lambda found: (found.multiplicative, 0.0)),
}
"""Name -> its words with a unit, and a function that gives the number and its standard error, 0 where it has none."""
LEAST = "equal"
"""The quantity of which a limit is the least that is wanted; of all others it is the most."""


@dataclass(frozen=True)
class Published:
    """A limit that somebody else uses."""

    whose: str
    """The project, and its use of the limit."""
    quantity: str
    """The name of one of QUANTITIES."""
    limit: float
    """In the quantity's unit; the most, or the least of a share."""
    source: str
    """The file or thread that states it."""
    arm: str = ""
    """The arm that it is of; "" for two scorers."""


PUBLISHED = (
    Published("SkyRL, new models: typically", "mean", 0.01, "SkyRL .claude/docs/contributing.md"),
    Published("miles, continuous integration", "mean", 0.03, "miles docs/developer/debug.md"),
    Published("slime, continuous integration", "mean", 0.1, "slime --ci-test: train_rollout_logprob_abs_diff"),
    Published("slime, reproducible GLM-5.2", "mean", 1e-6, "slime docs/en/advanced/reproducibility.md"),
    Published("SkyRL, one engine asked twice", "max", 1e-6, "SkyRL pull request 2182", "again"),
    Published("NeMo-RL guide: acceptable", "k3", 1e-3, "NeMo-RL docs/guides/grpo.md, gen_kl_error"),
    Published("prime-rl, to merge: each step", "k3", 0.015, "prime-rl docs/development.md, mismatch_kl"),
    Published("verl FAQ: normal", "probability", 0.005, "verl docs/faq/faq.rst, rollout_probs_diff_mean"),
    Published("NeMo-RL developers: worth a look", "multiplicative", 1.05, "NeMo-RL pull request 1767"),
    Published("NeMo-RL nightly runs: the usual bound", "multiplicative", 1.1, "NeMo-RL tests/test_suites/llm"),
    Published("vLLM, batch invariant", "equal", 1.0, "vLLM tests/v1/determinism/test_batch_invariance.py", "batch"),
)
"""The published limits that are of quantities measured here. They are of other models and lengths: none decides the exit code."""

Limits = Mapping[str, float]
"""Name of a quantity -> its limit."""


def limits_of(text: str | None) -> dict[str, float]:
    """The limits of "mean=0.01,max=0.5". ConfigError for a name or a number that is none."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        name, _, number = part.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if name not in QUANTITIES or not limit >= 0:
            raise ConfigError(
                f"--limit {part}: wanted NAME=NUMBER with a NAME of {', '.join(QUANTITIES)}; try: --limit mean=0.01"
            )
        found[name] = limit
    return found


def breaches(found: Comparison, limits: Limits) -> list[str]:
    """The limits that a comparison breaks, in words; empty if it keeps all."""
    return [
        f"{QUANTITIES[name][0]}: {shown(name, found)}, wanted {bound_words(name, limit)}"
        for name, limit in limits.items()
        if not keeps(found, name, limit)
    ]


def keeps(found: Comparison, name: str, limit: float) -> bool:
    """True if a comparison keeps a limit; a number that is none keeps no limit."""
    value, error = QUANTITIES[name][1](found)
    return value >= limit if name == LEAST else value - SIGMAS * (error if math.isfinite(error) else 0.0) <= limit


def shown(name: str, found: Comparison) -> str:
    """A number of the comparison and its error as a reader wants them."""
    value, error = QUANTITIES[name][1](found)
    return percent(value) if name == LEAST else plus_minus(value, error)


def bound_words(name: str, limit: float) -> str:
    """A limit in words."""
    return f"at least {percent(limit)}" if name == LEAST else f"at most {digits(limit)}"
