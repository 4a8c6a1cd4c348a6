"""Causes that a column of the record names: named with the column, excluded by it, and left open without it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import Collector, open_run
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes.recorded_labels import CAUSES
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis
from ratioscope.metrics.diagnosis.evidence import Evidence

ROWS, LENGTH = 48, 60
BAD_ROWS = np.arange(ROWS) % 3 == 1
CODES = [cause.code for cause in CAUSES]
OF_ROWS: dict[str, tuple[str, Any, Any]] = {
    "cached_prefix": ("cached_tokens", 12, 0), "media": ("media", 2, 0), "packing_leak": ("pack_position", 1, 0),
}  # fmt: skip
"""Cause -> (argument of log, its value in sequences with the fault, its value in the others)."""
OF_TOKENS: dict[str, tuple[str, Any, Any]] = {
    "old_keys": ("kv_versions", 3, 4), "other_experts": ("router_agreement", 0.5, 1.0), "other_ids": ("sampled_ids", 8, 7),
}  # fmt: skip


def run_of(folder: Path, code: str, *, label: str = "fault", columns: bool = True) -> Diagnosis:
    """The diagnosis of a run with noise in all tokens and more in a part. label: what the column tells: fault, none or all."""
    draws = np.random.default_rng(0)
    old = -draws.exponential(1.0, (ROWS, LENGTH))
    is_bad = np.repeat(BAD_ROWS[:, None], LENGTH, 1) if code in OF_ROWS else draws.random((ROWS, LENGTH)) < 0.2
    if code == "other_ids":  # one id in the middle of a sequence spoils what comes behind it
        is_bad = BAD_ROWS[:, None] & (np.arange(LENGTH) >= LENGTH // 2)
    size = np.where(is_bad, 0.4, 0.02)
    told = {"fault": is_bad, "none": np.zeros_like(is_bad), "all": np.ones_like(is_bad)}[label]
    if code == "other_ids":
        told = told & (np.arange(LENGTH) == (0 if label == "all" else LENGTH // 2))
    name, yes, no = {**OF_ROWS, **OF_TOKENS}[code]
    values = np.where(told if code in OF_TOKENS else told[:, 0], yes, no)
    with Collector(folder, strict=True) as collector:
        for step, rows in enumerate(np.split(np.arange(ROWS), 3)):
            collector.log(
                step=step, rollout_logprobs=(old - draws.normal(0, size))[rows].clip(max=0), old_logprobs=old[rows],
                token_ids=np.full((len(rows), LENGTH), 7), rollout_versions=4, trainer_version=4,
                **({name: values[rows]} if columns else {}),
            )  # fmt: skip
    return diagnosis_of(open_run(folder)).diagnosis


@pytest.mark.parametrize("code", CODES)
def test_a_fault_with_its_column_on_record_is_named_first(code: str, tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", code)
    first = found.likely[0]
    assert first.cause.code == code and first.confidence != "low", found.answer
    assert first.of_whole > 0.5


@pytest.mark.parametrize("code", CODES)
def test_without_its_column_the_cause_stays_open_with_the_line_that_records_it(code: str, tmp_path: Path) -> None:
    run_of(tmp_path / "run", code, columns=False)
    result = diagnosis_of(open_run(tmp_path / "run"))
    open_cause = next(item for item in result.diagnosis.cannot_tell if item.cause.code == code)
    assert {**OF_ROWS, **OF_TOKENS}[code][0] in result.why(open_cause)
    assert code not in {item.cause.code for item in result.diagnosis.likely}


@pytest.mark.parametrize("code", CODES)
def test_a_column_without_the_label_excludes_the_cause(code: str, tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", code, label="none")
    assert code in {item.cause.code for item in found.excluded}


@pytest.mark.parametrize("code", CODES)
def test_a_label_on_every_token_decides_nothing(code: str, tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", code, label="all")
    assert "none shows the gap without it" in next(i.because for i in found.cannot_tell if i.cause.code == code)


def test_a_label_that_has_nothing_to_do_with_the_gap_is_not_blamed(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    old = -draws.exponential(1.0, (ROWS, LENGTH))
    with Collector(tmp_path / "run", strict=True) as collector:
        collector.log(
            step=0, rollout_logprobs=(old - draws.normal(0, 0.2, old.shape)).clip(max=0), old_logprobs=old,
            cached_tokens=np.where(BAD_ROWS, 9, 0), media=np.arange(ROWS) % 2, pack_position=np.arange(ROWS) % 4,
            router_agreement=np.where(draws.random(old.shape) < 0.3, 0.5, 1.0),
        )  # fmt: skip
    named = {item.cause.code for item in diagnosis_of(open_run(tmp_path / "run")).diagnosis.likely}
    assert not named & set(CODES)


def test_an_unknown_value_in_some_sequences_leaves_the_cause_open(tmp_path: Path) -> None:
    old = -np.random.default_rng(1).exponential(1.0, (ROWS, LENGTH))
    with Collector(tmp_path / "run", strict=True) as collector:
        cached = [None, *[0] * (ROWS - 1)]
        collector.log(step=0, rollout_logprobs=old - 0.01, old_logprobs=old, cached_tokens=cached)
    found = diagnosis_of(open_run(tmp_path / "run")).diagnosis
    assert "cached_prefix" in {item.cause.code for item in found.cannot_tell}


def test_each_cause_needs_a_fact_that_a_column_gives() -> None:
    assert all(CAUSE[code].needs and CAUSE[code].kind == "recorded label" for code in CODES)
    assert set(CODES) == {*OF_ROWS, *OF_TOKENS}


@pytest.mark.parametrize("replicas", [False, True])
def test_one_rank_of_eight_is_named_and_doubted_if_a_replica_explains_as_much(tmp_path: Path, replicas: bool) -> None:
    draws = np.random.default_rng(1)
    for rank in range(8):
        with Collector(tmp_path / "run", rank=rank, strict=True) as collector:
            for step in range(3):
                old = -draws.exponential(1.0, (6, 40))
                sampled = (old - draws.normal(0, 0.4 if rank == 5 else 0.02, old.shape)).clip(max=0)
                replica = f"engine-{rank}" if replicas else None
                collector.log(step=step, rollout_logprobs=sampled, old_logprobs=old, replica=replica)
    found = diagnosis_of(open_run(tmp_path / "run")).diagnosis
    first = found.likely[0]
    assert first.of_whole > 0.9 and first.confidence == ("medium" if replicas else "high"), found.answer
    assert (first.title, first.instead) == (
        (f"{CAUSE['stuck_replica'].title}: replica engine-5", ("odd_rank",))
        if replicas
        else (f"{CAUSE['odd_rank'].title}: rank 5", ())
    )


def test_bad_sequences_that_are_longer_than_the_others_are_told_to_be(tmp_path: Path) -> None:
    draws = np.random.default_rng(2)
    lengths = np.where(BAD_ROWS, 200, 30)
    old = [-draws.exponential(1.0, n) for n in lengths]
    with Collector(tmp_path / "run", strict=True) as collector:
        collector.log(
            step=0,
            rollout_logprobs=[(x - draws.normal(0, 0.3 if len(x) > 30 else 0.02, len(x))).clip(max=0) for x in old],
            old_logprobs=old,
        )
    first = diagnosis_of(open_run(tmp_path / "run")).diagnosis.likely[0]
    assert first.cause.code == "outlier_sequences"
    assert first.effect.endswith("they have 200 tokens on average, and the others 30")


@pytest.mark.parametrize("recomputed", [False, True])
def test_tokens_behind_older_ones_count_with_them_unless_the_keys_were_recomputed(recomputed: bool) -> None:
    """In every third sequence the weights change after a third of the tokens."""
    draws = np.random.default_rng(1)
    row, position = np.repeat(np.arange(ROWS), LENGTH), np.tile(np.arange(LENGTH), ROWS)
    is_older = BAD_ROWS[row] & (position < LENGTH // 3)
    is_bad = is_older if recomputed else BAD_ROWS[row]
    later = -draws.exponential(1.0, len(row))
    facts = {"lag": 3 * is_older, "step": row // 16}
    evidence = Evidence(later - draws.normal(0, np.where(is_bad, 0.4, 0.02)), later, row, position, facts, {})
    found = CAUSE["version_lag"].test(evidence)
    assert found.holds and found.share is not None and found.share.share > 0.95
    assert ("behind them" in found.effect) is not recomputed, found.effect
