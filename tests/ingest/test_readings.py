"""Readings: further log-probs of recorded tokens, aligned by key and never by order, in files of their own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope import Collector, open_run, record_readings
from ratioscope.app.cli import main
from ratioscope.app.upkeep.maintenance import compact, prune, repair
from ratioscope.errors import SchemaError, SourceError
from ratioscope.ingest.commits.history_lines import _TAKERS
from ratioscope.ingest.maintenance.pruning import Old
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.rows.reading_rows import Fit
from ratioscope.ingest.run import Run
from ratioscope.layout import READING

LENGTHS = (5, 7, 3, 4)
STEPS = (1, 2, 3)


def logprobs(seed: int) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    chance = np.random.default_rng(seed)
    return [-chance.exponential(1.0, length).astype(np.float32) for length in LENGTHS]


def moved(lists: list[Any], seed: int, size: float) -> list[Any]:
    chance = np.random.default_rng(seed)
    return [(each + chance.normal(0, size, len(each))).astype(np.float32) for each in lists]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three steps of four sequences; the referee read those of the first two, a millionth of a nat from the trainer."""
    with Collector(tmp_path / "run", strict=True, writer="thread") as collector:
        for step in STEPS:
            rollout = logprobs(step)
            old = moved(rollout, step + 10, 0.05)
            referee = {"referee": moved(old, step + 20, 1e-6)} if step < 3 else None
            ids = [f"{step}-{index}" for index in range(len(LENGTHS))]
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, sequence_ids=ids, readings=referee)
    return tmp_path / "run"


def read_again(run: Path, step: int, **changes: Any) -> list[str]:
    """Records a reading `again` of a step, equal to `old`, with some columns changed."""
    rows = open_run(run).rows(step, ["old_logprobs"])
    columns = {name: rows[name] for name in ("attempt", "step", "sequence_id")} | {"logprobs": rows["old_logprobs"]}
    return record_readings(run, "again", columns | changes, {"model": "m", "api_key": "sk-0123456789abcdef0123"})


def test_a_reading_is_a_side_of_gaps_with_every_policy(run: Path) -> None:
    opened = open_run(run)
    assert opened.reading_gaps == ("rollout:referee", "old:referee") and opened.gaps == ("mismatch",)
    frame = opened.metrics(gap="rollout:referee")
    assert frame["step"].to_list() == [1, 2]
    tokens = opened.tokens([1, 2], ["step", "rollout_logprob", "referee_logprob", "rollout:referee"]).collect()
    x = tokens["rollout:referee"].to_numpy()
    assert (x == tokens["referee_logprob"].to_numpy().astype(float) - tokens["rollout_logprob"].to_numpy()).all()
    for step, found in zip([1, 2], frame["rollout:referee/kl_k3"], strict=True):
        own = x[tokens["step"].to_numpy() == step]
        assert found == pytest.approx(np.mean(np.expm1(own) - own), rel=1e-12)
    whole = opened.metrics((), gap="old:referee")
    assert 1e-7 < whole["old:referee/abs_log_ratio"][0] < 1e-5 < 0.01 < frame["rollout:referee/abs_log_ratio"][0]


def test_a_gap_with_a_copy_of_a_policy_has_the_metrics_of_the_gap_with_the_policy(run: Path) -> None:
    for step in STEPS:
        read_again(run, step)
    opened = open_run(run)
    for by in (("step",), ("step", "position"), ("length_decile",), ()):
        found, wanted = opened.metrics(by, gap="rollout:again"), opened.metrics(by)
        names = [name.removeprefix("rollout:again/") for name in found.columns if "/" in name]
        assert len(names) > 40 or "length_decile" in by or "position" in by
        for name in names:
            assert found[f"rollout:again/{name}"].equals(wanted[f"mismatch/{name}"], null_equal=True), (by, name)
    own = opened.distribution("token", "rollout:again")
    assert own.equals(opened.distribution("token", "mismatch"))
    worst = opened.sequences(2, gap="rollout:again")["rollout:again/kl_k3"]
    assert worst.equals(opened.sequences(2)["mismatch/kl_k3"])


def test_metrics_that_are_of_a_policy_by_name_are_not_of_readings(run: Path) -> None:
    columns = (
        open_run(run).metrics((), gap="rollout:referee").columns + open_run(run).metrics((), gap="old:referee").columns
    )
    assert not [name for name in columns if "ppo" in name or "old_" in name.partition("/")[2]]
    assert "old:referee/kl_k3" not in columns  # nobody sampled from old


def test_a_run_without_readings_has_no_folder_gap_or_column_of_them(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=logprobs(1), old_logprobs=logprobs(2))
    opened = open_run(tmp_path / "run")
    assert not (tmp_path / "run" / "readings").exists() and opened.readings == {} == opened.reading_fits()
    assert (
        opened.reading_gaps == ()
        and "rollout:old" not in opened.sequence(1, opened.sequences()["sequence_id"][0]).columns
    )
    with pytest.raises(SourceError, match="no reading of this run.*rescore"):
        opened.metrics(gap="rollout:referee")


