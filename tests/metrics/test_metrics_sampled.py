"""Rows kept by chance: statistics of them estimate those of all rows, right on average, and their errors say how far off."""

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope.metrics.corrections.correction import Correction, truncate
from ratioscope.metrics.corrections.effect import SUMS, correction_sums
from ratioscope.metrics.definitions.registry import STATISTICS
from ratioscope.metrics.distribution import LEVELS, histogram_columns
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.spread import whole_counts
from ratioscope.metrics.engines.step_values import step_values
from ratioscope.record import arrow_schema

KEPT = np.array([0.5, 0.25, 1.0, 0.8])
LENGTHS = (7, 5, 9, 4)
ENOUGH = 400


def records(lengths: Any, kept: Any, seed: int = 0, spread: float = 0.4) -> pa.Table:
    random = np.random.default_rng(seed)
    rows = []
    for index, (length, probability) in enumerate(zip(lengths, kept, strict=True)):
        rollout = random.normal(-1.5, 0.5, length)
        rows.append(
            {
                "attempt": 0,
                "step": 1,
                "sequence_id": str(index),
                "rollout_logprobs": rollout.tolist(),
                "old_logprobs": (rollout + random.normal(0, spread * (1 + index % 3), length)).tolist(),
                "inclusion_probability": float(probability),
                "replica": "ab"[index % 2],
            }
        )
    return pa.Table.from_pylist(rows, schema=arrow_schema())


def whole(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("inclusion_probability")
    return table.set_column(place, table.schema.field(place), pa.nulls(len(table), pa.float64()))


def linear(found: pa.Table) -> dict[tuple[str, ...], float]:
    """What adds up over rows: sums, and exponentials of log-sums, by slice and key; products are not among them."""
    values: dict[tuple[str, ...], float] = {}
    for row in found.to_pylist():
        for statistic in STATISTICS:
            if statistic.level != "cluster" and statistic.combine != "max" and row[statistic.name] is not None:
                value = row[statistic.name]
                key = (row["gap"], row["slice"], row["key"], statistic.name)
                values[key] = np.exp(value) if statistic.combine == "logsumexp" else value
    return values


def test_every_sum_is_right_on_average_over_all_that_chance_could_have_kept() -> None:
    table = records(LENGTHS, KEPT)
    expected = linear(statistics(whole(table)))
    mean = dict.fromkeys(expected, 0.0)
    for kept in product((False, True), repeat=len(KEPT)):
        probability = float(np.prod(np.where(kept, KEPT, 1 - KEPT)))
        if probability and any(kept):
            for key, value in linear(statistics(table.filter(pa.array(kept)))).items():
                mean[key] += probability * value
    assert len(expected) > 200
    for key, value in expected.items():
        assert mean[key] == pytest.approx(value, rel=1e-9, abs=1e-9), key


def test_an_average_over_a_sample_comes_near_and_its_error_says_how_near() -> None:
    """The error of the estimate over 300 samples is what one sample's standard error says, within a fifth."""
    random = np.random.default_rng(5)
    lengths, kept = random.integers(5, 40, ENOUGH), np.where(random.random(ENOUGH) < 0.1, 1.0, 0.2)
    table = records(lengths, kept, seed=1)
    names = ("kl_k3", "kl_direct", "abs_log_ratio")
    truth = step_values(statistics(whole(table)), names)
    found = [step_values(statistics(table.filter(pa.array(random.random(ENOUGH) < kept))), names) for _ in range(300)]
    for name in (f"mismatch/{name}" for name in names):
        drawn = np.array([values[name] for values in found])
        told = np.array([values[f"{name}_se"] for values in found])
        assert drawn.mean() == pytest.approx(
            truth[name], abs=4 * drawn.std() / np.sqrt(len(drawn)) + 0.02 * truth[name]
        )
        # told is of tokens yet to be sampled, drawn only of the chance of having been kept
        unseen = truth[f"{name}_se"]
        assert np.sqrt(drawn.var() + unseen**2) == pytest.approx(np.sqrt((told**2).mean()), rel=0.2)


def test_the_effect_of_a_correction_is_right_on_average_too() -> None:
    correction = truncate(1.1)
    table = records(LENGTHS, KEPT)
    expected = effects(whole(table), correction)
    mean = np.zeros(len(SUMS))
    for kept in product((False, True), repeat=len(KEPT)):
        probability = float(np.prod(np.where(kept, KEPT, 1 - KEPT)))
        if probability and any(kept):
            mean += probability * effects(table.filter(pa.array(kept)), correction)
    assert mean == pytest.approx(expected)


def effects(table: pa.Table, correction: Correction) -> Any:
    (row,) = correction_sums(table, [correction]).to_pylist()
    return np.array([row[name] for name in SUMS])


def test_histograms_count_what_the_rows_stand_for_and_tails_say_nothing() -> None:
    table = records(LENGTHS, [0.5] * len(LENGTHS))
    sampled = statistics(table).filter(pc.field("slice") == "all").to_pylist()[0]
    every = statistics(whole(table)).filter(pc.field("slice") == "all").to_pylist()[0]
    for level in LEVELS:
        buckets, counts, *logs = histogram_columns(level)
        assert sampled[buckets] == every[buckets]
        assert sampled[counts] == [2 * count for count in every[counts]]
        for name in logs:
            assert sampled[name] == pytest.approx(np.add(every[name], np.log(2)))
    assert every["token_tail"] and sampled["token_tail"] is None
    values = step_values(statistics(table))
    assert "mismatch/pareto_k_token" not in values and values["mismatch/tokens"] == 2 * sum(LENGTHS)


def test_rows_that_were_certain_to_be_kept_count_once() -> None:
    table = records(LENGTHS, [1.0] * len(LENGTHS))
    assert statistics(table).equals(statistics(whole(table)))


def test_estimated_counts_become_whole_numbers_without_drifting() -> None:
    random = np.random.default_rng(0)
    counts = random.exponential(0.4, 1000)
    assert abs(whole_counts(counts).cumsum() - counts.cumsum()).max() <= 0.5 + 1e-9
    assert whole_counts(np.array([3.0, 2.0])).tolist() == [3, 2]
