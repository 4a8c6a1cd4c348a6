"""Columns of tokens, also hostile ones, and what the formulas of statistics give for them one by one."""

import numpy as np

from ratioscope.metrics.columns import token_columns
from ratioscope.metrics.engines.level_statistics import statistics_by_level
from ratioscope.metrics.reduction import reduced

TOKENS = 900
HOSTILE = (np.nan, np.inf, -np.inf, 0.0, -1e-300, 1e-7, 400.0, -400.0, -5000.0, 1e30)


def columns(*, hostile: bool, recorded: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    earlier = -random.exponential(size=TOKENS)
    drawn = {
        "earlier": earlier,
        "later": earlier + random.normal(0, 0.1, TOKENS),
        "entropy": random.exponential(size=TOKENS),
        "advantage": random.normal(size=TOKENS),
    }
    drawn |= {f"pair {shift}": np.where(random.random(TOKENS) < 0.1, np.nan, earlier) for shift in (-2, -1, 1, 2)}
    for values in drawn.values() if hostile else ():
        values[random.random(TOKENS) < 0.2] = random.choice(HOSTILE)
        values[: len(HOSTILE)] = random.permutation(HOSTILE)
    return {name: v.astype(np.float32) for name, v in drawn.items() if recorded or name not in ("entropy", "advantage")}


def one_by_one(gap: str, given: dict[str, np.ndarray], starts: np.ndarray, *, whole: bool) -> np.ndarray:
    levels = statistics_by_level(gap)
    order = levels.whole if whole else levels.sliced
    wide = {name: values.astype(np.float64) for name, values in given.items()}
    pairs = {shift: wide[f"pair {shift}"] for shift in (-2, -1, 1, 2)}
    mask = np.ones(TOKENS, np.bool_)
    recorded = {name: wide.get(name) for name in ("entropy", "advantage")}
    read = token_columns(wide["earlier"], wide["later"], mask, np, **recorded, pairs=pairs)
    values = np.stack([np.asarray(s.formula(read, np), np.float64) for s in order])
    cells = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, TOKENS)))
    return reduced(values, cells, [s.combine for s in order]).matrix
