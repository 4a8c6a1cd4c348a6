"""`ratioscope run`: any command records, in whatever process it trains, and is otherwise what it was."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.toy_job import FILES, clean_environment, recorded, rows, write_job
from support.waiting import PATIENCE

import ratioscope
from ratioscope.app.cli import main
from ratioscope.collectors.bootstrap.sitecustomize import AWAITED
from ratioscope.collectors.launching import recording_environment
from ratioscope.collectors.process.variables import LAUNCH, RUN
from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.collectors.watching.ray_workers import BOOTSTRAP

PYTHON = sys.executable
SPAWNING = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor

    def work(rank):
        from training.loop import train
        return len(train(rank=rank))

    if __name__ == "__main__":
        method = sys.argv[1]
        context = multiprocessing.get_context(method)
        if method == "fork":
            work(0)  # a child that was forked from a process that records
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            print(sum(pool.map(work, [1, 2], chunksize=1)))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        [PYTHON, "train.py"],
        [PYTHON, "-m", "train"],
        [PYTHON, "-c", "import training.loop; print(training.loop.train())"],
        ["bash", "-c", f"cd / && exec {PYTHON} $OLDPWD/train.py"],
        ["./console"],
        [PYTHON, "-c", f"import subprocess; subprocess.run(['{PYTHON}', 'train.py'], check=True)"],
    ],
    ids=["script", "module", "code", "shell", "console script", "child"],
)
def test_a_training_command_records_and_prints_what_it_prints(job: Path, command: list[str]) -> None:
    (job / "console").write_text(f"#!{PYTHON}\nfrom training.loop import train\nprint(train())\n")
    (job / "console").chmod(0o755)
    done = recorded(job, command, "--name", "tonight", "--text", "none")
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n")
    assert done.stderr.splitlines() == [
        f"ratioscope: recording into {job / 'RUN'}",
        f"ratioscope: recorded steps 0 to 1, 4 tokens on disk, gap mismatch; next: ratioscope dashboard {job / 'RUN'}",
    ]
    assert rows(job) == 2
    run = json.loads((job / "RUN" / "run.json").read_text())
    assert (run["name"], run["trainer"], len(run["attempts"])) == ("tonight", "toy 1", 1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_multiprocessing_record_and_are_one_attempt(job: Path, method: str) -> None:
    write_job(job, {"pool.py": SPAWNING})
    done = recorded(job, [PYTHON, "pool.py", method])
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert rows(job) == (6 if method == "fork" else 4)
    assert len(json.loads((job / "RUN" / "run.json").read_text())["attempts"]) == 1


def test_a_second_start_is_a_second_attempt(job: Path) -> None:
    for number in range(2):
        done = recorded(job, [PYTHON, "train.py"])
        assert done.returncode == 0
        assert (f"ratioscope: recording into {job / 'RUN'}\n" in done.stderr) == (number == 0)
        assert (f"{job / 'RUN'} holds a run" in done.stderr.splitlines()[0]) == (number == 1)
    assert len(json.loads((job / "RUN" / "run.json").read_text())["attempts"]) == 2
    assert rows(job) == 2


def test_ranks_that_are_started_by_hand_are_one_start_and_the_next_ones_another(job: Path) -> None:
    start = [PYTHON, "-m", "ratioscope", "run", "--out", "RUN", "--", PYTHON]
    for lr in (1, 1, 2):
        code = f"import os, ratioscope; c = ratioscope.Collector('RUN', config=dict(lr={lr}, rank=int(os.environ['RANK']))); "
        code += "c.log(step=1, old_logprobs=[[-1]], current_logprobs=[[-1]]); c.flush(); input(); c.close()"
        ranks = [
            subprocess.Popen(
                [*start, "-c", code],
                cwd=job,
                env=clean_environment(job, RANK=str(rank), WORLD_SIZE="2"),
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in (1, 0)
        ]
        for rank in ranks:
            rank.communicate(b"\n", timeout=PATIENCE)
    found = {name: list(ratioscope.open_run(job / name).attempts) for name in ("RUN", "RUN-2")}
    assert found == {"RUN": [0, 1], "RUN-2": [0]} and len(list(job.glob("RUN*"))) == 2
    assert len(list((job / "RUN" / "commits").iterdir())) == 4


@pytest.mark.slow
def test_ranks_of_torchrun_record_and_a_restart_is_a_new_attempt(job: Path) -> None:
    script = """
        import os, sys, time
        from pathlib import Path
        from training.loop import train
        train(rank=int(os.environ["RANK"]))
        deadline = time.monotonic() + 300  # the rank that fails first has the other one ended, recorded or not
        while sum(b"\\n" in log.read_bytes() for log in Path("RUN/commits").glob("*.jsonl")) < 2:
            if time.monotonic() > deadline:
                sys.exit("two logs are wanted")
            time.sleep(0.05)
        sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
    """
    write_job(job, {"ranks.py": script})
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = recorded(job, [*torchrun, "ranks.py"])
    assert done.returncode == 0, done.stderr
    opened = [json.loads(line[line.index("{") :]) for line in _first_lines(job / "RUN")]
    assert sorted((line["rank"], line["attempt"]) for line in opened) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rows(job) == 4


def _first_lines(run: Path) -> list[str]:
    return [path.read_text().splitlines()[0] for path in (run / "commits").glob("*.jsonl")]


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands(job: Path, code: int) -> None:
    assert recorded(job, [PYTHON, "-c", f"import sys; sys.exit({code})"]).returncode == code


NOTHING = "ratioscope: nothing was recorded into {run}: "
ENDS: dict[str, tuple[list[str], int, str]] = {
    "no trainer": ([PYTHON, "-c", "print(1)"], 0, NOTHING + "no process of this command was heard of"),
    "no python": (["sh", "-c", "exit 7"], 7, NOTHING + "no process of this command was heard of"),
    "a killed one": (["sh", "-c", "kill -9 $$"], -9, NOTHING + "no process of this command was heard of"),
    "no ratioscope": (["./bare"], 0, NOTHING + "{python} has no ratioscope"),
    "ended at once": ([PYTHON, "-c", "{log}; os._exit(3)"], 3, NOTHING + "process "),
    "killed at once": ([PYTHON, "-c", "{log}; os.kill(os.getpid(), 9)"], -9, NOTHING + "process "),
    "no log": ([PYTHON, "-c", "import ratioscope; ratioscope.Collector('RUN')"], 0, NOTHING + "log was not called"),
    "killed in training": (
        [PYTHON, "-c", "{log}; c.flush(); os.kill(os.getpid(), 9)"],
        -9,
        "ratioscope: recorded step 3, 2 tokens on disk, gap drift; no rollout log-probs",
    ),
}  # fmt: skip
LOG = (
    "import os, ratioscope; c = ratioscope.Collector('RUN'); "
    "c.log(step=3, old_logprobs=[[-1, -2]], current_logprobs=[[-1, -2]])"
)


@pytest.mark.parametrize("name", ENDS)
def test_the_last_line_says_what_was_recorded_or_that_nothing_was(job: Path, name: str) -> None:
    command, code, words = ENDS[name]
    python = job / "python3"
    for script, of in ((python, "#!/bin/sh\nexit 3\n"), (job / "bare", f"#!{python}\n")):
        script.write_text(of)
        script.chmod(0o755)
    made = [part.format(log=LOG) if "{log}" in part else part for part in command]
    if name == "no ratioscope":  # a Python that finds none: it answers 3 to the question, and runs any script
        python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 3\nexit 0\n')
    done = recorded(job, made)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == code and last.startswith(words.format(run=job / "RUN", python=python)), done.stderr
    if name.endswith("at once"):
        assert re.search(r"process \d+ was ready to record, and .* ended.* before a step was written$", last), last
    assert done.stderr.count("recorded ") == 1 == done.stderr.count("recording into")


def test_a_command_has_no_child_that_it_did_not_start(job: Path) -> None:
    code = "import os\ntry: os.waitpid(-1, 0)\nexcept ChildProcessError: print('none')"
    assert recorded(job, [PYTHON, "-c", code]).stdout.startswith("none")


def test_ctrl_c_before_the_command_line_is_there_leaves_no_traceback() -> None:
    code = "import os, signal, sys; sys.argv = ['/bin/ratioscope']; import ratioscope.app; os.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where another program imports it


def test_a_signal_reaches_the_command_and_its_death_is_seen(job: Path) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGUSR1, lambda *a: sys.exit(42)); "
        "print('ready', flush=True); signal.pause()"
    )
    for sent, wanted in ((signal.SIGUSR1, 42), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        command = [PYTHON, "-m", "ratioscope", "run", "--out", "RUN", "--", PYTHON, "-c", script]
        process = subprocess.Popen(
            command, cwd=job, env=clean_environment(job), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(sent)
        assert process.wait(PATIENCE) == wanted
        process.stdout.close()


def test_a_broken_pipe_ends_the_command_as_in_any_shell(job: Path) -> None:
    done = recorded(job, ["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"])
    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n"


def test_options_after_the_command_are_the_commands_with_or_without_dashes(job: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    for dashes in (["--"], []):
        start = [
            PYTHON,
            "-m",
            "ratioscope",
            "run",
            "--out",
            "RUN",
            *dashes,
            PYTHON,
            "-c",
            code,
            "--lr",
            "3",
            "--",
            "--out",
        ]
        done = subprocess.run(start, cwd=job, env=clean_environment(job), capture_output=True, text=True)
        assert done.stdout == "['--lr', '3', '--', '--out']\n", done.stderr


@pytest.mark.parametrize(
    ("command", "said"), [(["no-such-command"], "no such command"), (["./data"], "cannot be run: Permission denied")]
)
def test_a_command_that_cannot_be_run_is_said_in_one_line(
    job: Path, command: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job)
    Path("data").write_text("")
    assert main(["run", "--out", "RUN", "--", *command]) in (2, 3)
    assert said in capsys.readouterr().err


def test_no_command_and_no_such_text_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--out", "RUN"]) == 2
    assert main(["run", "--out", "RUN", "--text", "some", "--", "true"]) == 2
    assert "wanted full, ids or none" in capsys.readouterr().err


def test_the_rate_of_second_forwards_reaches_the_command_or_is_refused(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [PYTHON, "-c", "import os; print(os.environ['RATIOSCOPE_SELF_NOISE'])"]
    assert recorded(job, shown, "--self-noise", "20x2").stdout == "20x2\n"
    assert main(["run", "--out", "RUN", "--self-noise", "often", "--", "true"]) == 2
    assert "wanted steps x sequences, such as 10x4" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_does_not_fail_the_command(job: Path) -> None:
    (job / "RUN").write_text("a file, not a folder")
    done = recorded(job, [PYTHON, "train.py"])
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n")
    assert "cannot be made" in done.stderr and "Training goes on" in done.stderr


def test_an_adapter_that_cannot_be_loaded_does_not_fail_the_command(job: Path) -> None:
    (job / "toy_adapter.py").write_text("HOOKS = (1 / 0,)\n")
    (job / "sitecustomize.py").write_text(FILES["sitecustomize.py"].replace('__import__("toy_adapter")', "None"))
    write_job(job, {"sitecustomize.py": (job / "sitecustomize.py").read_text()})
    done = recorded(job, [PYTHON, "train.py"])
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n")
    assert "does not record Toy" in done.stderr and rows(job) == 0


def test_a_python_without_ratioscope_says_what_is_missing_and_trains(job: Path) -> None:
    # -S: without site there is no installed package; the folder is put on the path as site would have done
    code = f"import sys; sys.path.insert(0, {str(BOOTSTRAP)!r}); import sitecustomize, training.loop as l; print(l.train())"
    (job / "sitecustomize.py").unlink()
    done = recorded(job, [PYTHON, "-S", "-c", code])
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n")
    assert f"{PYTHON} -m pip install {ROOT}\n" in done.stderr and done.stderr.count("\n") == 3
    assert "nothing was recorded into" in done.stderr and rows(job) == 0


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_ignores_its_environment_trains_unrecorded(job: Path, flag: str) -> None:
    done = recorded(
        job, [PYTHON, flag, "-c", "import sys; sys.path.insert(0, '.'); import training.loop as l; print(l.train())"]
    )
    assert (done.returncode, done.stdout) == (0, "[-0.5, -0.5]\n") and rows(job) == 0


@pytest.mark.parametrize("raises", [False, True])
def test_the_sitecustomize_that_ours_hides_runs_once_and_stays_the_imported_one(job: Path, raises: bool) -> None:
    hidden = "import sys\nsys.hidden_ran = getattr(sys, 'hidden_ran', 0) + 1\nsys.path.append('/added')\n"
    (job / "sitecustomize.py").write_text(hidden + ("raise RuntimeError('theirs')\n" if raises else "MINE = 1\n"))
    code = "import sys; print(sys.hidden_ran, sys.path, [getattr(m, 'MINE', 0) for m in [sys.modules.get('sitecustomize')]])"
    done = recorded(job, [PYTHON, "-c", code])
    without = subprocess.run([PYTHON, "-c", code], cwd=job, env=clean_environment(job), capture_output=True, text=True)
    assert done.stdout.replace(f"'{BOOTSTRAP}', ", "") == without.stdout and done.stdout.startswith("1 ")
    assert ("RuntimeError: theirs" in done.stderr) == raises == ("RuntimeError: theirs" in without.stderr)


def test_a_process_that_imports_no_trainer_loads_nothing_of_ours(job: Path) -> None:
    (job / "sitecustomize.py").unlink()
    code = (
        "import sys; before = set(sys.modules); print(sorted(m for m in before if 'ratioscope' in m or m == 'wrapt'))"
    )
    editable = subprocess.run([PYTHON, "-c", code], env=clean_environment(job), capture_output=True, text=True).stdout
    assert recorded(job, [PYTHON, "-c", code]).stdout == editable


def test_starting_python_takes_hardly_longer(job: Path) -> None:
    (job / "sitecustomize.py").unlink()
    plain, ours = clean_environment(job), recording_environment(clean_environment(job), job / "RUN")

    def seconds(environment: dict[str, str]) -> float:
        pid = os.posix_spawn(PYTHON, [PYTHON, "-c", ""], environment)
        used = os.wait4(pid, 0)[2]
        return used.ru_utime + used.ru_stime

    pairs = [(seconds(plain), seconds(ours)) for _ in range(15)]
    # of 20 ms; 0.3 ms were measured, 1.3 where Python may not keep the bytecode
    assert min(b for _, b in pairs) - min(a for a, _ in pairs) < 0.005


def test_what_is_waited_for_is_what_there_are_adapters_for() -> None:
    assert set(AWAITED) == {adapter.package for adapter in ADAPTERS} | {"ray"}


def test_the_environment_adds_to_what_there_is(tmp_path: Path) -> None:
    given = {"PYTHONPATH": f"/mine{os.pathsep}{BOOTSTRAP}", "HOME": "/h", RUN: "/other", LAUNCH: "outer"}
    made = recording_environment(given, tmp_path / "a" / ".." / "RUN", scalars=True)
    assert made["PYTHONPATH"] == f"{BOOTSTRAP}{os.pathsep}/mine" and made["HOME"] == "/h"
    assert made[RUN] == str(tmp_path / "RUN") and made["RATIOSCOPE_SCALARS"] == "1"
    assert made[LAUNCH] not in ("outer", recording_environment(given, tmp_path)[LAUNCH])
    assert recording_environment({}, tmp_path)["PYTHONPATH"] == str(BOOTSTRAP)
    assert recording_environment({LAUNCH: "all nodes"}, tmp_path)[LAUNCH] == "all nodes"


def test_the_folder_on_the_path_holds_nothing_else_that_could_be_imported() -> None:
    assert [path.name for path in BOOTSTRAP.iterdir() if path.name != "__pycache__"] == ["sitecustomize.py"]
    assert Path(ratioscope.__file__).parent in BOOTSTRAP.parents


def test_a_command_that_is_not_there_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGXFSZ)]
    assert main(["run", "--out", str(tmp_path / "run"), "--", "no-such-command"]) == 2
    assert [signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGXFSZ)] == before
