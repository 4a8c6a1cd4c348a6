"""The certificate of exactness: bits, not values, and never more than the file can show."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope import Budget, Collector, open_run
from ratioscope.app.cli import main
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.exactness import exactness_of
from ratioscope.metrics.diagnosis.grid import grid_of, widths

Floats = npt.NDArray[np.float32]


def logprobs(seed: int = 0) -> Floats:
    return -np.random.default_rng(seed).exponential(1.0, (4, 30)).astype(np.float32)


def recorded(root: Path, rollout: list[Floats], old: list[Floats], mask: npt.NDArray[np.bool_] | None = None) -> Path:
    with Collector(root) as collector:
        for step, (one, other) in enumerate(zip(rollout, old, strict=True)):
            names = [f"s{step}-{row}" for row in range(len(one))]
            collector.log(
                step=step, rollout_logprobs=one, old_logprobs=other, mask=mask, replica="b", sequence_ids=names
            )
    return root


def test_equal_bits_are_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = recorded(tmp_path / "run", [logprobs(0), logprobs(1)], [logprobs(0), logprobs(1)])
    found = exactness_of(open_run(root))
    assert found.is_certified and found.words == "100% of 240 tokens are equal to the last bit"
    assert main(["check", str(root), "--exact"]) == 4, "equal, and nobody stated that they were computed apart"
    assert main(["check", str(root), "--exact", "--allow-unmeasured"]) == 0
    assert "exact mismatch: 100% of 240 tokens" in capsys.readouterr().out


@examples(15)
@given(st.integers(0, 1), st.integers(0, 3), st.integers(0, 29))
def test_the_first_difference_of_one_bit_is_found_where_it_is(step: int, row: int, position: int) -> None:
    import tempfile

    old = [logprobs(0), logprobs(1)]
    old[step][row, position] = np.nextafter(old[step][row, position], np.float32(-9))
    with tempfile.TemporaryDirectory() as folder:
        found = exactness_of(open_run(recorded(Path(folder) / "run", [logprobs(0), logprobs(1)], old)))
    first = found.first
    assert not found.is_certified and found.equal == 239 and first is not None
    assert (first.step, first.sequence, first.position, first.replica) == (step, f"s{step}-{row}", position, "b")
    assert found.words.startswith("99.5833% of 240 tokens") and [part.equal for part in found.steps].count(119) == 1


def test_masked_tokens_do_not_count_and_missing_ones_and_signed_zeros_do(tmp_path: Path) -> None:
    old, mask = logprobs(0), np.ones((4, 30), np.bool_)
    old[1, 3], mask[1, 3] = -77.0, False
    assert exactness_of(open_run(recorded(tmp_path / "masked", [logprobs(0)], [old], mask))).is_certified
    both = logprobs(0)
    both[2, 5] = np.nan
    missing = exactness_of(open_run(recorded(tmp_path / "nan", [both], [both])))
    assert (missing.tokens, missing.equal, missing.is_certified) == (120, 119, False)
    zero, negative = logprobs(0), logprobs(0)
    zero[0, 0], negative[0, 0] = 0.0, -0.0
    assert exactness_of(open_run(recorded(tmp_path / "zero", [zero], [negative]))).equal == 119


@pytest.mark.parametrize("decimals", [2, 4, 5])
def test_few_decimals_certify_nothing(tmp_path: Path, decimals: int, capsys: pytest.CaptureFixture[str]) -> None:
    values = [np.round(logprobs(0), decimals)]
    root = recorded(tmp_path / "run", values, values)
    found = exactness_of(open_run(root))
    assert not found.is_certified and found.equal == found.tokens
    assert f"the file holds few digits: rollout has {decimals} decimals, old has {decimals} decimals" in found.words
    assert main(["check", str(root), "--exact", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["exact"]["resolution"]["old"]["resolution"] == pytest.approx(0.5 * 10.0**-decimals)
    assert [step["equal"] for step in said["exact"]["steps"]] == [120]


def test_tokens_with_statistics_only_need_a_log_ratio_of_zero(tmp_path: Path) -> None:
    for name, moved in (("same", 0.0), ("moved", 0.01)):
        with Collector(tmp_path / name, budget=Budget(step_bytes=2500)) as collector:
            for step in range(3):
                values = -np.random.default_rng(step).exponential(1.0, (40, 30)).astype(np.float32)
                collector.log(step=step, rollout_logprobs=values, old_logprobs=values - np.float32(moved))
        found = exactness_of(open_run(tmp_path / name))
        assert found.unseen > 0 and found.is_certified == (moved == 0.0)
        assert "tokens have statistics only" in found.words


def test_a_run_without_both_sides_fails_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, old_logprobs=logprobs(0))
    with pytest.raises(SourceError, match="Pass rollout_logprobs= to the collector too"):
        exactness_of(open_run(tmp_path / "run"))
    limits = tmp_path / "limits.toml"
    limits.write_text('verdict = "allow"\nexact = true\n')
    assert main(["check", str(tmp_path / "run"), "--limits", str(limits)]) == 1
    assert "not available, because" in capsys.readouterr().out
    limits.write_text('exact = "yes"\n')
    assert main(["check", str(tmp_path / "run"), "--limits", str(limits)]) == 2


def test_grids_are_told_and_float32_has_none() -> None:
    values = logprobs(3).ravel().astype(np.float64)
    assert grid_of(values) is None and grid_of(values[:20]) is None
    assert grid_of(values - 800) is None  # there float32 values lie 6e-5 apart
    rounded = grid_of(np.append(np.round(values, 4), [-800.00006] * 9))
    assert rounded is not None and rounded.name == "4 decimals"
    half = grid_of(values.astype(np.float16).astype(np.float64))
    assert half is not None and half.name == "float16" and half.resolution is None
    brain = (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)
    found = grid_of(brain)
    assert found is not None and found.name == "bfloat16"
    assert (np.abs(np.round(brain / widths(found, brain)) - brain / widths(found, brain)) < 1e-9).all()


def test_digits_that_the_writer_states_or_the_values_show_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collector(tmp_path / "stated", resolution={"old": 5e-5}) as collector:
        collector.log(step=0, rollout_logprobs=logprobs(0), old_logprobs=logprobs(0))
    stated = exactness_of(open_run(tmp_path / "stated"))
    assert not stated.is_certified and stated.limits.endswith("old has 4 decimals")
    recorded(tmp_path / "shown", [np.round(logprobs(0), 2)], [logprobs(0)])
    assert main(["info", str(tmp_path / "shown")]) == 0
    said = capsys.readouterr().out
    assert "rollout is stored with 2 decimals: each log-prob is within 0.005 nats" in said
    assert "mismatch: K3 below 4.2e-06 nats/token and equality of bits are not available" in said
    assert main(["info", str(tmp_path / "stated"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resolution"] == {"old": {"name": "4 decimals", "resolution": 5e-5}}
    recorded(tmp_path / "float32", [logprobs(0)], [logprobs(1)])
    assert main(["info", str(tmp_path / "float32")]) == 0 and "stored digits" not in capsys.readouterr().out


@pytest.mark.parametrize("given", [{"old": 0.0}, {"old": -1.0}, {"mine": 1e-4}, {"old": float("nan")}])
def test_an_impossible_resolution_is_refused(tmp_path: Path, given: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="for four decimals"):
        Collector(tmp_path / "run", resolution=given)
