"""Numbers of several tokens per position, from a recorded run to every face; a run without them shows nothing of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.biased_runs import biased_run
from support.pages_read import Read
from support.supported_runs import SEQUENCES, TOKENS, logged, supported_run

from ratioscope.app.cli import main
from ratioscope.app.pages.support import drift_words, support_blocks, support_words, what_was_read
from ratioscope.ingest.analysis import support_numbers as module
from ratioscope.ingest.analysis.support_numbers import SupportNumbers, plain_support, support_numbers
from ratioscope.ingest.run import open_run

PER_STEP = SEQUENCES * TOKENS
SAID = "KL(rollout || trainer) is at least"


@pytest.fixture(scope="module")
def supported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return supported_run(tmp_path_factory.mktemp("runs") / "supported", trainer="nemo_rl")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return biased_run(tmp_path_factory.mktemp("runs") / "bare", steps=3)


def numbers_of(folder: Path, gap: str = "mismatch", steps: range | None = None) -> SupportNumbers:
    found = support_numbers(open_run(folder), gap, steps)
    assert found is not None
    return found


def test_a_recorded_run_has_the_numbers_of_what_was_logged(supported: Path) -> None:
    """By loops over the arguments of the steps, at float32."""
    random = np.random.default_rng(5)
    divergence = drift = size = 0.0
    for _ in range(24):
        given = logged(random, 6, -0.5)
        pairs = zip(
            given["rollout_topk_logprobs"].reshape(-1, 6), given["old_topk_logprobs"].reshape(-1, 6), strict=True
        )
        for place, (rollout, train) in enumerate(pairs):
            q, p = (np.append(np.exp(side), 1 - np.exp(side).sum()).astype(float) for side in (rollout, train))
            x = np.log(p / q)
            advantage = given["advantages"][place // TOKENS]
            divergence -= sum(q * x)
            drift, size = drift + advantage * sum((q - p) * x), size + abs(advantage)
    found = numbers_of(supported)
    assert (found.k, found.steps, found.is_part, found.counted) == (6, tuple(range(24)), False, (0, 0, 0, 0))
    assert found.named("support_kl").value == pytest.approx(divergence / (24 * PER_STEP), rel=1e-3)
    assert found.named("score_drift").value == pytest.approx(drift / size, rel=1e-3)
    assert found.named("support_kl").tokens == 24 * PER_STEP and found.named("support_kl").sequences == 24 * SEQUENCES
    assert found.gain > 1.5


def test_a_drift_is_persistent_and_score_centering_removes_it(supported: Path) -> None:
    found = numbers_of(supported)
    assert found.drift is not None and found.drift.is_persistent
    assert drift_words(found).startswith("The drift of the score widens the gap at each update: 0.0")
    centered = next(each for each in found.effects if each.centering.name == "score centering, no weights")
    assert centered.removed.value == pytest.approx(1, abs=4 * centered.removed.error)
    assert support_words(found).startswith("KL(rollout || trainer) is at least 0.0")


def test_the_course_and_the_numbers_are_plain_data(supported: Path) -> None:
    found = numbers_of(supported, steps=range(4, 9))
    assert found.course["step"].to_list() == [4, 5, 6, 7, 8]
    told = json.loads(json.dumps(plain_support(found), allow_nan=False))
    assert told["steps"][0]["mismatch/support_kl"] == found.by_step[0][0].value
    assert told["drift"] is None and told["tokens_per_position"] == 6
    assert "it is known at 5 of the 20 steps" in drift_words(found)


@pytest.mark.parametrize(
    ("more", "gap", "because"),
    [
        (
            {"old_topk_logprobs": None},
            "mismatch",
            "no position has log-probs of both sides of the mismatch at one token",
        ),
        ({}, "drift", "the tokens of the drift are not sampled from its earlier policy"),
    ],
)
def test_what_is_not_available_has_its_reason(tmp_path: Path, more: dict[str, Any], gap: str, because: str) -> None:
    found = numbers_of(supported_run(tmp_path / "run", steps=2, **more), gap)
    assert support_words(found) == f"not available, because {because}"
    assert json.loads(json.dumps(plain_support(found), allow_nan=False))["because"] == because


def test_tokens_out_of_the_loss_do_not_count_and_a_run_without_advantages_has_no_drift(tmp_path: Path) -> None:
    left = np.arange(TOKENS)[None].repeat(SEQUENCES, 0) < 7
    found = numbers_of(supported_run(tmp_path / "run", steps=2, loss_mask=left, advantages=None))
    assert found.named("support_kl").tokens == 2 * SEQUENCES * 7
    assert drift_words(found).endswith("because no token with a support has an advantage.")
    assert {each.because for each in found.effects} == {"no token with a support has an advantage"}


def test_a_long_run_is_read_in_part_and_says_so(supported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    monkeypatch.setattr(module, "MOST_TOKENS", TOKENS + 1)
    found = numbers_of(supported)
    assert found.is_part and found.steps[-1] == 23 and len(found.steps) == 3
    assert found.named("support_kl").tokens == 3 * 2 * TOKENS, "whole sequences"
    assert what_was_read(found) == ["Read: a part of the tokens of 3 steps, because top-k is large."]


def test_faults_of_what_was_recorded_are_counted(tmp_path: Path) -> None:
    wrong = np.full((SEQUENCES, TOKENS), -9.0, np.float32)
    told = what_was_read(numbers_of(supported_run(tmp_path / "run", steps=1, k=30, old_logprobs=wrong)))
    assert len(told) == 1 and " another log-prob in the support than beside it" in told[0]


@pytest.mark.slow
def test_every_face_shows_the_section(
    supported: Path, tmp_path: Path, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", str(supported)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "Several tokens per position",
        "widens the gap",
        "Effect of score centering.",
        "score_centering: true",
    ):
        assert words in printed
    assert main(["metrics", str(supported), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[5]["mismatch/support_kl"] > 0 and rows[5]["mismatch/support_kl_se"] > 0
    assert main(["metrics", str(supported), "--json", "--metric", "kl_k3"]) == 0
    assert "support_kl" not in capsys.readouterr().out
    assert main(["info", str(supported), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["support"]["score_centering"][1]["removed"]["value"] > 0.5
    opened = [part.value() for part in read("charts", supported).expander if part.key == "support"]
    assert SAID in str([[*blocks] for blocks in opened])
    assert main(["corrections", str(supported)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Effect of score centering." in printed and "score_centering: true" in printed and SAID not in printed
    (opened,) = (part.value() for part in read("fix", supported).expander if part.key == "centering")
    assert "score centering, TIS 2" in str([*opened])
    for name in ("report.json", "report.md"):
        assert main(["report", str(supported), "--output", str(tmp_path / name)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["support"]["metrics"][0]["name"] == "support_kl"
    assert "| support_kl |" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_run_without_them_shows_nothing(
    bare: Path, tmp_path: Path, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_run(bare)
    assert support_numbers(run, "mismatch") is None and not [*support_blocks(run, None)]
    for verb in (["metrics"], ["metrics", "--json"], ["info", "--json"], ["corrections"]):
        assert main([verb[0], str(bare), *verb[1:]]) == 0
        said = capsys.readouterr().out
        assert "support" not in said and "score centering" not in said
    drawers = [part.key for page in ("charts", "fix") for part in read(page, bare).expander]
    assert "try" in drawers and not {"support", "centering"} & {*drawers}
    for name in ("report.json", "report.md"):
        assert main(["report", str(bare), "--output", str(tmp_path / name)]) == 0
        assert "support_kl" not in (tmp_path / name).read_text()
