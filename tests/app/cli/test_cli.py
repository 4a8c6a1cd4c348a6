"""The command line as a user meets it: what is printed where, exit codes, one line per error, nothing heavy before its time."""

import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pytest
from support.in_terminal import ESCAPES, in_terminal, process_in_terminal
from support.recorded import recorded
from support.statistics_runs import write_statistics_run
from support.unindexed import ten_steps

import ratioscope
from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.blocks_printed import MOST_FOLDED
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.collectors.collector import Collector

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "stale")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("lcpp_q4_1", tmp_path_factory.mktemp("runs") / "healthy")


def run(capsys: Captured, *argv: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main([str(argument) for argument in argv])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def error_of(capsys: Captured, *argv: object) -> tuple[int, str]:
    """Exit code and the one line of standard error."""
    code, out, err = run(capsys, *argv)
    assert out == ""
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1
    assert "Traceback" not in err
    return code, err


def test_help_names_every_verb_that_works(capsys: Captured) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for verb in cli.VERBS:
        assert f" {verb} " in out
        assert run(capsys, verb, "--help")[0] == 0


def test_without_arguments_the_help_is_shown(capsys: Captured) -> None:
    code, out, err = run(capsys)
    assert code == 2 and "Usage" in out and err == ""


def test_info_says_that_results_are_not_kept(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder = ten_steps(tmp_path / "run")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "not kept" not in run(capsys, "info", run_folder)[1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    out = run(capsys, "info", run_folder)[1]
    assert "not kept\n" in out and "set XDG_CACHE_HOME to a writable folder" in " ".join(out.split())


def test_version(capsys: Captured) -> None:
    assert run(capsys, "--version") == (0, f"ratioscope {ratioscope.__version__}\n", "")


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from ratioscope.app.cli import main; main(['--help']); print(*sorted(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in printed.splitlines()[-1].split()}
    assert not loaded & {"numpy", "polars", "pyarrow", "pandas", "plotly", "streamlit", "torch", "jinja2", "asyncio"}


@pytest.mark.parametrize(("call", "loader"), [("main()", "_Refusing"), ("main(sys.argv[1:])", "SourceFileLoader")])
def test_a_process_that_only_reads_a_run_loads_no_pandas(stale: Path, call: str, loader: str) -> None:
    """pyarrow imports pandas with its first array, which was a quarter of the time of `metrics`. Other callers may load it."""
    found = "print('pandas' in sys.modules, type(find_spec('pandas').loader).__name__)"
    code = f"import sys; from importlib.util import find_spec; from ratioscope.app.cli import main; {call}; {found}"
    command = [sys.executable, "-c", code, "metrics", str(stale)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "kl_k3" in printed and printed.splitlines()[-1] == f"False {loader}"


def test_metrics_as_json_is_a_row_per_step(capsys: Captured, stale: Path) -> None:
    code, out, err = run(capsys, "metrics", stale, "--json")
    rows = json.loads(out)
    assert code == 0 and err == ""
    assert [row["step"] for row in rows] == list(range(0, 24, 2))
    assert {"mismatch/kl_k3", "mismatch/kl_k3_se", "total/ess_token", "drift/ppo_kl"} <= set(rows[0])
    assert [row["severity"] for row in rows][:4] == ["healthy", "healthy", "act", "act"]
    assert rows[0]["mismatch/tokens"] == 986 and isinstance(rows[0]["mismatch/tokens"], int)
    assert rows[0]["mismatch/surprisal_gap"] is None


def test_the_numbers_are_those_of_the_python_interface(capsys: Captured, stale: Path) -> None:
    rows = json.loads(run(capsys, "metrics", stale, "--json")[1])
    frame = ratioscope.open_run(stale).metrics()
    assert [row["mismatch/kl_k3"] for row in rows] == frame["mismatch/kl_k3"].to_list()


def test_metrics_can_be_chosen_by_gap_name_and_slice(capsys: Captured, stale: Path) -> None:
    rows = json.loads(
        run(capsys, "metrics", stale, "--json", "--by", "step,lag", "--gap", "total", "--metric", "kl_k3,tokens")[1]
    )
    assert set(rows[0]) == {"step", "lag", "total/kl_k3", "total/kl_k3_se", "total/tokens"}
    whole = json.loads(run(capsys, "metrics", stale, "--json", "--by", "run")[1])
    assert len(whole) == 1 and whole[0]["mismatch/tokens"] == 6488
    by_reward = json.loads(run(capsys, "metrics", stale, "--json", "--by", "length_decile")[1])
    assert sum(row["mismatch/tokens"] for row in by_reward) == 6488


def test_slices_with_numbers_for_keys_are_in_their_order(capsys: Captured, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in (9, 10):
            sides = {"rollout_logprobs": [[-1.0]] * 4, "old_logprobs": [[-1.1]] * 4}
            collector.log(step=step, **sides, rollout_versions=[10, 8, 0, 9], trainer_version=10)  # type: ignore[arg-type]
    lags = ["0", "1", "2", "10"]
    by_lag = json.loads(run(capsys, "metrics", tmp_path / "run", "--by", "lag", "--json")[1])
    assert [row["lag"] for row in by_lag] == lags
    for by in ("step,lag", "lag,step"):
        rows = json.loads(run(capsys, "metrics", tmp_path / "run", "--by", by, "--json")[1])
        assert [(row["step"], row["lag"]) for row in rows] == [(step, lag) for step in (9, 10) for lag in lags]
    table = run(capsys, "metrics", tmp_path / "run", "--by", "lag")[1]
    assert re.findall(r"(?m)^(\d+) ", table) == lags


def test_metrics_as_csv_reads_back(capsys: Captured, healthy: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(capsys, "metrics", healthy, "--csv")[1])))
    frame = ratioscope.open_run(healthy).metrics()
    assert [float(row["mismatch/kl_k3"]) for row in rows] == frame["mismatch/kl_k3"].to_list()


def test_metrics_in_the_terminal_name_units_errors_and_severity(capsys: Captured, stale: Path) -> None:
    _, out, _ = run(capsys, "metrics", stale)
    assert "mismatch: old - rollout" in out and "kl_k3 [nats/token]" in out
    row = next(line for line in out.splitlines() if line.strip().startswith("14 "))
    assert " act " in row and " ± " in row
    assert "also on record: total, drift" in out


def test_what_is_not_available_says_why(capsys: Captured, stale: Path) -> None:
    _, out, _ = run(capsys, "metrics", stale, "--metric", "surprisal_gap,kl_k3")
    assert "mismatch/surprisal_gap: not available, because the entropy of the later policy is not on record" in out


def test_info_is_concise_and_says_what_is_missing(capsys: Captured, stale: Path) -> None:
    code, out, _ = run(capsys, "info", stale)
    assert "checks ran" not in out.split("\n\n")[0] and "checks ran" in out and "older than the trainer" in out
    assert code == 0
    assert out.startswith("trl_vllm_stale4: act: ")
    for words in ("6,488 of 384 sequences", "mismatch, total, drift", "3 weight_sync", "because the entropy of"):
        assert words in out
    facts = json.loads(run(capsys, "info", stale, "--json")[1])
    assert facts["severity"] == "act" and facts["tokens"] == 6488 and facts["dropped"] == 0
    assert any("mismatch/surprisal_gap" in names for names in facts["metrics_unavailable"].values())


def test_fail_on_turns_the_verdict_into_the_exit_code(capsys: Captured, stale: Path, healthy: Path) -> None:
    assert run(capsys, "metrics", stale, "--json")[0] == 0
    assert run(capsys, "metrics", stale, "--json", "--fail-on", "act")[0] == 1
    assert run(capsys, "metrics", healthy, "--json", "--fail-on", "watch")[0] == 0


WRONG: Sequence[tuple[Sequence[str], str]] = (
    (("metrics",), "ratioscope metrics --help"),
    (("bogus",), "ratioscope --help"),
    (("metrics", "RUN", "--bogus"), "ratioscope metrics --help"),
    (("metrics", "RUN", "--by", "weather"), "--by step,lag"),
    (("metrics", "RUN", "--by", "lag,position"), "--by step,lag"),
    (("metrics", "RUN", "--by", ""), "--by step,lag"),
    (("metrics", "RUN", "--by", "step,step"), "--by step,lag"),
    (("metrics", "RUN", "--gap", "gulf"), "--gap mismatch"),
    (("metrics", "RUN", "--metric", "kl_k4"), "kl_k3"),
    (("metrics", "RUN", "--json", "--csv"), "one of them"),
    (("metrics", "RUN", "--fail-on", "healthy"), "--fail-on act"),
    (("report", "RUN", "-o", "x.md", "--interactive"), "-o x.html"),
    (("report", "RUN", "-o", "x.pdf"), "-o x.html"),
    (("report", "RUN", "-o", "/no/such/folder/x.md"), "-o x.md"),
    (("demo", "--port", "70000"), "ratioscope demo --help"),
)


@pytest.mark.parametrize(("argv", "advice"), WRONG, ids=[" ".join(argv) for argv, _ in WRONG])
def test_wrong_usage_is_one_line_with_the_next_thing_to_try(
    capsys: Captured, stale: Path, argv: Sequence[str], advice: str
) -> None:
    code, line = error_of(capsys, *(stale if word == "RUN" else word for word in argv))
    assert code in (cli.USAGE, cli.UNREADABLE)
    assert advice in line


def test_demo_offers_the_shipped_runs(capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "ratioscope.app.cli.commands.demo.sample_runs", lambda: {"stale": tmp_path, "healthy": tmp_path}
    )
    code, line = error_of(capsys, "demo", "--run", "weather")
    assert code == cli.USAGE and "ratioscope demo --run healthy" in line
    monkeypatch.setattr("ratioscope.app.cli.commands.demo.sample_runs", dict)
    code, line = error_of(capsys, "demo")
    assert code == cli.UNREADABLE and "reinstall ratioscope" in line


def test_what_cannot_be_read_exits_3_with_one_line(capsys: Captured, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "run.json").write_text('{"schema_version": 99}')
    file = tmp_path / "file"
    file.write_text("x")
    for verb in ("metrics", "info", "dashboard"):
        for path in (tmp_path / "nowhere", file, newer, *([tmp_path] if verb != "dashboard" else [])):
            assert error_of(capsys, verb, path)[0] == cli.UNREADABLE
    assert "upgrade" in error_of(capsys, "info", newer)[1]
    assert error_of(capsys, "report", newer, "-o", tmp_path / "x.md")[0] == cli.UNREADABLE


def test_a_hostile_path_cannot_write_to_the_terminal(capsys: Captured, tmp_path: Path) -> None:
    _, line = error_of(capsys, "info", tmp_path / "\x1b[31m\nno\u202ewhere")
    assert "\x1b" not in line and "\u202e" not in line


def test_an_operating_system_error_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, rules: object = None, attempt: object = None) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ratioscope.ingest.run.open_run", refuse)
    code, line = error_of(capsys, "info", "/secret")
    assert code == cli.UNREADABLE and "Permission denied: /secret" in line


def test_a_defect_shows_its_traceback_and_no_script_takes_it_for_a_finding(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: object, rules: object = None, attempt: object = None) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ratioscope.ingest.run.open_run", broken)
    code, _, err = run(capsys, "info", "x")
    assert code == cli.DEFECT and "Traceback" in err and "defect of ratioscope" in err


def test_an_interrupt_is_no_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: object, rules: object = None, attempt: object = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ratioscope.ingest.run.open_run", interrupted)
    assert run(capsys, "info", "x") == (cli.INTERRUPTED, "", "")


def process(*argv: object, width: str = "80", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ratioscope", *map(str, argv)]
    return subprocess.run(command, capture_output=True, env={**os.environ, "COLUMNS": width, **environment})


def test_piped_output_has_no_colour_no_bar_and_no_cut_line(stale: Path, tmp_path: Path) -> None:
    for argv in (("metrics", stale), ("info", stale), ("report", stale, "-o", tmp_path / "x.md")):
        done = process(*argv, width="20")
        assert done.returncode == 0 and done.stderr == b""
        assert b"\x1b" not in done.stdout and "…".encode() not in done.stdout
    assert done.stdout.count(b"\n") == 2


def test_a_terminal_without_unicode_is_served(healthy: Path) -> None:
    done = process("metrics", healthy, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0 and done.stderr == b""
    assert b"\\xb1" in done.stdout


@pytest.mark.parametrize(
    ("verb", "code"),
    [("metrics {} --by token_id --json", 0), ("info {}", 0), ("check {} --fail-on watch", 1)],
    ids=["json", "info", "check"],
)
def test_a_reader_that_leaves_early_changes_no_exit_code(stale: Path, verb: str, code: int) -> None:
    command = f"{sys.executable} -m ratioscope {verb.format(stale)} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert (done.returncode, done.stderr) == (code, b"")


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.collectors.collector import Collector
for argv in {commands!r}:
    if code := main(argv):
        sys.exit(code)
"""
EXTRA = {"streamlit", "plotly", "pandas", "orjson", "starlette"}


def without(absent: set[str], *commands: tuple[object, ...]) -> tuple[int, str, str]:
    """Exit code of the last command, the first that fails being the last, and what all of them said, in one process."""
    code = WITHOUT.format(absent=absent, commands=[[str(argument) for argument in argv] for argv in commands])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_base_install_reads_runs_and_says_what_pages_and_report_need(stale: Path, tmp_path: Path) -> None:
    reports = [("report", stale, "-o", tmp_path / f"x.{ending}") for ending in ("md", "json")]
    terminal = (
        ("metrics", stale, "--json"),
        ("metrics", stale),
        ("info", stale),
        ("diff", stale, stale),
        ("watch", stale),
    )
    assert without(EXTRA, *reports, *terminal)[::2] == (0, "")
    for wants_extra in (("dashboard", stale), ("report", stale, "-o", tmp_path / "x.html")):
        code, out, err = without(EXTRA, wants_extra)
        assert (code, out, err.count("\n")) == (cli.USAGE, "", 1)
        assert "pip install 'ratioscope[dashboard]'" in err


def test_a_report_is_readable_by_its_owner_alone_and_written_through_no_link(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others, written = tmp_path / "others.txt", tmp_path / "x.json"
    others.write_text("theirs")
    others.chmod(0o666)
    for link in (written, tmp_path / ".x.json.part"):
        link.symlink_to(others)
    assert run(capsys, "report", stale, "-o", written)[0] == cli.OK
    assert written.is_file() and not written.is_symlink() and written.stat().st_mode & 0o777 == 0o600
    assert others.read_text() == "theirs"


WORK = {
    "report": ("x.html", "documents.material.material"),
    "export": ("x.csv", "export.export.table_facts"),
    "bundle": ("x.zip", "export.bundle.bundle"),
    "bundle pages": ("x", "documents.material.material"),
    "bundle page": ("x.html", "documents.material.material"),
}
"""A verb and its kind of result -> the name of the result, and the function that begins the work."""


@pytest.mark.parametrize("case", WORK)
@pytest.mark.parametrize("fault", ("missing", "closed"))
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    stale: Path, tmp_path: Path, case: str, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    name, work = WORK[case]
    monkeypatch.setattr(f"ratioscope.app.{work}", lambda *_, **__: pytest.fail("the work began"))
    path = (tmp_path / "no" if fault == "missing" else tmp_path) / name
    if fault == "closed":  # a stand-in: root may write everywhere
        monkeypatch.setattr(os, "access", lambda *_, **__: False)
    code, _, err = run(capsys, case.split()[0], stale, "-o", path)
    elsewhere = Path(gettempdir() if fault == "closed" else "", name)
    assert code == cli.USAGE and f"-o {path}: " in err and err.endswith(f"try: -o {elsewhere}\n")


@pytest.mark.parametrize(
    "fault", (signal.SIGTERM, OSError(errno.ENOSPC, "No space left on device")), ids=("term", "full")
)
def test_a_report_that_is_cut_off_leaves_the_older_one_and_nothing_half(
    stale: Path, tmp_path: Path, fault: signal.Signals | OSError, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def cut(descriptor: int) -> None:  # the content is written by then, and has no name
        if isinstance(fault, OSError):
            raise fault
        os.kill(os.getpid(), fault)

    monkeypatch.setattr(os, "fsync", cut)
    code, _, err = run(capsys, "report", stale, "-o", path)
    assert code == (cli.USAGE if isinstance(fault, OSError) else cli.INTERRUPTED)
    assert ("has room" in err) == isinstance(fault, OSError)
    assert {file.name: file.read_text() for file in tmp_path.iterdir() if file.is_file()} == {"x.json": "old"}


def test_a_report_without_a_name_gets_one_and_replaces_no_file(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = Path(shutil.copytree(stale, tmp_path / "-nightly run's"))
    first = tmp_path / "nightly-run-s-report.html"
    first.write_text("mine")
    for name in ("nightly-run-s-report-2.html", "nightly-run-s-report-3.html"):
        code, out, _ = run(capsys, "report", odd)
        assert code == cli.OK and f"wrote {name}" in out
    assert first.read_text() == "mine"
    made = [(tmp_path / f"nightly-run-s-report-{number}.html").read_bytes() for number in (2, 3)]
    assert made[0] == made[1] and b"-o nightly-run-s-report.html" in made[0]


def test_progress_is_drawn_in_a_terminal_and_colours_say_severity(stale: Path, tmp_path: Path) -> None:
    seen = process_in_terminal(100, "report", stale, "-o", tmp_path / "x.json")
    assert "worst sequences" in seen or "slices" in seen or "metrics" in seen
    assert "\x1b[1;31mact: " in seen


def test_no_color_is_heeded(stale: Path) -> None:
    assert "\x1b[31m" in in_terminal(250, "metrics", stale) or "[1;31m" in in_terminal(250, "metrics", stale)
    plain = in_terminal(250, "metrics", stale, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", plain) and " act " in re.sub(r"\x1b\[[0-9;]*m", "", plain)


@pytest.mark.parametrize("columns", [40, 100, 250])
def test_a_table_is_never_cut_in_a_narrow_terminal_and_leaves_no_column_out(stale: Path, columns: int) -> None:
    seen = in_terminal(columns, "metrics", stale)
    assert "kl_k3" in seen and ("kl_k3 [nats/token]" in seen) == (columns == 250)
    assert "…" not in seen.split("[2K")[-1]
    assert "tokens" in seen and "chi2_token" in seen


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "argv",
    [
        ("corrections",),
        ("metrics", "--dialect", "verl"),
        ("metrics", "--by", "lag"),
        ("metrics", "--by", "step,lag"),
        ("attach", "--list"),
        ("diff",),
    ],
    ids=" ".join,
)
def test_every_column_of_a_table_stands_in_a_narrow_terminal(
    stale: Path, healthy: Path, capsys: Captured, argv: tuple[str, ...], columns: int
) -> None:
    command = {"attach": argv, "diff": ("diff", str(healthy), str(stale))}.get(
        argv[0], (argv[0], str(stale), *argv[1:])
    )
    whole, narrow = run(capsys, *command)[1], ESCAPES.sub("", in_terminal(columns, *command))
    titles, rows = re.split(r" {3,}", header(whole).strip()), below(whole)
    assert len(titles) > 2
    words = set(narrow.split())
    assert all(set(title.split()) <= words for title in titles)
    cells = {cell for row in rows for cell in re.split(r" {3,}", row.strip())}
    assert all(set(cell.split()) <= words for cell in cells)
    assert all(len(line.rstrip()) <= columns for line in narrow.splitlines() if "─" in line)


def test_the_help_groups_the_verbs_and_each_group_begins_with_its_main_one(capsys: Captured) -> None:
    _, out, _ = run(capsys, "--help")
    titles = re.findall(r"^╭─ (\w+) ─", out, re.MULTILINE)
    assert titles == ["Options", *cli.PANELS]
    for panel, verbs in cli.PANELS.items():
        below_title = out.split(f"╭─ {panel} ─")[1]
        assert re.findall(r"^│ (\S+)", below_title.split("╰")[0], re.MULTILINE)[0] == verbs[0]


def test_a_long_table_that_is_too_wide_continues_after_some_rows_so_that_no_row_is_lost(tmp_path: Path) -> None:
    seen = ESCAPES.sub("", in_terminal(80, "metrics", write_statistics_run(tmp_path / "long", 60))).replace("\r", "")
    tables = [table for table in re.split(r"\n\s*\n", seen) if "─" in table]
    steps, shown = [*range(60)], [[*map(int, re.findall(r"^(\d+) ", table, re.MULTILINE))] for table in tables]
    half = len(shown) // 2
    assert half > 1 and shown == [steps[:MOST_FOLDED]] * half + [steps[MOST_FOLDED:]] * half


def below(seen: str) -> list[str]:
    """The rows of the first table."""
    lines = seen.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("─"))
    return list(takewhile(str.strip, lines[at + 1 :]))


def header(seen: str) -> str:
    """The line above the first rule."""
    return above(seen, 1)


def above(seen: str, number: int) -> str:
    """So many lines above the first rule."""
    lines = seen.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("─"))
    return "\n".join(lines[max(at - number, 0) : at])


def test_what_decides_on_a_correction_fits_into_eighty_columns(stale: Path) -> None:
    seen = ESCAPES.sub("", in_terminal(80, "corrections", stale))
    assert re.search(r"ess +mean +clipped +removed( +ess)? *\s+correction +after +weight +bias +share +share", seen)
    assert "mismatch: old - rollout" in seen
    steps = ESCAPES.sub("", in_terminal(80, "metrics", stale))
    assert re.search(r"kl_k3 +abs_log_ratio *\s+step +severity +\[nats/token\] +ess_token +\[nats\]", steps)


def test_a_first_column_wider_than_the_terminal_is_folded(stale: Path) -> None:
    preset = "decoupled_geo_rs_seq_tis"
    seen = in_terminal(24, "corrections", stale, "--dialect", "verl", "--preset", preset).split("[2K")[-1]
    assert "…" not in seen and preset in "".join(ESCAPES.sub("", seen).split())


def test_the_demo_prints_its_address_serves_the_shipped_runs_and_stops_quietly() -> None:
    command = [sys.executable, "-m", "ratioscope", "demo"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+/) .*\n", server.stdout.readline())
        assert address
        with urllib.request.urlopen(address[1]) as page:
            assert page.status == 200
    finally:
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=60)
    assert (server.returncode, out, err) == (0, "", "")


def test_the_shipped_runs_are_one_healthy_and_one_stale(capsys: Captured) -> None:
    runs = sample_runs()
    assert list(runs) == ["stale", "healthy"]
    assert run(capsys, "info", runs["healthy"])[1].startswith("trl-vllm-healthy: healthy: ")
    assert run(capsys, "info", runs["stale"])[1].startswith("trl-vllm-stale: act: ")


def test_a_slice_that_was_not_recorded_says_what_records_it_and_no_hint_leads_to_it(
    stale: Path, capsys: Captured
) -> None:
    for by in ("replica", "step,replica"):
        out = run(capsys, "metrics", stale, "--by", by)[1]
        assert (
            "by replica: not available, because engine replicas were not recorded; pass replica= to Collector.log"
            in out
        )
        assert "kl_k3: not" not in out
    assert "--by step,lag" in run(capsys, "metrics", stale)[1]
    assert "--by step,lag" not in run(capsys, "metrics", stale, "--by", "step,lag")[1]


def test_a_metric_of_sequences_says_that_a_slice_of_tokens_has_none(stale: Path, capsys: Captured) -> None:
    out = run(capsys, "metrics", stale, "--by", "position", "--metric", "kl_k3,ess_sequence,chi2_sequence")[1]
    assert (
        "/ess_sequence, mismatch/chi2_sequence: not available, because a slice by position has metrics of tokens only"
        in out
    )


def test_a_run_of_the_update_alone_is_not_led_to_a_diagnosis(tmp_path: Path, capsys: Captured) -> None:
    with Collector(tmp_path / "run", trainer="mine") as collector:
        collector.log(step=1, old_logprobs=[[-1.0, -2.0]], current_logprobs=[[-1.0, 0.5]])
    out = run(capsys, "info", tmp_path / "run")[1]
    assert "next: ratioscope dashboard" in out and "ratioscope diagnose" not in out
    out = run(capsys, "metrics", tmp_path / "run")[1]
    assert "--by step,position" in out and "lag" not in out.partition("next:")[2]


def test_a_diagnosis_without_a_cause_says_why_the_run_is_graded_so_and_what_to_do(
    tmp_path: Path, capsys: Captured
) -> None:
    noise = np.random.default_rng(0).normal(size=(2, 16, 40))
    old = -np.abs(noise[0]) - 0.2
    old[:, 7] = 0.001  # 2.5% of the tokens, too near 0 for a cause of their own
    with Collector(tmp_path / "run", trainer="mine") as collector:
        collector.log(step=1, old_logprobs=old, rollout_logprobs=old + 0.02 * noise[1])
    first, size, do = run(capsys, "diagnose", tmp_path / "run")[1].splitlines()[:3]
    assert first.startswith("run: act: log-probs are positive, since step 1 (") and "have a log-prob above 0" in first
    assert "rounding noise" in first and size.startswith("K3 ") and do.startswith("Do: Check what the engine writes")


def test_a_name_that_explain_does_not_know_is_a_usage_error_with_the_names_that_are_close(capsys: Captured) -> None:
    for wrong, near in (("kl3", "kl_k3"), ("ess_tokens", "ess_token"), ("mismatch/kl_k4", "kl_k3"), ("weather", "")):
        code, error = error_of(capsys, "explain", wrong)
        assert code == cli.USAGE and near in error and len(error) < 200


def test_a_mean_weight_of_one_sequence_is_told_without_an_error(tmp_path: Path, capsys: Captured) -> None:
    old = -np.random.default_rng(0).uniform(0.2, 3, size=(1, 40))
    with Collector(tmp_path / "run", trainer="mine") as collector:
        collector.log(step=1, old_logprobs=old, rollout_logprobs=old + 0.01)
    out = run(capsys, "diagnose", tmp_path / "run")[1]
    assert "the mean weight 0.990, 100% of the log-ratios" in out and "fewer than 4 sequences are too few" in out


def test_a_scalar_log_shows_the_numbers_it_has_and_no_sentence_on_tokens(capsys: Captured, tmp_path: Path) -> None:
    """One number of the gap without bounds, beside one that is no metric."""
    rows = [{"step": step, "training/rollout_probs_diff_mean": 0.002, "loss": 1.0} for step in range(3)]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": row.pop("step"), "data": row}) for row in rows))
    place = tmp_path / "run"
    run(capsys, "import", log, "-o", place, "--dialect", "verl")
    code, out, _ = run(capsys, "check", place)
    assert code == 4 and "no signal grades its numbers" in out and "both of its sides" not in out
    out = run(capsys, "metrics", place)[1]
    assert "prob_diff" in out.splitlines()[1] and "0.002" in out and "--logged" in out and "--by" not in out
    out = run(capsys, "corrections", place)[1]
    assert "diagnose" not in out and "--dialect" not in out
    assert f"next: ratioscope metrics {place} --logged" in run(capsys, "info", place)[1]


def test_a_run_without_a_gap_says_why_in_every_verb_and_leads_to_no_verb_that_fails(
    capsys: Captured, tmp_path: Path
) -> None:
    Collector(tmp_path / "empty").close()
    with Collector(tmp_path / "one_sided") as collector:
        collector.log(step=0, old_logprobs=[[-1.0, -2.0]])
    for name, why in (("empty", "no step is on record"), ("one_sided", "only the log-probs of old are on record")):
        for verb in ("metrics", "corrections"):
            out = run(capsys, verb, tmp_path / name)[1]
            assert f"not available, because {why}" in out and "diagnose" not in out and "--by" not in out
        assert "every logged token" not in run(capsys, "info", tmp_path / name)[1]


def test_tokens_are_counted_beside_whole_sequences_where_a_token_is_set_aside(capsys: Captured, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0, -np.inf], [-1.0]], old_logprobs=[[-1.0, -2.0], [-1.1]])
    out = run(capsys, "info", tmp_path / "run")[1]
    assert "2; 1 whole sequence\n" in out and "1 token with a log-prob that is NaN or infinite" in out.replace(
        "tokens", "token"
    )


def test_rows_of_metrics_without_a_token_that_was_scored_are_named(capsys: Captured, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, rollout_logprobs=[[np.nan, -1.0, -1.1]], old_logprobs=[[-1.0, -1.2, -1.0]])
    why = "not available, because no token there has two finite log-probs"
    assert f"step 1 position 0: {why}" in run(capsys, "metrics", tmp_path / "run", "--by", "step,position")[1]
    assert why not in run(capsys, "metrics", tmp_path / "run")[1]


def test_diagnose_says_of_which_tokens_a_size_is_and_why_zeros_have_none(capsys: Captured, tmp_path: Path) -> None:
    with Collector(tmp_path / "infinite") as infinite, Collector(tmp_path / "zeros") as zeros:
        for step in range(2):
            infinite.log(step=step, rollout_logprobs=[[-1.0, -1.2]] * 20, old_logprobs=[[-1.01, -np.inf]] * 20)
            zeros.log(step=step, rollout_logprobs=[[0.0, 0.0]] * 20, old_logprobs=[[0.0, 0.0]] * 20)
    assert " nats/token of the other tokens at the 2 steps" in run(capsys, "diagnose", tmp_path / "infinite")[1]
    code, out, _ = run(capsys, "check", tmp_path / "zeros")
    assert (
        code == 4 and "mismatch, because every log-prob of both of its sides is 0" in out and "aligned stack" not in out
    )
