"""Corrections with weights of a reading: those of a run whose trainer had the reading's log-probs, in jobs and in the verb."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import Collector, open_run, record_readings
from ratioscope.app.cli import main
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection, correction_effects
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.jobs.correction_results import CorrectionResults, correction_job
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.correction import CORRECTIONS
from ratioscope.metrics.corrections.effect import SUMS
from ratioscope.metrics.dialects import dialect

GAP = "rollout:referee"
OF_READING = [replace(each, gap=GAP) for each in CORRECTIONS]
STEPS, SEQUENCES = 3, 6


def lists(seed: int) -> list[Any]:
    chance = np.random.default_rng(seed)
    return [-1 - chance.exponential(1.0, 15 + 5 * index).astype(np.float32) for index in range(SEQUENCES)]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A run with a reading at all steps but the last, and a run of the same samples whose trainer is that reading."""
    for name in ("read", "other"):
        with Collector(tmp_path / name, strict=True, writer="thread") as collector:
            for step in range(STEPS):
                rollout, old, referee = (lists(10 * step + part) for part in range(3))
                known = {"referee": referee} if name == "read" and step < STEPS - 1 else {}
                collector.log(
                    step=step,
                    rollout_logprobs=rollout,
                    old_logprobs=old if name == "read" else referee,
                    sequence_ids=[f"{step}-{index}" for index in range(SEQUENCES)],
                    readings=known,
                )
    return tmp_path / "read", tmp_path / "other"


def test_the_effects_are_those_of_a_trainer_that_is_the_reading(folders: tuple[Path, Path]) -> None:
    read, other = map(open_run, folders)
    found = correction_effects(read, OF_READING, gap=GAP).sums
    wanted = correction_effects(other, CORRECTIONS, steps=range(STEPS - 1)).sums
    assert set(found["gap"]) == {GAP} and found["step"].unique().to_list() == [0, 1]
    assert found.drop("gap").equals(wanted.drop("gap"))


def test_a_job_computes_them_beside_a_trainers_own_and_again_when_the_reading_changes(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run, cache = open_run(folders[0]), Cache(tmp_path / "cache")
    own = TrainerCorrection("geo", "verl", dialect("verl").PRESETS["decoupled_geo_rs_token_tis"])
    results = [CorrectionResults(each, cache) for each in (OF_READING[1], own)]
    assert carried_out(run, results) == "done"
    of_reading, of_rows = run.row_digests(gap=GAP), run.row_digests()
    assert list(of_reading) == [0, 1] and len(results[1].ledger.frame(of_rows)) == STEPS
    wanted = correction_effects(run, OF_READING[1:2], gap=GAP).sums.select("step", *SUMS)
    assert results[0].ledger.frame(of_reading).select("step", *SUMS).equals(wanted)
    again = CorrectionResults(OF_READING[1], cache)
    assert not again.ledger.missing(of_reading, run.steps)
    record(folders[0], step=1, shift=0.5)
    run.refresh()
    assert again.ledger.missing(run.row_digests(gap=GAP), run.steps) == [1]
    assert carried_out(run, [again]) == "done"
    kept = again.ledger.frame(run.row_digests(gap=GAP)).select("step", *SUMS)
    assert kept.equals(correction_effects(run, OF_READING[1:2], gap=GAP).sums.select("step", *SUMS))
    assert not kept.equals(wanted)


def carried_out(run: Run, results: list[CorrectionResults]) -> str:
    job = correction_job(run, results, run.steps, threading.Lock())
    job.start()
    return job.wait(120).state


def record(folder: Path, *, step: int, shift: float) -> None:
    keys = {"attempt": [0] * SEQUENCES, "step": [step] * SEQUENCES}
    ids = {"sequence_id": [f"{step}-{index}" for index in range(SEQUENCES)]}
    record_readings(folder, "referee", keys | ids | {"logprobs": [each - shift for each in lists(10 * step + 2)]}, {})


def test_the_verb_takes_the_gap(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corrections", str(folders[0]), "--gap", GAP, "--threshold", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["gap"] for row in rows} == {GAP} and rows[0]["ess_after"] > rows[0]["ess_before"]
    for wrong in (["old:referee"], ["drift"], ["rollout:nobody"], [GAP, "--dialect", "verl"]):
        assert main(["corrections", str(folders[0]), "--gap", *wrong]) == 2
        assert f"--gap {wrong[0]}" in " ".join(capsys.readouterr().err.split())
