"""`ratioscope wandb sync` beside W&B itself: offline runs that wandb writes, read back from its own binary log."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.live_writer import Writer
from support.planted import leaks, planted
from support.recorded import recorded

import ratioscope
from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.app.export.wandb import session as session_of
from ratioscope.app.export.wandb import sync as syncing
from ratioscope.app.export.wandb.rows import MOST_SCALARS, bucket_counts, columns_sent, histograms, step_row
from ratioscope.app.export.wandb.session import demand_login
from ratioscope.app.export.wandb.sync import Sync
from ratioscope.app.export.wandb.sync_record import Destination, SyncRecord, sync_record, wandb_id
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.importers.wandb_log import LogDamage, LogRecord, entries
from ratioscope.ingest.run import open_run
from ratioscope.metrics.distribution import EDGES

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home of its own: nobody is logged in there, and everything that W&B writes lies below tmp_path."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "sent"))
    (tmp_path / "sent").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    import_module("wandb").teardown()  # its process keeps the settings of the first test otherwise


def stale() -> Path:
    """The shipped sample run with a fault; nobody writes into it."""
    return Path(sample_runs()["stale"])


def ran(capsys: Captured, *words: object) -> tuple[int, str, str]:
    code = cli.main(["wandb", "sync", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def logs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "sent").rglob("run-*.wandb"))


def sent(log: Path) -> list[LogRecord]:
    health = LogDamage()
    found = list(entries(log, health))
    assert health == LogDamage()
    return found


def of(kind: str, found: Sequence[LogRecord]) -> list[dict[str, Any]]:
    return [entry.values for entry in found if entry.kind == kind]


def steps(found: Sequence[LogRecord]) -> list[dict[str, Any]]:
    return [row for row in of("history", found) if "ratioscope/step" in row]


def everything(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_the_log_of_wandb_holds_the_numbers_of_the_run_and_a_second_sync_sends_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    folder = stale()
    run = open_run(folder)
    code, out, err = ran(capsys, folder, "--offline", "--group", "trainers-run", "--project", "rl")
    assert (code, err) == (0, "") and f"sent {len(run.steps)} steps" in out and "nothing has left" in out
    found = sent(*logs(tmp_path))
    frame, columns = run.metrics().sort("step"), columns_sent(run.gaps)
    expected = [
        {name: row[name] for name in ("step", *columns) if row.get(name) is not None and math.isfinite(row[name])}
        for row in frame.iter_rows(named=True)
    ]
    rows = steps(found)
    got = [
        {
            key.removeprefix("ratioscope/"): value
            for key, value in row.items()
            if key.removeprefix("ratioscope/") in frame.columns
        }
        for row in rows
    ]
    assert got == expected  # JSON keeps every bit of a double
    assert main(["import", str(logs(tmp_path)[0]), "-o", str(tmp_path / "back")]) == 0
    back = open_run(tmp_path / "back").metrics().sort("step")
    assert [
        {key: row[key] for key in wanted} for row, wanted in zip(back.to_dicts(), expected, strict=True)
    ] == expected
    capsys.readouterr()
    assert {row["ratioscope/severity"] for row in rows if "ratioscope/severity" in row} <= {0, 1, 2}
    assert all(sum(isinstance(value, int | float) for value in row.values()) <= MOST_SCALARS + 3 for row in rows)
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    facts = of("run", found)[0]
    wanted = {"id": wandb_id(run), "project": "rl", "group": "trainers-run", "job_type": "ratioscope"}
    assert wanted.items() <= facts.items()
    drawn = [metric for metric in of("metric", found) if metric.get("step_metric") == "ratioscope/step"]
    assert len(drawn) == len(columns) + 1 and not any("glob" in metric for metric in drawn)

    alerts = {f"{a.severity.label}: {a.signal.title} ({a.gaps})": a.severity for a in events_and_alerts(run).alerts}
    assert {alert["title"]: alert["level"] for alert in of("alert", found)} == {
        title: ("INFO", "WARN", "ERROR")[severity] for title, severity in alerts.items()
    }
    code, out, err = ran(capsys, folder, "--offline", "--group", "trainers-run", "--project", "rl")
    assert (code, err) == (0, "") and "nothing new" in out and len(logs(tmp_path)) == 1


def test_a_trainer_that_passes_its_step_keeps_every_row_beside_our_numbers(tmp_path: Path) -> None:
    """Our metrics join the trainer's own call. They come late, so a call of their own would be of a step that is over."""
    wandb: Any = import_module("wandb")
    theirs = [{"loss": 1.0 / step, "lr": 0.1 * step} for step in range(1, 21)]
    with (
        wandb.init(mode="offline", project="rl", settings=wandb.Settings(silent=True)) as trainers,
        ratioscope.Collector(tmp_path / "run", scalars=True) as collector,
    ):
        for step, values in enumerate(theirs, start=1):
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
            assert step % 5 or collector.flush()
            trainers.log({**values, **collector.scalars(step, values)}, step=step)
    wandb.teardown()  # its process has written the log once it has ended
    rows = of("history", sent(*logs(tmp_path)))
    assert [{name: row[name] for name in theirs[0]} for row in rows] == theirs
    assert [row["_step"] for row in rows] == list(range(1, 21))
    own = [(row["_step"], row["ratioscope/step"]) for row in rows if "ratioscope/step" in row]
    assert own and all(step <= at for at, step in own) and len({step for _, step in own}) == len(own)


