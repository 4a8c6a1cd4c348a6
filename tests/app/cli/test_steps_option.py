"""--steps A:B: the same steps with the same words in every verb that has steps."""

import json
from pathlib import Path

import pytest
from support.recorded import recorded

from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.ingest.run import open_run

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("trl_vllm_stale4", tmp_path_factory.mktemp("run") / "stale", steps=6)


def printed(capsys: Captured, *argv: object) -> list[dict[str, object]]:
    assert main([*map(str, argv), "--json"]) == cli.OK
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


@pytest.mark.parametrize("verb", ["metrics", "corrections --by step --threshold 2", "metrics --dialect trl"])
def test_the_rows_of_some_steps_are_those_of_the_whole_run(verb: str, run: Path, capsys: Captured) -> None:
    name, *options = verb.split()
    steps = open_run(run).steps
    low, high = steps[1], steps[-2]
    some = printed(capsys, name, run, *options, "--steps", f"{low}:{high}")
    whole = printed(capsys, name, run, *options)
    assert some == [row for row in whole if low <= int(str(row["step"])) <= high] and 0 < len(some) < len(whole)
    assert printed(capsys, name, run, *options, "--steps", f"{high}:") == [
        row for row in whole if int(str(row["step"])) >= high
    ]


def test_a_part_of_a_run_is_measured_as_one(run: Path, capsys: Captured) -> None:
    opened = open_run(run)
    low, high = opened.steps[1], opened.steps[2]
    (row,) = printed(capsys, "metrics", run, "--by", "run", "--steps", f"{low}:{high}")
    assert row["mismatch/kl_k3"] == opened.metrics(by=(), steps=range(low, high + 1))["mismatch/kl_k3"][0]
    assert row["mismatch/kl_k3"] != opened.metrics(by=())["mismatch/kl_k3"][0]
    main(["metrics", str(run), "--by", "run", "--steps", f"{low}:{high}"])
    assert f"of steps {low} to {high} alone" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["metrics", "corrections", "export -o OUT"])
def test_steps_that_no_run_has_are_an_error_that_names_those_on_record(
    verb: str, run: Path, tmp_path: Path, capsys: Captured
) -> None:
    name, *options = verb.replace("OUT", str(tmp_path / "x.csv")).split()
    steps = open_run(run).steps
    for wrong, words in (
        ("900:", f"no step of --steps is on record; the run has steps {steps[0]} to {steps[-1]}"),
        ("3:1", "--steps 3:1: the last step is before the first one"),
        ("x", "--steps x: wanted A:B with whole numbers"),
    ):
        assert main([name, str(run), *options, "--steps", wrong]) == cli.USAGE
        assert words in capsys.readouterr().err
