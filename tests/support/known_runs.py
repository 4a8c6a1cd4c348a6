"""Runs of each state of knowledge: what was recorded, the word that every face must say, and the exit code of `check`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.app.cli import main
from ratioscope.arrays import Booleans, Floats
from ratioscope.collectors.budget import Budget
from ratioscope.collectors.collector import Collector

ROWS, TOKENS, STEPS = 8, 40, 6
Logged = Callable[[int, Floats, Floats, Floats], dict[str, Any]]
"""(step, log-probs of rollout, old and current, shape (ROWS, TOKENS)) -> the arguments of `log`."""


def _some(share: float, value: float) -> Callable[[Floats], Floats]:
    """The log-probs with this value in place of a share of them."""

    def replaced(values: Floats) -> Floats:
        return np.where(np.random.default_rng(1).random(values.shape) < share, value, values)

    return replaced


def _without_last(values: Floats, but: int) -> list[Floats]:
    """Every row but one is a token shorter: the other side has one too many."""
    return [row if at == but else row[:-1] for at, row in enumerate(values)]


@dataclass(frozen=True)
class Recorded:
    """One kind of run."""

    logged: Logged
    word: str
    """The word of its verdict."""
    code: int
    """The exit code of `ratioscope check`."""
    says: str = ""
    """Words of the sentence on what was not measured."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the Collector."""
    gap: str = "mismatch"
    """The gap that every face opens on."""
    kept_steps: int | None = None
    """Steps whose token rows are not pruned; None for all."""


def _both(step: int, rollout: Floats, old: Floats, current: Floats) -> dict[str, Any]:
    return {"rollout_logprobs": rollout, "old_logprobs": old}


def _some_of(chosen: Callable[[Floats], Booleans], copied: bool = True) -> Logged:
    """Both sides, old with the values of rollout at the chosen tokens, or both with 0 there."""

    def logged(step: int, rollout: Floats, old: Floats, current: Floats) -> dict[str, Any]:
        at = chosen(np.random.default_rng(step).random(rollout.shape))
        own, other = (rollout, rollout) if copied else (0 * rollout, 0 * rollout)
        return {"rollout_logprobs": np.where(at, own, rollout), "old_logprobs": np.where(at, other, old)}

    return logged


NO_ROWS = {"budget": Budget(step_bytes=0, worst=0)}
KINDS: Mapping[str, Recorded] = {
    "measured": Recorded(_both, "healthy", 0),
    "without the sampler": Recorded(
        lambda step, r, o, c: {"old_logprobs": o, "current_logprobs": c},
        "not measured", 4, "because rollout_logprobs is not on record", gap="drift",
    ),
    "dropped but one": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": list(r), "old_logprobs": _without_last(o, 0)},
        "partly measured", 4, "12.5% of the offered sequences were measured: 42 dropped (malformed: old_logprobs",
    ),
    "dropped since step 5": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": list(r), "old_logprobs": list(o) if step < 5 else _without_last(o, -1)},
        "partly measured", 4, "Less than 90% were measured at 2 steps from 5 to 6.",
    ),
    "masked": Recorded(
        lambda step, r, o, c: _both(step, r, o, c) | {"mask": np.arange(ROWS)[:, None] < np.full((1, TOKENS), 3)},
        "partly measured", 4, "30 without a token that is sampled and not masked",
    ),
    "zero probability": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": _some(0.02, -np.inf)(o)}, "act", 1, "",
    ),
    "no number": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": _some(0.05, np.nan)(o)}, "act", 1, "",
    ),
    "zeros": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": 0 * r, "old_logprobs": 0 * o},
        "not measured", 4, "Every log-prob of both sides of the mismatch is 0",
    ),
    "equal": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": r.copy()},
        "not measured", 4, "its two sides are equal to the last bit: a copy, or an aligned stack?",
    ),
    "equal, computed apart": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": r.copy()}, "healthy", 0, "",
        {"computed_apart": True},
    ),
    "bypass": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": r.copy(), "current_logprobs": c}, "healthy", 0,
        gap="total",
    ),
    "bypass of a broken engine": Recorded(
        lambda step, r, o, c: {"rollout_logprobs": r, "old_logprobs": r.copy(), "current_logprobs": 3 * c}, "act", 1,
        gap="total",
    ),
    "mostly copied rows": Recorded(
        _some_of(lambda draw: np.arange(ROWS)[:, None] + 0 * draw < ROWS - 1),
        "partly measured", 4, "equal on both sides to the last bit, counted by tokens",
    ),
    "copies but for a token": Recorded(
        _some_of(lambda draw: draw < draw.max()), "partly measured", 4, "equal on both sides to the last bit",
    ),
    "mostly zeros": Recorded(
        _some_of(lambda draw: draw < 0.95, copied=False), "partly measured", 4, "exactly 0 on both sides, counted by tokens",
    ),
    "some zeros": Recorded(
        _some_of(lambda draw: draw < 0.05, copied=False), "partly measured", 4, "exactly 0 on both sides, counted by tokens",
    ),
    "without rows": Recorded(_both, "healthy", 0, "", NO_ROWS),
    "copied rows without rows": Recorded(
        _some_of(lambda draw: np.arange(ROWS)[:, None] + 0 * draw < ROWS - 1), "partly measured", 4,
        "equal on both sides to the last bit", NO_ROWS,
    ),
    "pruned": Recorded(_both, "healthy", 0, kept_steps=0),
    "a cause above green": Recorded(
        lambda step, r, o, c: {
            "rollout_logprobs": r,
            "old_logprobs": np.where(np.random.default_rng(step).random(r.shape) < 0.01, -0.7, o),
        },
        "watch", 0,
    ),
}  # fmt: skip


def known_run(folder: Path, kind: str) -> Path:
    """The run of this kind in this folder."""
    recorded = KINDS[kind]
    noise = np.random.default_rng(7)
    collector = Collector(folder, **recorded.options)
    for step in range(1, STEPS + 1):
        rollout = -noise.gamma(1.0, 0.7, (ROWS, TOKENS))
        old, current = (np.minimum(rollout + noise.normal(0, size, rollout.shape), 0) for size in (0.02, 0.03))
        collector.log(step=step, **recorded.logged(step, rollout, old, current))
    collector.close()
    if recorded.kept_steps is not None:
        assert main(["prune", str(folder), "--keep-steps", str(recorded.kept_steps), "--yes"]) == 0
    return folder


def missing_steps(folder: Path) -> Path:
    """A run whose steps 3 to 5 nobody recorded."""
    collector = Collector(folder)
    noise = np.random.default_rng(7)
    for step in (1, 2, 6, 7):
        rollout = -noise.gamma(1.0, 0.7, (ROWS, TOKENS))
        collector.log(step=step, rollout_logprobs=rollout, old_logprobs=rollout - 0.001 * noise.random(rollout.shape))
    collector.close()
    return folder