def test_histograms_have_finite_edges_and_count_every_token(tmp_path: Path, capsys: Captured) -> None:
    root = tmp_path / "run"
    recorded("vllm_rollout_shift1", root)
    run = open_run(root)
    assert ran(capsys, root, "--offline")[0] == 0
    rows = [row for row in steps(sent(*logs(tmp_path))) if "ratioscope/mismatch/log_ratio.bins" in row]
    own = histograms(run, "mismatch")
    assert len(rows) == math.ceil(len(run.steps) / syncing.HISTOGRAM_EVERY)
    for row in rows:
        counts, edges = row["ratioscope/mismatch/log_ratio.values"], row["ratioscope/mismatch/log_ratio.bins"]
        wanted = run.distribution("token", "mismatch").filter(step=row["ratioscope/step"])
        assert sum(counts) == wanted["count"].sum() and len(edges) == len(counts) + 1 <= 513
        assert (tuple(counts), tuple(edges)) == (own[row["ratioscope/step"]].counts, own[row["ratioscope/step"]].edges)
        assert np.isfinite(edges).all() and (np.diff(edges) > 0).all()
        inner = wanted.filter(pl.col("low").is_finite() & pl.col("high").is_finite())
        assert set(inner["low"]) | set(inner["high"]) <= set(edges)


def test_a_run_that_grows_is_sent_step_by_step_and_followed_to_its_end(tmp_path: Path) -> None:
    pages: list[tuple[int, int]] = []

    class Pages:
        """A session that keeps what it is told; the first test has W&B's own."""

        rows, newest_step = 0, None

        def define(self, names: Sequence[str]) -> None: ...
        def alert(self, title: str, text: str, severity: int) -> None: ...
        def summary(self, name: str, value: str) -> None: ...
        def table(self, number: int, *rest: object) -> None: ...
        def artifact(self, *words: str) -> None: ...
        def log(self, number: int, content: dict[str, float], counts: object) -> None:
            pages.append((number, int(content["ratioscope/step"])))

    from ratioscope.app.cli.commands.sync import sent_until_ended

    root = tmp_path / "run"
    told: Any = Pages()
    with Writer(root) as writer:
        writer.write(2)
        run = open_run(root)
        target = Destination("p", None, None, offline=True, text=True)
        with sync_record(target, wandb_id(run)) as (known, file):
            looks = iter((lambda: writer.write(2), writer.close))
            work = Sync(run, target, known, file)
            work.begin(told)
            assert sent_until_ended(run, partial(work.send, told), 1.0, lambda _: next(looks)()) == 4
            work.report(told)
            with pytest.raises(ConfigError, match="another sync"), sync_record(target, wandb_id(run)):
                pass
        assert pages == [(0, 0), (1, 1), (2, 2), (3, 3)]
        with sync_record(target, wandb_id(run)) as (known, file):
            again = Sync(open_run(root), target, known, file)
            assert again.rows(ended=True) == [] and not again.report_is_due
        file.write_text('{"rows": "many"}')
        with pytest.raises(ConfigError, match="remove it"), sync_record(target, wandb_id(run)):
            pass


def test_rows_that_wandb_has_and_this_machine_does_not_know_of_are_not_sent_again(tmp_path: Path) -> None:
    class Resumed:
        rows, newest_step = 7, 10

        def define(self, names: Sequence[str]) -> None: ...

    folder = stale()
    work = Sync(open_run(folder), Destination("p", None, None, False, True), SyncRecord(), tmp_path / "state.json")
    resumed: Any = Resumed()
    work.begin(resumed)
    assert work.record.rows == 7 and min(row.step for row in work.rows(ended=True)) == 11


