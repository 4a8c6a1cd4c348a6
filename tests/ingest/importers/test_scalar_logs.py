"""Logs of numbers by step, written by each logger's own package (tests/data/scalars), as runs without tokens."""

import json
import math
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from support.imported import rejected
from support.paths import ROOT

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.importers.samples import Rejected
from ratioscope.ingest.importers.scalars.agreement import LoggedMetrics, agreements, likely_trainer, why_own
from ratioscope.ingest.importers.scalars.attempts import MOST_ATTEMPTS, Attempts
from ratioscope.ingest.importers.scalars.event_files import event_rows
from ratioscope.ingest.importers.scalars.framed_logs import swanlab_rows
from ratioscope.ingest.importers.scalars.number_row import LogChoices, Logged
from ratioscope.ingest.statistics.logged_scalars import _wide
from ratioscope.metrics.definitions.registry import is_metric
from ratioscope.metrics.dialects import NAMES, dialect

DATA = ROOT / "tests" / "data" / "scalars"
K3, PROBS, SCORE = "rollout_corr/k3_kl", "training/rollout_probs_diff_mean", "critic/score"


def expected(step: int) -> dict[str, float]:
    """The numbers that each package was given at a step, from 1 to 5."""
    score = {2: math.nan, 3: math.inf}.get(step, step / 3)
    return {K3: 0.001 * step + 0.1, PROBS: 0.25 * step, SCORE: score}


def store(path: Path, name: str) -> Path:
    """An SQLite file of the tables that the package wrote."""
    base = sqlite3.connect(path)
    base.executescript((DATA / f"{name}.sql").read_text())
    base.close()
    return path


