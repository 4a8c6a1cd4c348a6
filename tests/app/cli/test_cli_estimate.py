"""`ratioscope estimate`: told beforehand, and held against what recording then takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.app.cli.cost import BatchShape, measured_cost


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["estimate", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_told_is_what_recording_then_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--sequences", "60", "--length", "500", "--steps", "100", "--ranks", "4")
    assert found["tokens_per_step"] == 30_000 and found["bytes_per_run"] == pytest.approx(
        400 * found["bytes_per_step"], rel=0.01
    )
    random = np.random.default_rng(1)
    with Collector(tmp_path / "run") as collector:
        for step in range(3):
            base = -random.exponential(0.6, (60, 500))
            sides: dict[str, Any] = {
                f"{p}_logprobs": (base + random.normal(0, 0.02, base.shape)).astype("f4") for p in found["policies"]
            }
            ids = random.zipf(1.3, base.shape).clip(max=150_000)
            collector.log(step=step, token_ids=ids, mask=np.ones(base.shape, bool), **sides)
    run = open_run(tmp_path / "run")
    assert run.size.bytes / 3 == pytest.approx(found["bytes_per_step"], rel=0.25)
    assert found["log_milliseconds_per_step"] > 0 < found["writer_cpu_seconds_per_step"]
    again = told(capsys, str(tmp_path / "run"), "--steps", "3")
    assert again["bytes_per_run"] == pytest.approx(run.size.bytes, rel=0.01) and again["tokens_per_step"] == 30_000


def test_an_estimate_warns_of_nothing_in_its_own_numbers(caplog: pytest.LogCaptureFixture) -> None:
    measured_cost(BatchShape(64, 200, readings=1))
    assert not [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_cost_grows_with_what_is_recorded() -> None:
    few, more = (
        measured_cost(BatchShape(20, 300, ("old", "current"), text="none")),
        measured_cost(BatchShape(20, 300, entropy=True)),
    )
    assert few.token_bytes < more.token_bytes and few.host_bytes < more.host_bytes
    large = measured_cost(BatchShape(8000, 300))  # more than is measured: scaled
    assert large.token_bytes == pytest.approx(400 * measured_cost(BatchShape(20, 300)).token_bytes, rel=0.3)


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ((), "--sequences and --length, or a RUN"),
        (("--sequences", "0", "--length", "5"), "at least 1"),
        (("--sequences", "5", "--length", "5", "--policies", "old"), "at least two of rollout, old, current"),
        (("--sequences", "5", "--length", "5", "--policies", "old,new"), "at least two of"),
        (("--sequences", "5", "--length", "5", "--text", "all"), "wanted ids or none"),
        (("--sequences", "5", "--length", "5", "--ranks", "0"), "at least 1 of each"),
    ],
)
def test_what_cannot_be_estimated_is_told_what_can(
    arguments: tuple[str, ...], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", *arguments]) == 2
    assert wanted in capsys.readouterr().err


def test_the_estimate_in_words_names_sizes_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--sequences", "8", "--length", "100"]) == 0
    out = capsys.readouterr().out
    for part in (
        "800 tokens of rollout, old, current",
        "KB per step",
        "ms per step",
        "of CPU per step",
        "1,000 steps on 1 rank",
    ):
        assert part in out


def test_readings_cost_what_recording_them_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, more = (told(capsys, "--sequences", "40", "--length", "500", "--readings", number) for number in ("0", "2"))
    assert "readings" not in plain and more["readings"] == 2
    assert 2 * 2 < more["bytes_per_token"] - plain["bytes_per_token"] < 2 * 5  # a float32 with noise in its low bits
    assert main(["estimate", "--sequences", "9", "--length", "9", "--readings", "1"]) == 0
    assert "rollout, old, current and 1 reading" in capsys.readouterr().out
    assert main(["estimate", str(tmp_path), "--readings", "1"]) == 2
    assert "wanted --sequences and --length with --readings" in capsys.readouterr().err


def test_the_tokens_of_a_step_are_said_to_be_those_of_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("estimate", "--sequences", "8", "--length", "20", "--steps", "2", "--ranks")
    assert (
        main([*shape, "8"]) == 0
        and "a step of a rank" in (out := capsys.readouterr().out)
        and "per step and rank" in out
    )
    assert main([*shape, "1"]) == 0 and "of a rank" not in capsys.readouterr().out
