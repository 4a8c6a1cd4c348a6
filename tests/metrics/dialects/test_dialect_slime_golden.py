"""slime's dialect against what slime's own code returned: golden runs, and the context-parallel layout."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialect_golden import GoldenRun, differences, golden_runs, read_json
from support.sizes import examples
from support.slime_layout import context_parallel_positions

from ratioscope.metrics.dialects import slime

RUNS = golden_runs("slime")

# Values near 0 are differences of float32 sums upstream, good to a few 1e-8 of the sums they come from.
CANCELLATION = {
    "log_ppl_diff": 1e-7,
    "log_ppl_abs_diff": 1e-7,
    "chi2_token": 2e-7,
    "chi2_seq": 2e-7,
    "k3_kl": 1e-9,
    "": 0.0,
}


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_metrics_are_what_slime_logged(run: GoldenRun) -> None:
    found = slime.evaluate(run.inputs, run.config, kind=run.kind)
    wanted = {"train/" + name: value for name, value in run.expected["reported"].items()}
    assert not differences(found.metrics, wanted, rtol=2e-6, atol=CANCELLATION)
    assert set(found.metrics) == set(wanted)
    assert found.losses["loss"] == pytest.approx(run.expected["loss_sum_unscaled"], rel=1e-6)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_weights_mask_losses_and_metrics_per_token_are_what_slime_formed(run: GoldenRun) -> None:
    found = slime.evaluate(run.inputs, run.config, kind=run.kind)
    inside = np.arange(found.mask.shape[1]) < run.inputs["response_lengths"][:, None]
    named = {"is_weights": found.weights, "response_mask_after": found.mask, **found.arrays}
    wanted = {name: value for name, value in run.arrays.items() if not name.startswith("grad")}
    for name, value in wanted.items():
        mine = named[name.removeprefix("metric_token/")]
        assert mine is not None
        np.testing.assert_allclose(np.asarray(mine, np.float64)[inside], value, rtol=2e-6, atol=3e-7, err_msg=name)


def test_the_golden_runs_reach_weights_and_rejection() -> None:
    """So that the comparison above cannot pass by comparing nothing."""
    assert sum("is_weights" in run.arrays for run in RUNS) >= 3
    assert any((run.arrays.get("response_mask_after", run.inputs["mask"]) != run.inputs["mask"]).any() for run in RUNS)


@pytest.mark.parametrize("layout", read_json("slime", "cp_layout.json")["layouts"], ids=str)
def test_a_context_parallel_rank_holds_the_positions_slime_gives_it(layout: dict[str, Any]) -> None:
    sizes = layout["total_length"], layout["response_length"], layout["cp_size"], layout["cp_rank"]
    assert context_parallel_positions(*sizes).tolist() == layout["response_positions"]


@examples(40)
@given(st.integers(1, 200), st.integers(0, 200), st.integers(1, 8))
def test_context_parallel_ranks_share_a_response_without_overlap(prompt: int, response: int, size: int) -> None:
    held = [context_parallel_positions(prompt + response, response, size, rank) for rank in range(size)]
    assert sorted(np.concatenate(held).tolist()) == list(range(response))