def test_rows_that_do_not_fit_are_counted_and_used_by_nobody(run: Path) -> None:
    rows = open_run(run).rows(3, ["old_logprobs"])
    lists: list[Any] = rows["old_logprobs"].to_pylist()
    lists[1] = lists[1][:-1]
    read_again(run, 3, sequence_id=["stranger", "3-1", "3-2", "3-3"], logprobs=lists)
    opened = open_run(run)
    assert opened.reading_fits()["again"] == Fit(fitting=2, unknown=1, mismatched=1)
    assert opened.metrics((), gap="rollout:again", names=["tokens"]).item() == LENGTHS[2] + LENGTHS[3]
    assert verify(run).sound
    (trouble,) = verify(run, deep=True).troubles
    assert trouble.file == "readings/again" and "not on record" in trouble.found and "another length" in trouble.found


def test_the_order_of_the_rows_of_a_reading_does_not_matter(run: Path) -> None:
    rows = open_run(run).rows(3, ["old_logprobs"]).take([2, 0, 3, 1])
    read_again(run, 3, sequence_id=rows["sequence_id"], logprobs=rows["old_logprobs"])
    assert open_run(run).metrics((), gap="old:again")["old:again/max_abs_log_ratio"].item() == 0


def test_the_newest_reading_of_a_sequence_counts(run: Path) -> None:
    zeros = [[0.0] * length for length in LENGTHS]
    read_again(run, 3, logprobs=zeros)
    read_again(run, 3)
    opened = open_run(run)
    assert opened.reading_fits()["again"] == Fit(fitting=4, replaced=4)
    assert opened.metrics((), gap="old:again")["old:again/max_abs_log_ratio"].item() == 0


def test_slices_of_a_sequence_are_put_at_their_positions(run: Path) -> None:
    rows = open_run(run).rows(3, ["old_logprobs"])
    lists: list[Any] = rows["old_logprobs"].to_pylist()
    halves = [each[half::2] for each in lists for half in (0, 1)]
    places = [list(range(len(each)))[half::2] for each in lists for half in (0, 1)]
    twice = [index for index in range(4) for _ in (0, 1)]
    columns = {name: rows[name].take(twice) for name in ("attempt", "step", "sequence_id")}
    record_readings(run, "parts", columns | {"logprobs": halves, "positions": places}, {})
    assert open_run(run).metrics((), gap="old:parts")["old:parts/max_abs_log_ratio"].item() == 0


def test_a_reading_by_chance_estimates_the_sums_of_all_sequences(run: Path) -> None:
    rows = open_run(run).rows(3, ["old_logprobs"])
    kept = rows.slice(0, 2)
    columns = {name: kept[name] for name in ("attempt", "step", "sequence_id")} | {"logprobs": kept["old_logprobs"]}
    record_readings(run, "some", columns | {"inclusion_probability": [1.0, 0.5]}, {})
    found = open_run(run).metrics((), gap="rollout:some", names=["tokens"]).item()
    assert found == LENGTHS[0] + 2 * LENGTHS[1]


def test_what_made_a_reading_is_kept_without_secrets(run: Path) -> None:
    read_again(run, 3)
    (made,) = open_run(run).readings["again"].made_of
    assert made["model"] == "m" and "sk-" not in json.dumps(made)


def test_a_step_that_an_attempt_recorded_again_hides_the_readings_of_the_older_one(run: Path) -> None:
    with Collector(run, attempt=1, writer="thread") as collector:
        collector.log(step=2, rollout_logprobs=logprobs(2), old_logprobs=logprobs(3))
    opened = open_run(run)
    assert opened.readings["referee"].steps == (1,) and opened.reading_fits()["referee"].unknown == 0


def test_readings_survive_a_merge_and_go_with_pruned_rows(run: Path) -> None:
    before = open_run(run).metrics(gap="rollout:referee")
    compact(run, writers_ended=True)
    assert open_run(run).metrics(gap="rollout:referee").equals(before)
    prune(run, Old(keep_steps=2), yes=True, writers_ended=True)
    opened = open_run(run)
    assert opened.readings["referee"].steps == (2,) and not list((run / "readings/referee/step=000000001").iterdir())
    assert opened.metrics(gap="rollout:referee")["step"].to_list() == [2] and verify(run).sound


def test_a_damaged_file_is_set_aside_and_repair_moves_it(run: Path) -> None:
    (path,) = (run / "readings/referee/step=000000002").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    opened = open_run(run)
    assert opened.metrics(gap="rollout:referee")["step"].to_list() == [1]
    assert [item.path for item in opened.quarantined] == [path.relative_to(run).as_posix()]
    assert "changed since" in verify(run).troubles[0].found
    (line,) = repair(run, dry_run=False, writers_ended=True)
    assert "moved to quarantine" in line and verify(run).sound and open_run(run).readings["referee"].steps == (1,)


