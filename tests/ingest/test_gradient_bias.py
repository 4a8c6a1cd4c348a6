"""The bias of a recorded run in the gradient: found where it was put, not where it was not, and why it is not available."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.biased_runs import biased_run
from support.pages_read import Read

from ratioscope.app.cli import main
from ratioscope.app.figures.accumulated_bias import accumulated_bias
from ratioscope.app.presentation.bias_words import bias_fact, bias_words
from ratioscope.ingest.analysis.gradient_bias import GradientBias, bias_of_run, gradient_bias, plain_bias
from ratioscope.ingest.run import open_run


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return biased_run(tmp_path_factory.mktemp("runs") / "biased", bias=0.02)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return biased_run(tmp_path_factory.mktemp("runs") / "noisy")


def bias_of(folder: Path) -> GradientBias:
    found = bias_of_run(open_run(folder))
    assert found is not None
    return found


def test_an_injected_bias_is_stated_with_its_size_and_noise_is_not(biased: Path, noisy: Path) -> None:
    own, other = bias_of(biased), bias_of(noisy)
    assert own.found is not None and other.found is not None
    assert own.found.is_persistent and own.found.mean == pytest.approx(
        0.02 * 1.25, rel=0.2
    )  # sqrt(pi / 2) of a normal A
    assert bias_words(own).startswith("the gap pushes the gradient the same way: +0.02") and bias_fact(own)
    assert not other.found.is_persistent and abs(other.found.mean) < 4 * other.found.error
    assert bias_words(other).startswith("no persistent part is beyond chance: ") and bias_fact(other) == ""


def test_the_course_ends_at_the_total_and_is_plain_data(biased: Path) -> None:
    own = bias_of(biased)
    assert own.found is not None
    assert own.course["step"].to_list() == list(range(30))
    assert own.course["accumulated"][-1] == pytest.approx(own.found.total)
    told = json.loads(json.dumps(plain_bias(own), allow_nan=False))
    assert told["persistent"] is True and told["found"]["total_error"] == pytest.approx(own.found.total_error)
    part = gradient_bias(open_run(biased), "mismatch", range(4, 26))
    assert part.steps == tuple(range(4, 26)) and part.found is not None


@pytest.mark.parametrize(
    ("made", "because"),
    [
        ({"is_weighed": False}, "no advantages are on record"),
        ({"size": 0.0}, "every advantage is 0"),
        ({"steps": 6}, "it is known at 6 of the 20 steps that its error needs"),
        ({"noise": 0.0}, "every weight is 1: the two sides are equal"),
    ],
    ids=str,
)
def test_what_is_not_available_has_its_reason(tmp_path: Path, made: dict[str, Any], because: str) -> None:
    found = gradient_bias(open_run(biased_run(tmp_path / "run", **made)), "mismatch")
    assert bias_words(found) == f"not available, because {because}" and bias_fact(found) == ""
    assert plain_bias(found)["persistent"] is None


def test_the_drift_has_none(biased: Path) -> None:
    assert "are not sampled from its earlier policy" in bias_words(gradient_bias(open_run(biased), "drift"))


def test_metrics_of_chosen_steps_state_the_bias_of_these_steps(
    biased: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", str(biased), "--steps", "4:25"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert bias_words(gradient_bias(open_run(biased), "mismatch", range(4, 26))) in said and "over 22 steps" in said


@pytest.mark.slow
def test_the_faces_say_one_sentence(biased: Path, noisy: Path, read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    said = bias_words(bias_of(biased))
    for verb in ("info", "metrics"):
        assert main([verb, str(biased)]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    assert main(["info", str(biased), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gradient_bias"]["persistent"] is True
    page = " ".join(part.proto.body for part in read("overview", biased).html)
    assert said.split("; ")[0] in page
    assert "bias in the gradient" not in " ".join(part.proto.body for part in read("overview", noisy).html)


def test_the_charts_have_the_accumulated_bias_of_the_chosen_steps(biased: Path, read: Read) -> None:
    charts = read("charts", biased, groups=["gradient"]).charts
    assert len(charts) == 4 and "added up over the steps" in charts[-1]
    assert "not available, because" in str(
        accumulated_bias(bias_of(biased).course.clear(), "mismatch", "not available, because x")
    )
