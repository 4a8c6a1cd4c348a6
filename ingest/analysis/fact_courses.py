"""Recorded facts of the sequences over the steps: reward, entropy, waiting times; what a reader wants beside a gap."""

import numpy as np
import polars as pl

from ..run import Run
from .growth import FACTS, RowFact
from .step_rows import columns_of

MOST = 120
"""The most steps that are read: a chart shows no more, and each is a file."""
SAMPLED = "inclusion_probability"


def recorded_facts(run: Run) -> tuple[RowFact, ...]:
    """The facts whose columns the newest step with token rows has."""
    known = run.columns
    return tuple(fact for fact in FACTS if set(fact.columns) <= known)


def fact_course(run: Run, words: str, steps: range | None) -> pl.DataFrame:
    """A row per step, ascending: step, value, error, sequences. words: of a fact in FACTS. steps: None for all.

    value: the mean over the sequences of the step, each weighted by 1 / inclusion probability where a budget kept rows by chance.
    error: one standard error, sequences as units; NaN below two. sequences: those with a finite value. At most MOST steps are
    read, evenly spaced, the newest among them; a step without a value has no row.
    """
    fact = next(each for each in FACTS if each.words == words)
    known = [step for step in run.steps_with_rows if steps is None or step in steps]
    places = np.unique(np.linspace(len(known) - 1, 0, min(len(known), MOST)).round().astype(int))
    rows = [(known[place], *_mean(run, known[place], fact)) for place in places]
    schema = {"step": pl.Int64, "value": pl.Float64, "error": pl.Float64, "sequences": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row").filter(pl.col("sequences") > 0)


def _mean(run: Run, step: int, fact: RowFact) -> tuple[float, float, int]:
    """(mean, standard error, number of sequences with a value)."""
    columns = (*fact.columns, SAMPLED)
    rows = pl.DataFrame(columns_of(run, step, columns))
    chance = pl.col(SAMPLED).cast(pl.Float64).fill_null(1.0)
    both = rows.select(value=fact.value, weight=1 / chance).filter(pl.col("value").is_finite().fill_null(False))
    # Hájek's mean with its standard error, those of a plain mean where all weights are equal.
    values = both["value"].to_numpy()
    weights = both["weight"].to_numpy()
    n = len(values)
    if not n:
        return np.nan, np.nan, 0
    total = weights.sum()
    mean = float((weights * values).sum() / total)
    error = float(np.sqrt(n / (n - 1) * ((weights * (values - mean)) ** 2).sum()) / total) if n > 1 else np.nan
    return mean, error, n
