"""The bias of a gap in a policy gradient: 0 for noise at its stated rate, the injected size for a bias, else a reason."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from support.ragged import measured, sampled_rows, stats, table

from ratioscope.metrics.frame import unavailable

NAMES = ("advantage_log_ratio", "advantage_excess")


def batch(
    seed: int, *, bias: float = 0.0, one_each: bool = True, sequences: int = 60, length: int = 20
) -> dict[str, float]:
    """Metrics of tokens sampled from `rollout`, whose logits `old` sees with noise. bias: log-ratio per unit of advantage."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (sequences, length, 30))
    first, second = (_log_softmax(each) for each in (logits, logits + random.normal(0, 0.2, logits.shape)))
    token = (np.exp(first).cumsum(-1) < random.random((sequences, length, 1))).sum(-1, keepdims=True).clip(0, 29)
    advantage = random.normal(0, 1, (sequences, 1 if one_each else length))
    rollout, old = (np.take_along_axis(each, token, -1)[..., 0] for each in (first, second))
    columns = {"rollout_logprobs": rollout, "old_logprobs": old + bias * advantage, "advantages": advantage}
    return measured(table([{name: own[row].tolist() for name, own in columns.items()} for row in range(sequences)]))


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


@pytest.mark.parametrize("one_each", [True, False])
def test_noise_that_does_not_know_the_advantage_has_no_bias(one_each: bool) -> None:
    runs = [batch(seed, one_each=one_each) for seed in range(80)]
    z = np.array([run["mismatch/advantage_excess"] / run["mismatch/advantage_excess_se"] for run in runs])
    # 5% of a standard normal lie beyond 1.96; 80 runs put the count at most at 12 but once in 10 000.
    assert (np.abs(z) > 1.96).sum() <= 12 and 0.75 < z.std() < 1.3 and abs(z.mean()) < 4 / math.sqrt(len(z))
    assert min(run["mismatch/kl_k3"] for run in runs) > 0.01  # K3 sees the noise at full size


@pytest.mark.parametrize("bias", [0.1, -0.1])
def test_a_log_ratio_that_follows_the_advantage_is_measured_with_its_sign(bias: float) -> None:
    """For x = bias * A + noise, sum(A x) / sum(|A|) is bias * sum(A^2) / sum(|A|); of a normal A that is bias * sqrt(pi / 2)."""
    run = batch(1, bias=bias, one_each=False, sequences=200)
    assert run["mismatch/advantage_log_ratio"] == pytest.approx(bias * math.sqrt(math.pi / 2), abs=0.02)
    for name in NAMES:
        value, error = run[f"mismatch/{name}"], run[f"mismatch/{name}_se"]
        assert np.sign(value) == np.sign(bias) and abs(value) > 8 * error


@pytest.mark.parametrize("unit", [2.0, 1024.0, 2.0**-9])
def test_the_unit_of_the_advantage_does_not_matter(unit: float) -> None:
    rows = sampled_rows(3, sequences=12, longest=9)
    scaled = [{**row, "advantages": [unit * each for each in row["advantages"]]} for row in rows]
    one, other = measured(table(rows)), measured(table(scaled))
    for name in NAMES:
        assert other[f"mismatch/{name}"] == pytest.approx(one[f"mismatch/{name}"], rel=1e-9)
    assert other["mismatch/mean_abs_advantage"] == pytest.approx(unit * one["mismatch/mean_abs_advantage"], rel=1e-6)


def test_one_advantage_per_sequence_is_that_of_each_of_its_tokens() -> None:
    rows = sampled_rows(4, sequences=12, longest=9)
    one = [{**row, "advantages": row["advantages"][:1]} for row in rows]
    all_of_them = [{**row, "advantages": row["advantages"][:1] * len(row["mask"])} for row in rows]
    for gap in ("mismatch", "total"):
        for name in (*NAMES, "mean_abs_advantage"):
            assert measured(table(one))[f"{gap}/{name}"] == measured(table(all_of_them))[f"{gap}/{name}"]


def test_without_a_value_the_reason_is_named() -> None:
    rows = sampled_rows(5, sequences=6, longest=9)
    bare = unavailable(stats(table([{k: v for k, v in row.items() if k != "advantages"} for row in rows])))
    flat = unavailable(stats(table([{**row, "advantages": [0.0]} for row in rows])))
    for name in NAMES:
        assert "no advantages are in the statistics on record" in bare[f"mismatch/{name}"]
        assert flat[f"mismatch/{name}"] == "because every advantage is 0"
    assert "mismatch/mean_abs_advantage" not in flat
