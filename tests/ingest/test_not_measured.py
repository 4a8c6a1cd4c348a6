"""Runs of which something was not measured: log-probs without a number, copies, and placeholders, in the words of a diagnosis."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.made_runs import LENGTH, ROWS, near, recorded

from ratioscope import Run, open_run
from ratioscope.app.export.bundle import bundle
from ratioscope.ingest.analysis.diagnosis import diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import known_context

Arguments = dict[str, Any]


def hole(value: float, side: str, first_step: int = 1) -> Any:
    """A change that puts a value in place of the last five log-probs of the sequences of replica b, from one step on."""

    def change(step: int, arguments: Arguments) -> Arguments:
        replicas = ["a", "secret-host"] * (ROWS // 2)
        values = arguments[f"{side}_logprobs"].copy()
        if step >= first_step:
            values[1::2, LENGTH - 5 :] = value
        reasons = ["length" if name == "secret-host" else "stop" for name in replicas]
        return arguments | {f"{side}_logprobs": values, "replica": replicas, "finish_reasons": reasons}

    return change


def copied(step: int, arguments: Arguments) -> Arguments:
    """Old is a copy of rollout, as in bypass mode."""
    draws = np.random.default_rng(step)
    return arguments | {
        "old_logprobs": arguments["rollout_logprobs"].copy(),
        "current_logprobs": near(arguments["old_logprobs"], draws),
    }


def bundled(run: Run) -> Any:
    """The diagnosis in a bundle of the run. Any: JSON."""
    with zipfile.ZipFile(io.BytesIO(bundle(run))) as archive:
        return json.loads(archive.read("diagnosis.json"))


@pytest.mark.parametrize(
    ("value", "name", "policy", "side"),
    [
        (np.nan, "NaN", "old", "the trainer's side"),
        (-np.inf, "−inf", "old", "the trainer's side"),
        (np.inf, "+inf", "rollout", "the sampler's side"),
    ],
)
def test_log_probs_without_a_number_are_counted_and_located(
    tmp_path: Path, value: float, name: str, policy: str, side: str
) -> None:
    result = diagnosis_of(recorded(tmp_path / "run", hole(value, policy, first_step=3)))
    first = result.diagnosis.likely[0]
    assert first.cause.code == "non_finite" and not result.diagnosis.is_healthy
    assert f"{name} on {side} at 160 of 2,560 tokens (6.2%)" in first.title
    assert "within the last 5 tokens and up to the end" in first.title and "since step 3" in first.title
    assert "only at replica secret-host" in first.title and "only in sequences that ended by “length”" in first.title
    assert ("the KL is infinite" in first.title) == (policy == "old" and name == "−inf")
    assert "in 32 of 64 sequences" in first.effect and "no reason to doubt" in first.effect
    assert "rounding noise" not in result.diagnosis.answer


def test_steps_whose_finite_tokens_are_not_read_count_too(tmp_path: Path) -> None:
    def change(step: int, arguments: Arguments) -> Arguments:
        return arguments | ({"old_logprobs": np.full((ROWS, LENGTH), np.nan)} if step > 4 else {})

    answer = diagnosis_of(recorded(tmp_path / "run", change)).diagnosis.answer
    assert (
        "NaN on the trainer's side at 1,280 of 1,280 tokens (100%), at every token of their sequences, since step 5"
        in answer
    )


def test_a_bundle_of_such_a_run_has_no_names(tmp_path: Path) -> None:
    text = json.dumps(bundled(recorded(tmp_path / "run", hole(np.nan, "old"))))
    assert "non_finite" in text and "secret-host" not in text


def test_where_the_mismatch_is_a_copy_the_total_is_judged(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", copied)
    result = diagnosis_of(run)
    told = "Old is a copy of rollout, bit for bit (bypass): the total is judged. "
    assert result.gap == "total" and result.diagnosis.answer.startswith(told) and result.diagnosis.gap > 1e-5
    assert diagnosis_of(run, "mismatch").diagnosis.answer.startswith("Both sides are equal to the last bit at all")
    assert bundled(run)["answer"] == result.diagnosis.answer
    plain = plain_diagnosis(result)
    assert plain["copies"][0]["gap"] == "mismatch" and plain["copies"][0]["whole"] and json.dumps(plain["copies"])
    assert not known_context(run, result, verdict_of(run)).groups[5:]


def test_steps_that_are_a_copy_are_told_and_not_read_beside_others(tmp_path: Path) -> None:
    def change(step: int, arguments: Arguments) -> Arguments:
        return copied(step, arguments) if step < 3 else arguments

    result = diagnosis_of(recorded(tmp_path / "run", change))
    told = "Old is a copy of rollout, bit for bit, at 2 of 6 steps: nothing is measured there. "
    assert result.gap == "mismatch" and result.steps == (3, 4, 5, 6) and result.diagnosis.answer.startswith(told)


def test_current_that_is_a_copy_of_old_is_said_once_beside_the_gap(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", lambda step, own: own | {"current_logprobs": own["old_logprobs"].copy()})
    result = diagnosis_of(run)
    assert result.gap == "mismatch" and "copy" not in result.diagnosis.answer
    told = [each.words for each in known_context(run, result, verdict_of(run)).groups if each.is_odd]
    words = "current is a copy of old, bit for bit: the drift is 0 by construction, and the clip never acts"
    assert told.count(words) == 1


def test_equal_sides_are_a_measurement_if_run_json_says_so(tmp_path: Path) -> None:
    recorded(tmp_path / "run", lambda step, own: own | {"old_logprobs": own["rollout_logprobs"].copy()})
    result = diagnosis_of(open_run(tmp_path / "run"))
    assert "not measured" in result.diagnosis.answer and not result.diagnosis.is_healthy and not result.untold
    info = tmp_path / "run" / "run.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"computed_apart": True}))
    found = diagnosis_of(open_run(tmp_path / "run")).diagnosis
    assert "proved equal" in found.answer and found.is_healthy


def test_zeros_on_both_sides_are_placeholders(tmp_path: Path) -> None:
    zeros = np.zeros((ROWS, LENGTH))
    found = diagnosis_of(recorded(tmp_path / "run", lambda step, own: {name: zeros for name in own})).diagnosis
    assert found.likely[0].cause.code == "placeholders" and not found.is_healthy
    assert "rounding noise" not in f"{found.answer} {found.rest_in_words}"
