"""An exported table is the table of the run, in every format, and says by which formulas it was computed."""

import csv
import errno
import json
import math
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from support import real_runs, run_folders
from support.recorded import recorded

from ratioscope.app import cli
from ratioscope.app.export import export as exporting
from ratioscope.app.export import export as formats
from ratioscope.app.export import probe
from ratioscope.app.export.export import batches, export
from ratioscope.app.export.tables import LEVELS, ExportedPart, RowLevel
from ratioscope.collectors.writing.offline import record_readings
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.definitions import registry
from ratioscope.record import arrow_schema

FORMULA = '=HYPERLINK("http://x","y")'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export") / "run"
    return recorded("trl_vllm_stale4", root, steps=4, finish_reasons=[FORMULA] * 32)


def frame_of(run: Run, level: RowLevel) -> pl.DataFrame:
    if level == "step":
        return run.metrics()
    return run.sequences() if level == "sequence" else run.tokens().collect()


def parquet_of(path: Path) -> pl.DataFrame:
    return pl.DataFrame(pq.read_table(path))


def facts_of(path: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(path).metadata
    assert metadata is not None
    found: dict[str, Any] = json.loads(metadata[formats.FACTS.encode()])
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_parquet_read_back_is_the_frame_of_the_run_with_its_types(
    folder: Path, tmp_path: Path, level: RowLevel
) -> None:
    run, path = open_run(folder), tmp_path / "x.parquet"
    done = export(run, ExportedPart(level), path)
    wanted = frame_of(run, level)
    assert parquet_of(path).equals(wanted, null_equal=True)
    assert parquet_of(path).schema == wanted.schema
    assert done.rows == len(wanted) == facts_of(path)["rows"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(facts_of(path)["columns"]) == wanted.columns


@pytest.mark.parametrize("level", LEVELS)
def test_json_lines_hold_the_same_values(folder: Path, tmp_path: Path, level: RowLevel) -> None:
    run, path = open_run(folder), tmp_path / "x.jsonl"
    export(run, ExportedPart(level), path)
    wanted = frame_of(run, level)
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert len(rows) == len(wanted)
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    floats = {name for name, kind in wanted.schema.items() if kind.is_float()}
    values = [{k: named.get(v, v) if k in floats else v for k, v in row.items()} for row in rows]
    assert pl.DataFrame(values, schema=wanted.schema, orient="row").equals(wanted, null_equal=True)
    facts = json.loads(Path(f"{path}{formats.BESIDE}").read_text())
    assert facts["rows"] == len(wanted) and list(facts["columns"]) == wanted.columns


@pytest.mark.parametrize("level", LEVELS)
def test_csv_holds_the_same_numbers_and_no_formula(folder: Path, tmp_path: Path, level: RowLevel) -> None:
    run, path = open_run(folder), tmp_path / "x.csv"
    export(run, ExportedPart(level), path)
    wanted = frame_of(run, level)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == wanted.columns and len(read) == len(wanted)
    for name in (name for name, kind in wanted.schema.items() if kind.is_numeric()):
        for row, value in zip(read, wanted[name].to_list(), strict=True):
            same = float(row[name]) if row[name] else None
            if wanted.schema[name] == pl.Float32 and same is not None:
                same = float(np.float32(same))
            assert same == value or (same is not None and math.isnan(same) and math.isnan(value)), name
    if level != "step":
        assert {row["finish_reason"] for row in read} == {f"'{FORMULA}"}


def test_plain_readers_take_infinities_nulls_and_quotes(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([math.inf, -math.inf, math.nan, None]),
            "b": pa.array(['x",y', "\n=1", "", None], pa.large_string()),
        }
    )
    paths = {name: tmp_path / f"x{name}" for name in formats.FORMATS}
    for name, path in paths.items():
        with path.open("wb") as file:
            formats.FORMATS[name](file, table.schema, [table], lambda: b"{}")
    read = pc.read_csv(
        paths[".csv"],
        convert_options=pc.ConvertOptions(quoted_strings_can_be_null=False, strings_can_be_null=True, null_values=[""]),
    )
    assert str(read["a"].to_pylist()) == "[inf, -inf, nan, None]"
    assert read["b"].to_pylist() == ['x",y', "'↵=1", "", None]
    rows = [json.loads(line) for line in paths[".jsonl"].read_text().splitlines()]
    assert [row["a"] for row in rows] == ["Infinity", "-Infinity", "NaN", None]
    assert [row["b"] for row in rows] == ['x",y', "\n=1", "", None]


def test_without_text_no_column_holds_text_or_what_decodes_to_it(folder: Path, tmp_path: Path) -> None:
    run, path = open_run(folder), tmp_path / "x.parquet"
    for level in ("sequence", "token"):
        export(run, ExportedPart(level, text=False), path, force=True)
        assert not set(pq.read_schema(path).names) & {
            "prompt_text",
            "token_text",
            "token_id",
            "sampled_id",
            "extra",
            "prompt_ids",
        }
        assert facts_of(path)["text"] is False


def test_steps_a_gap_and_metrics_are_chosen(folder: Path, tmp_path: Path) -> None:
    run, path = open_run(folder), tmp_path / "x.parquet"
    first = run.steps[0]
    chosen = ExportedPart("step", range(first, run.steps[1] + 1), "mismatch", ("kl_k3", "tokens"))
    export(run, chosen, path)
    wanted = run.metrics().select("step", "mismatch/tokens", "mismatch/kl_k3", "mismatch/kl_k3_se")
    assert parquet_of(path).equals(wanted[:2], null_equal=True)
    export(run, replace(chosen, level="sequence"), path, force=True)
    assert [name for name in pq.read_schema(path).names if "/" in name] == ["mismatch/tokens", "mismatch/kl_k3"]
    with pytest.raises(ConfigError, match="wanted --level step or sequence"):
        export(run, replace(chosen, level="token"), path, force=True)
    with pytest.raises(ConfigError, match="no step of --steps is on record; the run has steps"):
        export(run, ExportedPart("step", range(900, 901)), path, force=True)


@pytest.mark.parametrize("level", LEVELS)
def test_a_gap_of_a_reading_is_exported_at_every_level(tmp_path: Path, level: RowLevel) -> None:
    root = run_folders.write_run(tmp_path / "run", run_folders.few(real_runs.records("trl_vllm_stale4"), 2, 4))
    run = open_run(root)
    for step in run.steps:
        rows = run.rows(step, ("attempt", "step", "sequence_id", "rollout_logprobs")).to_pydict()
        read = [[value - 0.25 for value in values] for values in rows.pop("rollout_logprobs")]
        keys = {name: rows[name] for name in ("attempt", "step", "sequence_id")}
        record_readings(root, "referee", keys | {"logprobs": read}, {"model": "m"})
    run.refresh()
    path = tmp_path / "x.parquet"
    export(run, ExportedPart(level, gap="rollout:referee"), path)
    found = parquet_of(path)
    name = {"step": "mean_log_ratio", "sequence": "log_ratio_mean", "token": ""}[level]
    values = found[f"rollout:referee/{name}" if name else "rollout:referee"].drop_nulls()
    assert len(values) and values.to_list() == pytest.approx([-0.25] * len(values), rel=1e-5)
    assert "digest" in facts_of(path)["columns"][f"rollout:referee/{name}" if name else "rollout:referee"]
    assert not [name for name in found.columns if name.startswith(("mismatch", "total", "drift"))]


def test_ten_thousand_steps_pass_through_in_batches_that_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    made = []

    def frames() -> Iterator[pl.DataFrame]:
        for step in range(10_000):
            made.append(step)
            yield pl.DataFrame({"step": np.full(100, step), "text": ["x" * 20] * 100})

    tables = batches(frames())
    rows = 0
    for table in tables:
        assert len(table) <= exporting.MOST_ROWS
        rows += len(table)
        alive.append(len(made) * 100 - rows)
    assert rows == 1_000_000
    assert max(alive) <= 100, "a batch is handed on before more than one further frame is read"
    assert len(alive) <= 10_000 / exporting.MOST_FRAMES + 1


def test_metrics_of_a_long_run_are_read_some_steps_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run_folders.few(real_runs.records("trl_vllm_stale4"), 1, 2)
    root = tmp_path / "run"
    fake = run_folders.FakeWriter(root).open()
    place = rows.schema.get_field_index("step")
    for step in range(10):
        fake.step(rows.set_column(place, "step", pa.array([step] * len(rows), pa.int64())).cast(arrow_schema()))
    fake.close()
    monkeypatch.setattr("ratioscope.app.export.tables.STEPS_AT_ONCE", 2)
    asked: list[int] = []
    run, path = open_run(root), tmp_path / "x.parquet"
    metrics = run.metrics

    def counted(**given: Any) -> pl.DataFrame:
        asked.append(len(given["steps"]))
        return metrics(**given)

    monkeypatch.setattr(run, "metrics", counted)
    export(run, ExportedPart("step"), path)
    assert asked == [2] * 5
    assert parquet_of(path).equals(open_run(root).metrics(), null_equal=True)


@pytest.mark.parametrize("ending", formats.FORMATS)
def test_an_interrupted_export_leaves_nothing_and_keeps_what_was_there(
    folder: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path = open_run(folder), tmp_path / f"x{ending}"
    before = {path.name: b"old"}
    path.write_bytes(b"old")

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(run, ExportedPart("token"), path, force=True, progress=interrupted)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("fault", (signal.SIGTERM, OSError(errno.ENOSPC, "No space left on device")))
def test_a_terminated_export_and_one_on_a_full_disk_leave_nothing(
    folder: Path,
    tmp_path: Path,
    fault: signal.Signals | OSError,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(file: Any, *_: object) -> None:
        file.write(b"half")
        if isinstance(fault, OSError):
            raise fault
        os.kill(os.getpid(), fault)

    monkeypatch.setitem(formats.FORMATS, ".jsonl", failing)
    code = cli.main(["export", str(folder), "-o", str(tmp_path / "x.jsonl")])
    assert code == (2 if isinstance(fault, OSError) else cli.INTERRUPTED)
    assert ("has room" in capsys.readouterr().err) == isinstance(fault, OSError)
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["export", str(folder), "-o", str(tmp_path / "no" / "x.csv")]) == 2
    assert "No such file or directory; wanted a file in a folder" in capsys.readouterr().err


def test_a_name_that_is_taken_is_refused_and_a_link_is_never_followed(folder: Path, tmp_path: Path) -> None:
    run, path, mine = open_run(folder), tmp_path / "x.parquet", tmp_path / "mine"
    mine.write_bytes(b"mine")
    path.symlink_to(mine)
    with pytest.raises(ConfigError, match="is there already; wanted a new file"):
        export(run, ExportedPart("step"), path)
    export(run, ExportedPart("step"), path, force=True)
    assert mine.read_bytes() == b"mine" and not path.is_symlink()
    Path(f"{tmp_path}/y.csv{formats.BESIDE}").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="y.csv.schema.json is there already"):
        export(run, ExportedPart("step"), tmp_path / "y.csv")
    assert not (tmp_path / "y.csv").exists()


def test_a_file_that_appears_meanwhile_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"

    def appearing(done: int, total: int) -> None:
        path.write_bytes(b"theirs")

    with pytest.raises(ConfigError, match="is there already"):
        export(open_run(folder), ExportedPart("step"), path, progress=appearing)
    assert [file.name for file in tmp_path.iterdir()] == ["x.parquet"] and path.read_bytes() == b"theirs"


def test_no_file_of_a_run_can_be_replaced(folder: Path) -> None:
    log = next((folder / "commits").glob("*.jsonl"))
    before = log.read_bytes()
    for path in (log, folder / "x.csv", next((folder / "tokens").glob("*/*.parquet"))):
        with pytest.raises(ConfigError, match=f"lies inside the run {folder}; wanted a place outside of any run"):
            export(open_run(folder), ExportedPart("step"), path, force=True)
    assert log.read_bytes() == before


def test_a_run_further_up_does_not_refuse_what_is_written_below_it(folder: Path) -> None:
    (folder / "mine" / "tokens").mkdir(parents=True)
    for path in (folder / "mine" / "x.csv", folder / "mine" / "tokens" / "x.csv"):
        assert export(open_run(folder), ExportedPart("step"), path).rows


def test_an_empty_run_has_an_empty_table_by_step_and_says_why_it_has_no_tokens(tmp_path: Path) -> None:
    root = tmp_path / "run"
    run_folders.FakeWriter(root).open().close()
    path = tmp_path / "x.parquet"
    assert export(open_run(root), ExportedPart("step"), path).rows == 0
    assert parquet_of(path).equals(open_run(root).metrics())
    with pytest.raises(SourceError, match="needs token rows.*try: --level step"):
        export(open_run(root), ExportedPart("token"), tmp_path / "y.parquet")


def test_a_run_without_token_rows_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ratioscope.metrics.engines.join import joined
    from ratioscope.metrics.engines.numpy_engine import statistics

    fake = run_folders.FakeWriter(tmp_path / "run").open()
    fake.add_statistics(statistics(joined(run_folders.few(real_runs.records("trl_vllm_stale4"), 2, 4))))
    fake.close()
    target = str(tmp_path / "x.csv")
    assert cli.main(["export", str(fake.root), "--level", "token", "-o", target]) == 3
    assert "try: --level step" in capsys.readouterr().err
    assert cli.main(["export", str(fake.root), "-o", target]) == 0
    assert "wrote" in capsys.readouterr().out
    assert cli.main(["export", str(fake.root), "-o", target]) == 2
    assert "--force" in capsys.readouterr().err


def test_every_column_of_the_probe_has_a_value_that_its_formula_decides() -> None:
    for level in LEVELS:
        table = probe.probe_table(level)
        computed = [name for name in table.columns if "/" in name or name in ("length", "lag", "advantage")]
        assert not [name for name in computed if table[name].null_count() == len(table)], level
    step = probe.probe_table("step")
    values = {name: step[name].drop_nulls().to_numpy() for name in step.columns if name != "step"}
    noise = [name for name, own in values.items() if np.abs(own).max() < probe.NOISE]
    assert {name.partition("/")[2] for name in noise} <= {"zero_weight_tokens", "non_finite", "sequences_set_aside"}


def test_a_changed_formula_changes_the_digest_of_its_columns_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: probe.digest("step", name) for name in probe.probe_table("step").columns}
    changed = [
        replace(metric, value=lambda *needs, own=metric.value: own(*needs) * (1 + 1e-4))
        if metric.name == "kl_k3"
        else metric
        for metric in registry.METRICS
    ]
    monkeypatch.setattr("ratioscope.metrics.table_metrics.METRICS", tuple(changed))
    probe.probe_table.cache_clear()
    probe.digest.cache_clear()
    try:
        after = {name: probe.digest("step", name) for name in before}
    finally:
        monkeypatch.undo()
        probe.probe_table.cache_clear()
        probe.digest.cache_clear()
    different = {name for name in before if before[name] != after[name]}
    assert different == {name for name in before if name.endswith("/kl_k3")} != set()


def test_digests_do_not_depend_on_the_machine_or_the_day() -> None:
    """A change here is a change of a formula: say it in the CHANGELOG, because old exports no longer compare."""
    wanted = {
        "mismatch/kl_k3": "515932a196378e4b",
        "mismatch/ess_token": "fcc0f14eb9d5dd5b",
        "total/chi2_sequence": "20d58bb7fe884863",
        "drift/ppo_kl": "34993336ee495018",
    }
    assert {name: probe.digest("step", name) for name in wanted} == wanted