@pytest.mark.parametrize("name", ["tensorboard", "swanlab", "mlflow", "trackio"])
def test_every_number_of_a_real_log_is_in_the_run(name: str, tmp_path: Path) -> None:
    source = {
        "tensorboard": lambda: DATA / "events.out.tfevents.1795466719.node7",
        "swanlab": lambda: DATA / "run-2ka888sj.swanlab",
        "mlflow": lambda: store(tmp_path / "mlflow.db", "mlflow"),
        "trackio": lambda: store(tmp_path / "verl.db", "trackio"),
    }[name]()
    assert main(["import", str(source), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1"]) == 0
    run = open_run(tmp_path / "run")
    found = {(row["step"], row["name"]): row["value"] for row in run.logged.to_dicts()}
    wanted = {(step, key): value for step in range(1, 6) for key, value in expected(step).items()}
    assert found == pytest.approx(wanted, rel=1e-7 if name == "tensorboard" else 1e-14, nan_ok=True)
    assert run.steps == [1, 2, 3, 4, 5] and run.gaps == ("mismatch",) and run.size.rows == 0
    assert run.metrics()["mismatch/kl_k3"].to_list() == pytest.approx([expected(step)[K3] for step in range(1, 6)])


def test_a_file_logger_of_verl_is_graded_by_what_it_holds(tmp_path: Path) -> None:
    log = tmp_path / "experiment.jsonl"
    log.write_text("".join(json.dumps({"step": step, "data": expected(step)}) + "\n" for step in range(1, 6)))
    assert main(["import", str(log), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1"]) == 0
    run = open_run(tmp_path / "run")
    verdict = verdict_of(run)
    assert verdict.severity.label == "watch" and verdict.signal == "kl_k3" and verdict.since_step == 1
    why = {check.name: check.absent for check in verdict.checks}
    assert why["staleness"] == "because this run was imported from a scalar log: it holds no tokens"
    assert why["mean_weight"] == "because the log has no mean_weight_token_z"
    assert "total, drift and staleness, because this run was imported" in verdict.checked
    assert all("log rollout_logprobs" not in text for text in why.values())
    assert any("mismatch/kl_k3 is its rollout_corr/k3_kl" in note for note in run.notes)
    assert "has no sum over all steps" in run.unavailable["mismatch/kl_k3"]


@pytest.mark.parametrize(
    ("verb", "code", "words"),
    [
        (["diagnose"], 2, "imported from a scalar log"),
        (["export", "--level", "token", "-o", "x.csv"], 2, "--level token is not available, because this run"),
        (["corrections"], 0, "imported from a scalar log: it holds no tokens"),
        (["metrics", "--dialect", "verl"], 2, "--logged"),
        (["verify", "--deep"], 0, "1 file of scalars is as committed"),
        (["metrics", "--logged"], 0, "verl/critic/score"),
        (["compact"], 0, "nothing"),
        (["repair"], 0, "nothing"),
    ],
)  # fmt: skip
def test_each_verb_says_what_is_missing_and_why(
    verb: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", str(DATA / "run-2ka888sj.swanlab"), "-o", "run", "--dialect", "verl@0.9.1"]) == 0
    capsys.readouterr()
    found = main([verb[0], "run", *verb[1:]])
    out = capsys.readouterr()
    assert words in " ".join((out.out + out.err).split()) and (found == 0) is (code == 0)


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["--metric", "step,logged/step"]])
def test_a_number_may_have_the_name_of_a_column(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("training/global_step", "run", "attempt", "name", "value", "metric", "logged/step", "training/epoch")
    lines = [{"step": step + 100, "data": dict.fromkeys(names, step)} for step in range(3)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1"]) == 0
    capsys.readouterr()
    assert main(["metrics", str(tmp_path / "run"), "--logged", *form]) == 0
    out = capsys.readouterr().out
    if form == ["--json"]:
        last = json.loads(out)[-1]
        assert (last["step"], last["logged/step"], last["logged/logged/step"]) == (2, 102, 2) and len(last) == 9
    if form == ["--csv"]:
        assert out.startswith(
            "step,attempt,logged/logged/step,metric,name,logged/run,logged/step,training/epoch,value\n"
        )


def test_a_file_of_scalars_may_call_a_metric_as_a_key_is_called() -> None:
    metrics = ["mismatch/kl_k3", "step", "attempt"]
    table = pl.DataFrame({"attempt": 0, "step": 1, "name": list("abc"), "value": 0.5, "metric": metrics})
    assert _wide(table)["mismatch/kl_k3"].to_list() == [0.5]


def test_steps_that_go_back_begin_an_attempt_and_the_newest_counts(tmp_path: Path) -> None:
    steps = [1, 2, 3, 4, 3, 4, 5]
    log = tmp_path / "log.csv"
    log.write_text("step,loss,kl\n" + "".join(f"{step},{place},{place / 8}\n" for place, step in enumerate(steps)))
    assert main(["import", str(log), "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    shown = run.logged.filter(name="loss").sort("step")
    assert shown["step"].to_list() == [1, 2, 3, 4, 5] and shown["value"].to_list() == [0, 1, 4, 5, 6]
    assert run.attempts == {0: 1, 1: 3} and sum(shadow.steps for shadow in run.shadowed) == 2


def test_a_value_that_is_logged_twice_at_a_step_counts_once_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}\n{"step": 2, "loss": 3, "acc": 0.5}\n')
    assert main(["import", str(log), "-o", str(tmp_path / "run"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["logged_twice"], said["values"], said["steps"], said["format"]) == (1, 4, 2, "scalar-table")
    assert open_run(tmp_path / "run").logged.filter(name="loss")["value"].to_list() == [1, 3]


def test_rows_that_are_none_are_listed_with_file_row_field_and_reason(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        '{"step": 1, "a": 1}',
        "[2]",
        '{"a": 2}',
        '{"step": 1.5, "a": 2}',
        '{"step": 2, "a": "text"}',
        '{"step": 3, "a": 1',
    ]
    log.write_text("\n".join(lines))
    assert main(["import", str(log), "-o", str(tmp_path / "run"), "--from", "scalar-table"]) == 1
    found = [(row["file"], row["row"], row["field"]) for row in rejected(tmp_path / "run")]
    assert found == [("log.jsonl", 1, None), ("log.jsonl", 2, "step"), ("log.jsonl", 3, "step"), ("log.jsonl", 5, None)]
    assert open_run(tmp_path / "run").steps == [1]


def test_a_cut_event_file_gives_what_lies_before_the_cut(tmp_path: Path) -> None:
    data = (DATA / "events.out.tfevents.1795466719.node7").read_bytes()
    whole = list(event_rows(DATA / "events.out.tfevents.1795466719.node7", LogChoices()))
    assert len(whole) == 15 and all(isinstance(row, Logged) for row in whole)
    for cut in range(40, len(data), 37):
        path = tmp_path / "events.out.tfevents.1.x"
        path.write_bytes(data[:cut])
        rows = list(event_rows(path, LogChoices()))
        own = [row for row in rows if isinstance(row, Logged)]
        assert [str(row.values) for row in own] == [
            str(row.values) for row in whole[: len(own)] if isinstance(row, Logged)
        ]
        assert all(isinstance(row, Rejected) and "cut" in row.reason for row in rows[len(own) :])


@pytest.mark.parametrize("name", ["events.out.tfevents.1795466719.node7", "run-2ka888sj.swanlab"])
def test_a_flipped_bit_is_told_and_alters_no_number(name: str, tmp_path: Path) -> None:
    reader = event_rows if "events" in name else swanlab_rows
    data = (DATA / name).read_bytes()
    known = {str(row.values) for row in reader(DATA / name, LogChoices()) if isinstance(row, Logged)}
    for at in range(60, len(data), 41):
        path = tmp_path / name
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        rows = list(reader(path, LogChoices()))
        assert {str(row.values) for row in rows if isinstance(row, Logged)} <= known
        assert any(isinstance(row, Rejected) for row in rows)


def test_a_store_of_several_runs_wants_one_of_them(tmp_path: Path) -> None:
    path = store(tmp_path / "mlflow.db", "mlflow")
    base = sqlite3.connect(path)
    base.execute("INSERT INTO runs (run_uuid, name, lifecycle_stage) VALUES ('second', 'other', 'active')")
    base.execute("INSERT INTO metrics VALUES ('loss', 1.7976931348623157e308, 1, 'second', 7, 0)")
    base.commit()
    base.close()
    assert main(["import", str(path), "-o", str(tmp_path / "none")]) != 0 and not (tmp_path / "none").exists()
    assert main(["import", str(path), "-o", str(tmp_path / "run"), "--run", "other"]) == 0
    assert open_run(tmp_path / "run").logged.to_dicts() == [
        {"attempt": 0, "step": 7, "name": "loss", "value": math.inf, "metric": None}
    ]


def test_a_definition_that_changed_is_drawn_only_for_a_known_version() -> None:
    assert LoggedMetrics("verl", "0.9.1").metric(K3) == "mismatch/kl_k3"
    assert LoggedMetrics("verl", "0.7.1").metric(K3) is None and LoggedMetrics("verl").metric(K3) is None
    assert "since verl 0.8.0" in why_own(K3, "verl", None) and "0.7.1 is older" in why_own(K3, "verl", "0.7.1")
    both = LoggedMetrics("verl", "0.9.1")
    assert [both.metric(K3), both.metric("mismatch/mismatch_k3_kl"), both.metric(K3)] == [
        "mismatch/kl_k3", None, "mismatch/kl_k3",
    ]  # fmt: skip
    assert both.why_own("mismatch/mismatch_k3_kl") == f"mismatch/kl_k3 is drawn from {K3}"
    assert (
        LoggedMetrics("nemo_rl", given={"train/gen_kl_error": "mismatch/kl_k3"}).metric("train/gen_kl_error")
        == "mismatch/kl_k3"
    )


def test_every_agreement_is_a_metric_of_ours_and_no_note_of_its_dialect_contradicts_it() -> None:
    assert all(is_metric(each.near) and each.source for each in agreements()) and len(agreements()) >= 14
    for each in agreements():
        if each.trainer in NAMES:
            assert dialect(each.trainer).CANONICAL.get(each.name, each.near) == each.near
    assert not any(each.name == "train/sampling_importance_ratio" for each in agreements())


def test_the_trainer_is_told_by_the_names_or_not_at_all() -> None:
    assert likely_trainer([K3, "critic/score"]) == ("verl", None)
    assert likely_trainer(["loss"]) == (None, None)
    assert likely_trainer(["ratioscope/mismatch/kl_k3"]) == ("ratioscope", None)


def test_a_field_that_is_no_step_is_refused_and_not_taken_for_restarts() -> None:
    rows = [Logged("f", place, place % 2, {"a": 1.0}) for place in range(3 * MOST_ATTEMPTS)]
    with pytest.raises(SourceError, match="--map step=FIELD"):
        list(Attempts().of(rows))


def test_a_dump_of_sequences_is_no_scalar_log(tmp_path: Path) -> None:
    rows = [{"input": "2+2", "output": "4", "gts": "4", "score": 1.0, "step": 1} for _ in range(4)]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(tmp_path / "1.jsonl"), "-o", str(tmp_path / "run")]) != 0
    assert not (tmp_path / "run").exists()


def test_a_folder_of_rlprobe_is_imported_for_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rlprobe 0.1.0 wrote it, with a manifest and a shard of samples."""
    assert main(["import", str(DATA / "rlprobe"), "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "rlprobe's numbers of each step" in said and "samples, which have texts and mean log-probs" in said
    logged = open_run(tmp_path / "run").logged
    own = logged.filter(logged["name"] == "kl_mean")
    assert own["step"].to_list() == [1, 2, 3, 4] and own["value"].to_list() == [0.01, 0.02, 0.03, 0.04]


def test_the_newest_trainer_state_of_a_folder_of_checkpoints_is_read(tmp_path: Path) -> None:
    for step in (2, 10):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [
            {"step": at, "epoch": 0.5, "loss": at / 4, "sampling/sampling_logp_difference/max": at}
            for at in range(1, step + 1)
        ]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    assert main(["import", str(tmp_path / "out"), "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    assert run.steps == list(range(1, 11)) and run.info["trainer"] == "trl"
    largest = run.logged.filter(run.logged["name"] == "sampling/sampling_logp_difference/max")
    assert largest["value"].to_list() == list(range(1, 11))


def test_a_damaged_file_of_scalars_is_set_aside_and_repaired(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["import", str(DATA / "run-2ka888sj.swanlab"), "-o", str(run)]) == 0
    (file,) = (run / "scalars").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"123456789")
    opened = open_run(run)
    assert len(opened.logged) == 0 and [item.path for item in opened.quarantined] == [f"scalars/{file.name}"]
    assert main(["verify", str(run)]) == 1
    file.write_bytes(whole)
    assert main(["verify", str(run)]) == 0
    (log,) = (run / "commits").glob("*.jsonl")
    log.unlink()
    assert len(open_run(run).logged) == 15 and main(["repair", str(run), "--writers-ended"]) == 0
    assert main(["verify", str(run)]) == 0 and len(open_run(run).logged) == 15


@pytest.mark.parametrize(
    ("trainer", "version", "name", "metric"),
    [
        ("verl", "0.7.1", "rollout_corr/kl", None),
        ("verl", "0.8.0", "rollout_corr/kl", "mismatch/kl_direct"),
        ("verl", None, "rollout_corr/kl", None),
        (
            "nemo_rl",
            "0.6.0",
            "train/sampling_importance_ratio",
            None,
        ),  # after truncation, and before it since pull request 3900
        ("nemo_rl", None, "train/gen_kl_error", None),  # K3 only with one setting
        ("fireworks", None, "train/inference_k3", None),  # of another pair of policies since 2026-07-06
        ("trl", None, "sampling/sampling_logp_difference/mean", None),  # a mean over processes
        ("trl", None, "sampling/sampling_logp_difference/max", None),  # a mean of maxima
        (None, None, "is_masked", None),  # of prime-rl: another loss, another mask
    ],
)
def test_a_name_that_changed_its_meaning_is_a_metric_only_where_both_agree(
    trainer: str | None, version: str | None, name: str, metric: str | None
) -> None:
    names = LoggedMetrics(trainer, version)
    assert names.metric(name) == metric and (metric or names.why_own(name))