def hostile(root: Path) -> None:
    """A run whose names, settings and texts are somebody's attack, or a secret."""
    recorded("vllm_rollout_shift1", root, name="x")
    file = root / "run.json"
    info = json.loads(file.read_text())
    info["name"] = "../../<script>\x1b]0;\n![](http://evil.example/x) hf_abcdefghijklmnopqrst /home/ann/x " + "n" * 5000
    info["config"], info["trainer"] = {"api_key": "hf_zzzzzzzzzzzzzzzzzzzzz"}, "hf_yyyyyyyyyyyyyyyyyyyyy"
    file.write_text(json.dumps(info))


def test_no_secret_is_sent_and_hostile_names_are_only_names(tmp_path: Path, capsys: Captured) -> None:
    hostile(tmp_path / "run")
    before = {path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*")}
    code, _, err = ran(capsys, tmp_path / "run", "--offline")
    assert (code, err) == (0, "")
    content = everything(tmp_path / "sent")
    assert len(logs(tmp_path)) == 1 and b"<script>" in content
    assert of("run", sent(*logs(tmp_path)))[0]["host"] == "ratioscope"
    for secret in (b"hf_abc", b"hf_zzz", b"hf_yyy", b"/home/ann"):
        assert secret not in content, secret
    assert {path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "sent", "cache", ".config", ".cache", ".local"}


def test_texts_are_sent_unless_they_are_not_wanted(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stale(), folder)
    run = open_run(folder)
    worst = run.sequences(step=run.steps[-1])
    assert "prompt_text" in worst.columns
    assert ran(capsys, folder, "--offline", "--no-text")[0] == 0
    prompts = {
        text for step in run.steps for text in run.rows(step, ["prompt_text"])["prompt_text"].to_pylist() if text
    }
    needles = [json.dumps(text)[1:41].encode() for text in prompts]
    assert needles and not any(needle in everything(tmp_path / "sent") for needle in needles)
    assert ran(capsys, folder, "--offline")[0] == 0  # another choice of text: the report is due again, the rows are not
    assert any(needle in everything(tmp_path / "sent") for needle in needles)
    first, second = (sent(log) for log in logs(tmp_path))
    assert len(steps(first)) == len(run.steps) and not steps(second) and not of("alert", second)
    assert [row["_step"] for row in of("history", second)] == [len(of("history", first))]


def test_without_texts_no_byte_of_what_is_sent_holds_one_wherever_the_run_has_it(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "of").mkdir()
    folder = planted(tmp_path / "of")
    assert ran(capsys, folder, "--offline", "--no-text")[0] == 0
    assert logs(tmp_path) and leaks(tmp_path / "sent") == []
    assert b"10.0.0.7:8000" in everything(tmp_path / "sent")
    assert ran(capsys, folder, "--offline")[0] == 0
    assert leaks(tmp_path / "sent"), "the search finds what is there"


def test_nobody_is_logged_in_so_nothing_is_sent(tmp_path: Path, capsys: Captured) -> None:
    code, out, err = ran(capsys, stale(), "--project", "p")
    assert code == cli.USAGE and "wandb login" in err and "--offline" in err and err.count("\n") == 1
    assert not logs(tmp_path)

    class Broken:
        def login(self, **_: object) -> bool:
            raise OSError("no\nroute")

    with pytest.raises(ValueError, match="W&B could not look for a login: OSError: no route"):
        demand_login(Broken())


def test_a_value_that_is_not_finite_is_left_out_of_its_row() -> None:
    row = step_row(
        {"step": 3, "mismatch/a": math.nan, "mismatch/b": math.inf, "mismatch/c": None, "mismatch/d": 0}, "act"
    )
    assert row.content() == {"ratioscope/step": 3, "ratioscope/mismatch/d": 0, "ratioscope/severity": 2}


def test_the_outermost_buckets_get_finite_edges() -> None:
    drawn = bucket_counts(np.array([0, len(EDGES)], np.int16), np.array([2, 3]))
    assert len(drawn.counts) == len(EDGES) + 1 <= 512 and drawn.counts[0] == 2 and drawn.counts[-1] == 3
    assert np.isfinite(drawn.edges).all() and (np.diff(drawn.edges) > 0).all() and sum(drawn.counts) == 5


def test_a_server_that_does_not_answer_ends_the_sync_in_one_line_and_nothing_counts_as_sent(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr(session_of, "INIT_SECONDS", 1)
    code, out, err = ran(capsys, stale())
    assert code == cli.UNREADABLE and out == "" and "a" * 40 not in err
    assert err.splitlines()[-1].startswith("error: W&B could not open a run: ")
    assert not list((tmp_path / "cache" / "ratioscope" / "wandb").glob("*.json"))
