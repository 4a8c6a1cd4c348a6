"""What single tokens say: their values against the definitions of the metrics, and what counts as a confident disagreement."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.edge_runs import made

from ratioscope.ingest.analysis.part_rows import part_sequences
from ratioscope.ingest.analysis.sequence_lines import log_ratio_lines, tokens_within
from ratioscope.ingest.rows.part import Only, Part
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.analysis.token_values import BY_NAME, VALUES, confident_disagreement, step_of


@pytest.fixture(scope="module")
def stale(runs: Path) -> Run:
    return open_run(made(runs, "stale"))


@pytest.mark.parametrize(("earlier", "later"), [(-0.1, -2.5), (-1.0, -1.0), (-3.0, -0.2), (-0.5, -math.inf)])
def test_values_are_their_formulas(earlier: float, later: float) -> None:
    a, b = np.array([earlier]), np.array([later])
    x = later - earlier
    wanted = {
        "log_ratio": x,
        "abs_log_ratio": abs(x),
        "prob_diff": math.exp(later) - math.exp(earlier),
        "kl_k3": math.exp(x) - 1 - x,
        "weight": math.exp(x),
    }
    assert {value.name: float(value.of(a, b)[0]) for value in VALUES} == pytest.approx(wanted)


def test_an_unknown_side_has_no_value() -> None:
    for earlier, later in ((np.nan, -1.0), (-1.0, np.nan), (-np.inf, -1.0)):
        for value in VALUES:
            found = value.of(np.array([earlier]), np.array([later]))[0]
            assert math.isnan(found) or value.name == "prob_diff"


def test_a_mean_over_tokens_of_a_value_is_the_metric(stale: Run) -> None:
    tokens = stale.tokens([14]).filter(pl.col("mismatch").is_not_null()).collect()
    sides = (tokens[f"{policy}_logprob"].cast(pl.Float64).to_numpy() for policy in ("rollout", "old"))
    earlier, later = sides
    metrics = stale.metrics().filter(step=14)
    for name in ("kl_k3", "abs_log_ratio"):
        assert BY_NAME[name].of(earlier, later).mean() == pytest.approx(metrics[f"mismatch/{name}"][0])
    assert np.abs(BY_NAME["prob_diff"].of(earlier, later)).mean() == pytest.approx(metrics["mismatch/prob_diff"][0])


def test_confident_disagreements_are_the_same_in_numpy_and_polars() -> None:
    earlier = np.array([math.log(0.5), math.log(0.49), -0.01, -0.01, -0.01, np.nan])
    x = np.array([-2.1, -3.0, -2.0, -np.inf, np.nan, -3.0])
    wanted = [True, False, False, True, False, False]
    assert confident_disagreement(earlier, x).tolist() == wanted
    frame = pl.DataFrame({"a": earlier, "x": x}).fill_nan(None)
    found = frame.select(confident_disagreement(pl.col("a"), pl.col("x")).fill_null(False)).to_series()
    assert found.to_list() == wanted


def test_steps_grow_with_size() -> None:
    for value in VALUES:
        assert list(value.steps) == sorted(value.steps)
        assert [step_of(value, size) for size in (0.0, *value.steps, math.inf)] == [-1, *range(len(value.steps)), 6]


def test_the_table_counts_what_a_loop_over_tokens_counts(stale: Run) -> None:
    table = {row["sequence_id"]: row for row in stale.sequences(14).iter_rows(named=True)}
    lines = {row[0]: row[2] for row in log_ratio_lines(stale, 14, "mismatch", points=5).rows()}
    within = {row[0]: row[2:] for row in tokens_within(stale, 14, "mismatch", -10.0, -1.0).rows()}
    assert sum(row["mismatch/confident_disagreements"] for row in table.values()) > 0
    for sequence_id, row in table.items():
        tokens = stale.sequence(14, sequence_id, row["minibatch"])
        pairs = list(zip(tokens["rollout_logprob"], tokens["mismatch"], strict=True))
        assert row["mismatch/confident_disagreements"] == sum(a >= math.log(0.5) and x < -2 for a, x in pairs)
        xs = [x for _, x in pairs]
        inside = [at for at, x in enumerate(xs) if -10 <= x < -1]
        assert within.get(sequence_id, (0, None)) == ((len(inside), inside[0]) if inside else (0, None))
        line = lines[sequence_id]
        assert len(line) == min(5, len(xs)) and max(map(abs, line)) == pytest.approx(max(map(abs, xs)))
        if len(xs) <= 5:
            assert line == pytest.approx(xs)


def test_masked_tokens_leave_no_trace_in_a_line(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, "holes"))
    line = {row[0]: row[2] for row in log_ratio_lines(run, 5, "mismatch").rows() if row[1] is None}
    assert line["5-0"][2:5] == [0.0, 0.0, 0.0] and line["5-1"][0] == -math.inf and line["5-2"] == [0.0] * 5


def test_a_row_of_one_policy_alone_has_no_line(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, "holes"))
    assert set(run.sequences(5)["minibatch"]) == {None, 0, 1}
    assert set(log_ratio_lines(run, 5, "mismatch")["minibatch"]) == {None}


@pytest.mark.parametrize("name", ["group_id", "minibatch", "lag", "reward_sign", "length_decile", "rank"])
def test_the_sequences_of_a_slice_are_those_its_metrics_count(stale: Run, name: str) -> None:
    metrics = stale.metrics(by=("step", name)).filter(step=14)
    wanted = {str(key): int(n) for key, n in metrics.select(name, "mismatch/sequences").drop_nulls().rows()}
    counted = {key: len(part_sequences(stale, 14, "mismatch", Part(((Only(name, key),),)))) for key in wanted}
    assert counted == wanted and wanted
