"""Errors clustered by prompt group: right where groups are single, wider where their members are alike."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support.real_runs import records

from ratioscope.metrics.analysis.jackknife import group_errors
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame


def by_sequence(table: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(statistics(table))
    return metric_frame(frame)


def test_single_member_groups_give_the_errors_clustered_by_sequence() -> None:
    table = records("vllm_base_fp32")
    wanted, found = by_sequence(table), group_errors(table, table["sequence_id"])
    compared = 0
    for column in set(found.columns) & set(wanted.columns) - {"step"}:
        for ours, theirs in zip(found[column], wanted[column], strict=True):
            if ours is not None and theirs is not None:
                # Delta method and jackknife differ in the next order of 1/n; 32 sequences a step.
                assert ours == pytest.approx(theirs, rel=0.15, abs=1e-9), column
                compared += 1
    assert compared > 100


def test_copies_of_a_sequence_add_no_information() -> None:
    table = records("vllm_base_fp32")
    doubled = pa.concat_tables([table, table])
    once = group_errors(table, table["sequence_id"])
    twice = group_errors(doubled, doubled["sequence_id"])
    for column in ("mismatch/kl_k3_se", "mismatch/abs_log_ratio_se", "mismatch/ess_token_se"):
        np.testing.assert_allclose(twice[column].to_numpy(), once[column].to_numpy(), rtol=1e-9)
    naive = by_sequence(doubled)["mismatch/kl_k3_se"].to_numpy()
    assert (naive < 0.8 * twice["mismatch/kl_k3_se"].to_numpy()).all()


def test_the_jackknife_is_the_one_of_the_formula() -> None:
    """By brute force: the statistics of the table without each group in turn."""
    table = records("trl_vllm_base").slice(0, 32)
    groups = [str(group) for group in table["group_id"].to_pylist()]
    left_out = []
    for group in sorted(set(groups)):
        rest = table.filter(pa.array([other != group for other in groups]))
        left_out.append(by_sequence(rest)["mismatch/chi2_sequence"][0])
    g = len(left_out)
    wanted = np.sqrt((g - 1) / g * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    assert group_errors(table)["mismatch/chi2_sequence_se"][0] == pytest.approx(wanted, rel=1e-9)


def test_one_group_has_no_error() -> None:
    table = records("trl_vllm_base").slice(0, 8)
    assert group_errors(table, ["only"] * 8)["mismatch/kl_k3_se"][0] is None


def test_every_metric_with_an_error_has_one_by_group() -> None:
    found = group_errors(records("trl_vllm_base"))
    with_error = {f"mismatch/{m.name}_se" for m in METRICS if m.error and "mismatch" in m.gaps}
    assert with_error <= set(found.columns)
