"""The diagnosis of a run: the steps that are read, and runs of which too little is on record."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.edge_runs import made, many_steps
from support.growth_runs import growth_run

from ratioscope import Budget, Collector, open_run
from ratioscope.app.cli import main
from ratioscope.arrays import Floats
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.diagnosis import ARGUMENTS, diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.evidence import evidence_of
from ratioscope.metrics.diagnosis.catalogue import CAUSES
from ratioscope.metrics.diagnosis.evidence import FACTS


def test_only_steps_with_token_rows_are_chosen(tmp_path: Path) -> None:
    many_steps(tmp_path / "run", steps=400, chunk=100)
    result = diagnosis_of(open_run(tmp_path / "run"))
    assert result.steps == (0, 100, 200, 300) and result.diagnosis.sequences == 8
    assert "40 tokens of 8 sequences at 4 steps, 0 to 300" in result.read


def test_steps_of_statistics_alone_say_what_to_record(tmp_path: Path) -> None:
    many_steps(tmp_path / "run", steps=400, chunk=100)
    with pytest.raises(SourceError, match="no token rows .* record them with a budget above 0"):
        diagnosis_of(open_run(tmp_path / "run"), steps=[5, 6])


def test_steps_that_the_run_lacks_or_that_are_empty_are_named_as_such(tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-2.0]])
        collector.log(step=1, rollout_logprobs=[[]], old_logprobs=[[]])
    with pytest.raises(SourceError, match="has none of the steps that were asked for; it has steps 0 to 1"):
        diagnosis_of(open_run(tmp_path), steps=[7])
    with pytest.raises(SourceError, match="no tokens in the sequences of these steps"):
        diagnosis_of(open_run(tmp_path), steps=[1])


@pytest.mark.parametrize(
    ("logprobs", "said"),
    [
        (np.full((2, 3), np.nan), "6 tokens with both sides of the mismatch, and not one pair of finite log-probs"),
        (np.full((2, 3), np.inf), "not one pair of finite log-probs .* export RUN --level token"),
        (np.zeros((2, 0)), "every sequence is empty, or its mask is false at all of its tokens"),
    ],
)
def test_rows_without_a_finite_pair_are_not_called_absent(tmp_path: Path, logprobs: Floats, said: str) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=logprobs, old_logprobs=logprobs)
    for steps in (None, [1]):
        with pytest.raises(SourceError, match=said):
            diagnosis_of(open_run(tmp_path / "run"), steps=steps)


def test_a_run_without_a_gap_says_what_to_record(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="^no step is on record"):
        diagnosis_of(open_run(made(tmp_path, "empty")))


def test_few_tokens_are_called_too_few(tmp_path: Path) -> None:
    result = diagnosis_of(open_run(made(tmp_path, "one_token")))
    assert "1 token can be read, which is too few" in result.diagnosis.answer
    assert "1 token of 1 sequence at step 0" in result.read


def test_the_undoing_of_a_likely_cause_has_every_step_that_was_read(tmp_path: Path) -> None:
    result = diagnosis_of(open_run(made(tmp_path, "stale")))
    undoing = plain_diagnosis(result)["likely"][0]["undoing"]
    assert tuple(at["step"] for at in undoing["over_steps"]) == result.steps
    assert np.sum([at["tokens"] for at in undoing["over_steps"]]) == result.diagnosis.tokens
    assert all(at["after"] <= at["before"] for at in undoing["over_steps"])


def test_another_mix_that_makes_the_gap_ten_times_as_large_is_no_fault_of_the_weights(tmp_path: Path) -> None:
    def rare(earlier: Floats) -> Floats:
        return np.asarray(1e-4 + (1 - np.exp(earlier)) ** 40)

    def frequent(earlier: Floats) -> Floats:
        return np.asarray(1e-4 + np.exp(3 * earlier))

    result = diagnosis_of(open_run(growth_run(tmp_path / "run", rare, before=frequent))).diagnosis
    assert not {item.cause.code for item in result.likely} & {
        "never_synced",
        "sync_broke",
        "corrupted_load",
        "missed_syncs",
    }
    assert any("only because the mix of probabilities changes" in each.effect for each in result.excluded)


def test_rows_that_a_budget_kept_give_the_gap_of_all_rows(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    old = -draws.exponential(1.0, (600, 8))
    noise = draws.normal(0, np.where(draws.random(600) < 0.05, 1.0, 0.1)[:, None], old.shape)
    with Collector(tmp_path / "run", budget=Budget(step_bytes=20_000, worst=20)) as collector:
        collector.log(step=0, rollout_logprobs=(old - noise).tolist(), old_logprobs=old.tolist())
    run = open_run(tmp_path / "run")
    evidence, level = evidence_of(run, "mismatch").evidence, run.metrics()["mismatch/kl_k3"][0]
    assert 20 < evidence.rows < 300 and evidence.effective_rows < evidence.rows
    assert evidence.mean(evidence.distance) == pytest.approx(level, rel=0.25)
    assert evidence.distance.mean() > 1.5 * level
    assert diagnosis_of(run).diagnosis.gap == pytest.approx(level, rel=0.25)


def test_every_fact_has_its_words_and_the_argument_that_records_it() -> None:
    assert set(FACTS) == set(ARGUMENTS) and {name for cause in CAUSES for name in cause.needs} <= set(FACTS)


def two_sides(folder: Path, *, rollout: bool = True, moved: float = 0.01) -> Path:
    """A run of three steps whose current is apart from old; without rollout it has only the drift."""
    draws = np.random.default_rng(0)
    with Collector(folder, writer="thread") as collector:
        for step in range(3):
            old = -draws.exponential(size=(8, 50 + step))
            current = old + draws.normal(0, moved, old.shape)
            collector.log(
                step=step, rollout_logprobs=old if rollout else None, old_logprobs=old, current_logprobs=current
            )
    return folder


@pytest.mark.parametrize("steps", [None, [1, 2]])
def test_the_answer_on_a_drift_has_the_numbers_of_metrics_and_no_cause(
    steps: list[int] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = two_sides(tmp_path / "run", rollout=False)
    asked = ["diagnose", str(folder), "--gap", "drift", *(["--steps", "1:2"] if steps else [])]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    frame = open_run(folder).metrics(by=("step",)).filter(pl.col("step").is_in(steps or [0, 1, 2]))
    for name in ("ppo_kl", "abs_log_ratio", "share_outside_0.8_1.2"):
        assert found["measured"][name] == pytest.approx(
            np.average(frame[f"drift/{name}"], weights=frame["drift/tokens"])
        )
    assert found["measured"]["max_abs_log_ratio"] == frame["drift/max_abs_log_ratio"].max()
    assert found["steps_read"] == (steps or [0, 1, 2]) and found["tokens"] == frame["drift/tokens"].sum()
    assert not found["likely"] and not found["excluded"] and found["healthy"] is None
    assert main(asked) == 0
    assert "Both sides are the trainer's" in capsys.readouterr().out
    with pytest.raises(SourceError, match="Both sides are the trainer's"):
        diagnosis_of(open_run(folder), "drift", steps)


def test_the_drift_of_a_copy_of_rollout_is_called_the_total_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(two_sides(tmp_path / "copy")), "--gap", "drift"]) == 0
    shown = capsys.readouterr().out
    assert "so the drift is the total gap" in shown and "the trainer's" not in shown and "--gap total" in shown
    assert main(["diagnose", str(two_sides(tmp_path / "equal", rollout=False, moved=0)), "--gap", "drift"]) == 0
    assert "Old and current are equal at all 1,224 tokens of 3 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (
            None,
            "the mismatch of run was not measured: rollout is not on record; pass rollout_logprobs= to the collector",
        ),
        ("total", "the total of run was not measured: rollout is not on record"),
        ("rollout:referee", "the size of rollout:referee: ratioscope metrics RUN --gap rollout:referee"),
    ],
)
def test_a_gap_that_was_not_measured_is_called_so_with_the_argument_that_records_it(
    gap: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=said):
        diagnosis_of(open_run(two_sides(tmp_path / "run", rollout=False)), gap)


def test_a_gap_may_be_named_by_its_two_policies(tmp_path: Path) -> None:
    assert diagnosis_of(open_run(two_sides(tmp_path / "run")), "rollout:current").gap == "total"


def test_only_what_the_record_lacks_is_asked_for(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    with Collector(tmp_path / "run") as collector:
        for step in range(4):
            later = -draws.exponential(1.0, (8, 40))
            collector.log(
                step=step, rollout_logprobs=np.minimum(later + draws.normal(0, 0.05, later.shape), 0), old_logprobs=later,
                token_ids=draws.integers(0, 9, later.shape), rollout_versions=[step] * 8, trainer_version=step + 1,
                group_ids=[f"{row // 2}" for row in range(8)],
            )  # fmt: skip
    result = diagnosis_of(open_run(tmp_path / "run"))
    asked = result.to_record({fact for item in result.diagnosis.cannot_tell for fact in item.missing})
    assert {"kv_versions", "sampled_ids", "entropy"} <= set(asked)
    assert not {"rollout_versions", "token_ids", "trainer_version", "group_ids"} & set(asked)
    told = " ".join(result.why(item) for item in result.diagnosis.cannot_tell)
    assert "log kv_versions" in told and "rollout_versions" not in told and "token_ids" not in told
    records = [name for item in plain_diagnosis(result)["cannot_tell"] for name in item["record"]]
    assert "kv_versions" in records and not any("rollout_versions" in name for name in records)


def test_a_fact_of_only_some_tokens_is_not_said_to_be_absent(tmp_path: Path) -> None:
    later = -np.random.default_rng(0).exponential(1.0, (8, 40))
    with Collector(tmp_path / "run") as collector:
        for step, known in enumerate([{"rollout_versions": [0] * 8, "trainer_version": 1}, {}]):
            collector.log(step=step, rollout_logprobs=later, old_logprobs=later - 0.01, **known)  # type: ignore[arg-type]
    result = diagnosis_of(open_run(tmp_path / "run"))
    (item,) = (item for item in result.diagnosis.cannot_tell if item.cause.code == "version_lag")
    assert result.why(item) == "the version lag is on record for only some of the tokens that were read"
