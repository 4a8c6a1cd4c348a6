"""Corrections carried out in the background: equal to the whole done at once, however often it was interrupted."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import Collector, open_run
from ratioscope.collectors.budget import Budget
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection, correction_effects
from ratioscope.ingest.analysis.step_rows import records_of
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.jobs import correction_results as correction_jobs
from ratioscope.ingest.jobs.correction_results import SCHEMA, CorrectionResults, correction_job, correction_text
from ratioscope.ingest.jobs.step_job import JobProgress
from ratioscope.ingest.jobs.step_ledger import BLOCK
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.correction import CORRECTIONS, NONE, Correction, Weigh, off_policy_clip, truncate
from ratioscope.metrics.corrections.effect import SUMS
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.distribution import BUCKETS, bucket_of
from ratioscope.metrics.engines.numpy_engine import statistics

STALE = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=6)
STEPS = run_folders.by_step(STALE)
TIS, VETO = CORRECTIONS[1], CORRECTIONS[-1]
GEO = TrainerCorrection("verl geo", "verl", dialect("verl").PRESETS["decoupled_geo_rs_token_tis"])
ALL: Sequence[Correction | TrainerCorrection] = (*CORRECTIONS, GEO)
TURN = threading.Lock()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(run_folders.write_run(tmp_path / "run", STALE))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def ledgers(cache: Cache, corrections: Sequence[Correction | TrainerCorrection] = ALL) -> list[CorrectionResults]:
    return [CorrectionResults(correction, cache) for correction in corrections]


def finished(run: Run, made: Sequence[CorrectionResults], steps: Sequence[int] | None = None) -> JobProgress:
    job = correction_job(run, made, run.steps if steps is None else steps, TURN)
    job.start()
    return job.wait(120)


def sums(made: CorrectionResults, run: Run) -> pl.DataFrame:
    return made.ledger.frame(run.row_digests()).select("step", *SUMS)


def wanted(run: Run, corrections: Sequence[Correction | TrainerCorrection] = ALL) -> list[pl.DataFrame]:
    effects = correction_effects(run, corrections).sums.sort("step")
    names = [each.name if isinstance(each, Correction) else each.title for each in corrections]
    return [effects.filter(correction=name).select("step", *SUMS) for name in names]


def stops_after(steps: int, monkeypatch: pytest.MonkeyPatch, how: Callable[[], object]) -> None:
    """Has `how` called once so many steps have been read."""
    seen = [0]

    def reading(run: Run, step: int) -> object:
        seen[0] += 1
        if seen[0] > steps:
            how()
        return records_of(run, step)

    monkeypatch.setattr(correction_jobs, "records_of", reading)


def test_the_job_finds_what_all_steps_at_once_give(run: Run, cache: Cache) -> None:
    made = ledgers(cache)
    assert finished(run, made) == JobProgress("done", 6, 6)
    for ledger, frame in zip(made, wanted(run), strict=True):
        assert sums(ledger, run).equals(frame)
    again = ledgers(cache)
    assert finished(run, again) == JobProgress("done", 0, 0)
    assert [sums(ledger, run).rows() for ledger in again] == [frame.rows() for frame in wanted(run)]


def test_a_cancelled_job_is_resumed_where_it_stopped(run: Run, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ledgers(cache)
    job = correction_job(run, made, run.steps, TURN)
    stops_after(2, monkeypatch, job.cancel)
    job.start()
    assert job.wait(60) == JobProgress("cancelled", 3, 6) and len(sums(made[0], run)) == 3
    monkeypatch.undo()
    later = ledgers(cache)  # of another process, which finds what was saved
    assert [len(sums(ledger, run)) for ledger in later] == [3] * len(later)
    assert finished(run, later) == JobProgress("done", 3, 3)
    assert all(sums(ledger, run).equals(frame) for ledger, frame in zip(later, wanted(run), strict=True))


def test_a_job_that_fails_says_why_and_keeps_what_it_had(
    run: Run, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError("no room")

    stops_after(4, monkeypatch, fail)
    made = ledgers(cache, [TIS])
    assert finished(run, made) == JobProgress("failed", 4, 6, "MemoryError: no room")
    monkeypatch.undo()
    assert finished(run, ledgers(cache, [TIS])) == JobProgress("done", 2, 2)


def test_a_growing_run_computes_new_steps_alone(tmp_path: Path, cache: Cache) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS[:4]:
        writer.step(rows)
    run = open_run(tmp_path / "run")
    made = ledgers(cache)
    assert finished(run, made).done == 4
    for rows in STEPS[4:]:
        writer.step(rows)
    run.refresh()
    assert made[0].ledger.missing(run.row_digests(), run.steps) == run.steps[4:]
    later = ledgers(cache)
    assert finished(run, later) == JobProgress("done", 2, 2)
    assert all(sums(ledger, run).equals(frame) for ledger, frame in zip(later, wanted(run), strict=True))


def test_a_step_that_was_written_again_is_computed_again(tmp_path: Path, cache: Cache) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS[:3]:
        writer.step(rows.slice(0, 2))
    run = open_run(tmp_path / "run")
    assert finished(run, ledgers(cache, [TIS])).done == 3
    writer.step(STEPS[1].slice(2))
    run.refresh()
    made = ledgers(cache, [TIS])
    assert finished(run, made) == JobProgress("done", 1, 1)
    assert sums(made[0], run).equals(wanted(run, [TIS])[0])


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"\x00" * 4096, None])
def test_a_damaged_cache_is_as_if_it_were_empty(run: Run, cache: Cache, tmp_path: Path, damage: bytes | None) -> None:
    assert finished(run, ledgers(cache, [TIS, VETO])).done == 6
    for file in (tmp_path / "cache").iterdir():
        flipped = bytearray(file.read_bytes())
        flipped[len(flipped) // 2] ^= 0xFF
        file.write_bytes(bytes(flipped) if damage is None else damage)
    made = ledgers(cache, [TIS, VETO])
    assert finished(run, made).state == "done"
    assert all(sums(ledger, run).equals(frame) for ledger, frame in zip(made, wanted(run, [TIS, VETO]), strict=True))


def test_a_foreign_table_under_our_name_is_not_believed(run: Run, cache: Cache) -> None:
    made = CorrectionResults(TIS, cache)
    (key,) = made.ledger.blocks(run.row_digests())
    for foreign in (pl.DataFrame({"step": [1]}), pl.DataFrame({name: ["x"] for name in SCHEMA})):
        cache.store(key, foreign.to_arrow())
        assert CorrectionResults(TIS, cache).ledger.frame(run.row_digests()).is_empty()


def test_without_a_cache_the_work_is_kept_in_memory(run: Run) -> None:
    made = ledgers(Cache(None), [TIS])
    assert finished(run, made).done == 6 and finished(run, made) == JobProgress("done", 0, 0)


def test_a_range_of_steps_is_computed_and_a_wider_one_adds_to_it(run: Run, cache: Cache) -> None:
    made = ledgers(cache, [TIS])
    assert finished(run, made, run.steps[2:4]) == JobProgress("done", 2, 2)
    assert sums(made[0], run)["step"].to_list() == run.steps[2:4]
    assert finished(run, made, run.steps[1:]) == JobProgress("done", 3, 3)


def test_blocks_of_a_long_run_are_kept_apart(cache: Cache) -> None:
    digests = {step: f"digest {step}" for step in range(2 * BLOCK + 10)}
    made = CorrectionResults(TIS, cache)
    names = list(made.ledger.blocks(digests))
    assert len(names) == 3
    grown = digests | {step: f"digest {step}" for step in range(len(digests), 3 * BLOCK + 1)}
    assert (
        list(made.ledger.blocks(grown))[:3] == names
        and list(made.ledger.blocks({k: digests[k] for k in range(99)})) == names[:1]
    )
    assert list(CorrectionResults(VETO, cache).ledger.blocks(digests)) != names


def test_what_a_correction_cannot_read_is_said_and_the_others_go_on(tmp_path: Path, cache: Cache) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", run_folders.only(STALE, ("rollout", "old"))))
    off_policy = TrainerCorrection("trl mask", "trl", dialect("trl").PRESETS["off-policy-mask"])
    made = ledgers(cache, [off_policy_clip(0.8, 1.2), off_policy, TIS])
    assert finished(run, made).state == "done"
    digests = run.row_digests()
    total, theirs, ours = (each.ledger.frame(digests) for each in made)
    assert set(total["reason"]) == {"no row has both policies of total"} and set(total["gap"]) == {None}
    assert "current_logprobs" in theirs["reason"][0] and ours["reason"].null_count() == 6
    assert finished(run, ledgers(cache, [off_policy])) == JobProgress("done", 0, 0), "reasons are kept, too"


def test_only_total_is_enough_for_what_reads_total(tmp_path: Path, cache: Cache) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", run_folders.only(STALE, ("rollout", "current"))))
    assert run.gaps == ("total",)
    made = ledgers(cache, [off_policy_clip(0.8, 1.2), TIS])
    assert finished(run, made).state == "done"
    assert made[0].ledger.frame(run.row_digests())["gap"].unique().to_list() == ["total"]
    assert made[1].ledger.frame(run.row_digests())["gap"].null_count() == 6


def test_rows_that_chance_kept_stand_for_those_it_did_not(tmp_path: Path, cache: Cache) -> None:
    draws = np.random.default_rng(0)
    with Collector(tmp_path / "run", budget=Budget(step_bytes=12_000, worst=0)) as collector:
        rollout = draws.normal(-1.5, 0.5, (200, 20))
        collector.log(step=0, rollout_logprobs=rollout, old_logprobs=rollout + draws.normal(0, 0.1, rollout.shape))
    run = open_run(tmp_path / "run")
    (made,) = ledgers(cache, [TIS])
    assert finished(run, [made]).done == 1
    row = made.ledger.frame(run.row_digests()).row(0, named=True)
    assert row["sampled"] is True and row["tokens"] == pytest.approx(sum(row["counts"]))
    assert sums(made, run).equals(wanted(run, [TIS])[0])


def test_the_weights_that_are_left_are_counted_where_they_lie(run: Run, cache: Cache) -> None:
    (made,) = ledgers(cache, [Correction("m", (Weigh("token", 0.5, 1.2, "zero"),))])
    finished(run, [made])
    x = run.tokens().filter(pl.col("mismatch").is_not_null()).select("mismatch").collect()["mismatch"].to_numpy()
    kept = x[(np.exp(x) >= 0.5) & (np.exp(x) <= 1.2)]
    counts = np.zeros(BUCKETS)
    for row in made.ledger.frame(run.row_digests()).iter_rows(named=True):
        counts[row["buckets"]] += row["counts"]
    # log(exp(x)) may fall on the other side of an edge than x, so neighbours are compared by their running sum.
    difference = np.cumsum(counts - np.bincount(bucket_of(kept), minlength=BUCKETS))
    assert np.abs(difference).max() <= 2 and counts.sum() == len(kept)


def test_a_run_without_token_rows_has_nothing_to_compute(tmp_path: Path, cache: Cache) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS:
        writer.add_statistics(statistics(rows))
    run = open_run(tmp_path / "run")
    assert len(run.steps) == 6 and run.row_digests() == {}
    assert finished(run, ledgers(cache, [TIS])) == JobProgress("done", 0, 0)


def test_a_damaged_token_file_counts_for_nothing_and_its_step_is_said_to_lack(tmp_path: Path, cache: Cache) -> None:
    root = run_folders.write_run(tmp_path / "run", STALE)
    file = sorted((root / "tokens").glob("*/*.parquet"))[2]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(bytes(content))
    run = open_run(root)
    made = ledgers(cache, [TIS])
    assert finished(run, made).state == "done"
    run.refresh()
    assert len(sums(made[0], run)) == 5 and len(run.row_digests()) == 5


def test_jobs_take_turns_and_one_that_waits_can_be_cancelled(run: Run, cache: Cache) -> None:
    turn = threading.Lock()
    with turn:
        job = correction_job(run, ledgers(cache, [TIS]), run.steps, turn)
        job.start()
        assert job.progress == JobProgress("waiting", 0, 6) and job.progress.at_work
        job.cancel()
        assert job.wait(30).state == "cancelled"
    other = correction_job(run, ledgers(cache, [TIS]), run.steps, turn)
    other.start()
    assert other.wait(60).state == "done" and not turn.locked()


def test_equal_corrections_share_their_work_whatever_they_are_called(run: Run, cache: Cache) -> None:
    one, other = truncate(2.0), Correction("mine", (Weigh("token", 0.0, 2.0),))
    assert correction_text(one) == correction_text(other) != correction_text(NONE)
    assert finished(run, ledgers(cache, [one])).done == 6
    assert finished(run, ledgers(cache, [other])).done == 0
    renamed = TrainerCorrection("another title", GEO.dialect, dict(reversed(list(GEO.config.items()))))
    assert correction_text(renamed) == correction_text(GEO)


def test_pages_are_answered_while_a_job_is_at_work(run: Run, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answered = threading.Semaphore(0), threading.Semaphore(0)

    def reading(run: Run, step: int) -> object:
        begun.release()
        assert answered.acquire(timeout=60), "a page waits for the job"
        return records_of(run, step)

    monkeypatch.setattr(correction_jobs, "records_of", reading)
    job = correction_job(run, ledgers(cache), run.steps, TURN)
    job.start()
    for done in range(len(run.steps)):
        assert begun.acquire(timeout=60) and TURN.locked() and job.progress == JobProgress("running", done, 6)
        assert len(run.metrics()) == len(open_run(run.path).metrics()) == 6
        answered.release()
    assert job.wait(60) == JobProgress("done", 6, 6)
