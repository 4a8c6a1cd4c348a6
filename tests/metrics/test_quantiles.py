"""Quantiles over steps: those of the values themselves, as well as a bucket can tell, however steps are pooled."""

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.frames import distribution

from ratioscope.metrics.analysis.quantiles import QUANTILES, name_of, quantiles_over_steps
from ratioscope.metrics.distribution import Histogram, histogram, quantile


def extremes(steps: list[int]) -> pl.DataFrame:
    ends = {"min": [-1.0 - step for step in steps], "max": [1.0 + step for step in steps]}
    return pl.DataFrame({"step": steps, **ends}, schema={"step": pl.Int64, "min": pl.Float64, "max": pl.Float64})


def frame_of(parts: dict[int, Histogram]) -> pl.DataFrame:
    return pl.concat(
        pl.DataFrame({"step": [step] * len(h.buckets), "low": h.low, "high": h.high, "count": h.counts})
        for step, h in parts.items()
    )


@given(
    st.dictionaries(st.integers(0, 50), st.lists(st.floats(-30, 30), min_size=1, max_size=30), min_size=1, max_size=5)
)
@example({0: [0.0, -5.960464477539063e-08]})
def test_each_lies_in_the_bucket_that_holds_it(values: dict[int, list[float]]) -> None:
    parts = {step: histogram(own) for step, own in values.items()}
    found = quantiles_over_steps(frame_of(parts), extremes(sorted(parts)))
    assert found["first"].to_list() == found["last"].to_list() == sorted(parts)
    assert found["count"].to_list() == [len(values[step]) for step in sorted(parts)]
    for row in found.iter_rows(named=True):
        for q in QUANTILES:
            held = quantile(parts[row["first"]], q)
            low, high = max(held.low, -1e9), min(held.high, 1e9)
            assert low <= row[name_of(q)] <= high or not np.isfinite([held.low, held.high]).all()
        assert row["p5"] <= row["p50"] <= row["p95"]


def test_pooled_steps_are_the_quantiles_of_all_their_values() -> None:
    steps = list(range(100))
    whole = distribution(steps, tokens=500)
    found = quantiles_over_steps(whole, extremes(steps), columns=10)
    assert found["first"].to_list() == list(range(0, 100, 10)) and found["last"].to_list() == list(range(9, 100, 10))
    assert found["steps"].to_list() == [10] * 10 and found["count"].to_list() == [5000] * 10
    assert found["min"].to_list() == [-1.0 - s for s in range(9, 100, 10)]
    draws = np.random.default_rng(0)
    values = np.concatenate([draws.normal(0, 0.05, 500) for _ in steps[:10]])
    row = found.row(0, named=True)
    for q in QUANTILES:
        assert row[name_of(q)] == pytest.approx(float(np.quantile(values, q)), abs=0.012)  # half a bucket there


def test_nothing_on_record_gives_no_row() -> None:
    assert len(quantiles_over_steps(distribution([]), extremes([]))) == 0


def test_all_in_the_outermost_bucket_gives_its_finite_end() -> None:
    found = quantiles_over_steps(frame_of({3: histogram([-np.inf, -np.inf])}), extremes([3]))
    assert found["p50"].is_finite().all()