def test_a_file_whose_line_is_lost_is_named_and_committed_by_repair(run: Path) -> None:
    (log,) = (run / "commits").iterdir()
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"kind": "reading"' not in line))
    assert open_run(run).readings == {}
    assert len([t for t in verify(run).troubles if t.file.startswith("readings/") and "no commit" in t.found]) == 2
    repair(run, dry_run=False, writers_ended=True)
    opened = open_run(run)
    assert opened.readings["referee"].steps == (1, 2) and opened.reading_fits()["referee"] == Fit(fitting=8)


def test_a_foreign_file_among_readings_is_set_aside(run: Path) -> None:
    (run / "readings" / "Not A Name").mkdir()
    (run / "readings" / "referee" / "notes.txt").write_text("mine")
    found = {item.path: item.reason for item in open_run(run).quarantined}
    assert (
        "wanted small letters" in found["readings/Not A Name"]
        and "no folder of a step" in found["readings/referee/notes.txt"]
    )


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"logprobs": ["a", "b", "c", "d"]}, "the rows of a reading"),
        ({"inclusion_probability": [0.0, 1.0, 1.0, 1.0]}, "inclusion_probability is in"),
        ({"sequence_id": [None, "a", "b", "c"]}, "1 rows of the reading have no sequence_id"),
    ],
)
def test_rows_that_cannot_be_a_reading_are_refused(run: Path, changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SchemaError, match=wanted):
        read_again(run, 3, **changes)
    assert "again" not in open_run(run).readings


@pytest.mark.parametrize("name", ["rollout", "reference", "Referee", "a:b", "", "x" * 49, "../up"])
def test_names_that_no_reading_may_have_are_refused(run: Path, name: str) -> None:
    with pytest.raises(SchemaError, match="a reading is named"):
        record_readings(run, name, pa.table({}), {})
    with pytest.raises(SchemaError, match="a reading is named"):
        with Collector(run, strict=True, writer="thread") as collector:
            collector.log(step=9, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], readings={name: [[-1.0]]})


@pytest.mark.parametrize("writer", ["process", "thread"])
def test_a_reading_that_is_malformed_loses_no_sequence(tmp_path: Path, writer: Any) -> None:
    collector = Collector(tmp_path / "run", writer=writer, text="none")
    read = {"again": [[-1.0]], "referee": logprobs(1)}
    collector.log(
        step=1,
        rollout_logprobs=logprobs(1),
        old_logprobs=logprobs(1),
        sequence_ids=["a", "two words!", "c", "d"],
        readings=read,
    )
    collector.close()
    assert not collector.counts.sequences.dropped and collector.counts.failures == {"readings": 1}
    assert open_run(tmp_path / "run").reading_fits() == {"referee": Fit(fitting=4)}  # ids are digests in both files


def test_a_budget_keeps_readings_of_the_rows_that_it_keeps(tmp_path: Path) -> None:
    from ratioscope import Budget

    lists = [[-1.0] * 50 for _ in range(400)]
    with Collector(tmp_path / "run", budget=Budget(step_bytes=4000), writer="thread") as collector:
        for step in range(4):
            ids = [f"{step}-{index}" for index in range(400)]
            collector.log(
                step=step, rollout_logprobs=lists, old_logprobs=lists, sequence_ids=ids, readings={"again": lists}
            )
    opened = open_run(tmp_path / "run")
    fit = opened.reading_fits()["again"]
    assert fit == Fit(fitting=opened.size.rows) and fit.fitting < 1600


def test_the_command_line_shows_gaps_of_readings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", str(run), "--gap", "rollout:referee", "--metric", "kl_k3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in rows if row["rollout:referee/kl_k3"] is not None] == [1, 2]
    assert "mismatch/kl_k3" not in rows[0]
    assert main(["metrics", str(run), "--gap", "rollout:referee"]) == 0
    assert "referee - rollout" in capsys.readouterr().out
    assert main(["info", str(run)]) == 0 and "referee (8 sequences of 2 steps" in capsys.readouterr().out
    assert main(["metrics", str(run), "--gap", "rollout:nobody"]) == 2
    assert "no policy and no reading" in capsys.readouterr().err


def test_a_reader_of_before_there_were_readings_sees_the_same_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_TAKERS, READING)
    opened: Run = open_run(run)
    assert opened.readings == {} and opened.quarantined == () and opened.notes == () and len(opened.steps) == 3


@pytest.mark.parametrize(
    "changes",
    [{"reading": "other"}, {"step": 8}, {"rows": -1}, {"made_of": "words"}, {"made_of": {"a": "x" * 70000}},
     {"reading": "rollout"}, {"file": "readings/referee/step=000000001/../../../x.parquet"}, {"schema": 99}],
)  # fmt: skip
def test_an_impossible_line_is_refused_with_its_reason(run: Path, changes: dict[str, Any]) -> None:
    from ratioscope.ingest.commits.reading_files import committed_reading
    from ratioscope.layout import decode_line

    (log,) = (run / "commits").iterdir()
    entries = (decode_line(line) for line in log.read_bytes().splitlines())
    entry = next(entry for entry in entries if entry is not None and entry["kind"] == "reading")
    assert committed_reading(entry, "writer", 0).rows == 4
    with pytest.raises(SourceError):
        committed_reading({**entry, **changes}, "writer", 0)
