"""`ratioscope run --out RUN_DIR -- COMMAND ...`: runs a training command and records it, without a change to its code."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.collectors.process.variables import EXISTING, LAUNCH, NAME, RUN, SCALARS, TEXT, VARIABLES
from ratioscope.errors import ConfigError, RatioscopeError, SourceError

from ..beside import beside, says_the_last_line

CONTEXT = {"allow_interspersed_args": False}
"""All arguments after the command's first word are the command's own, even if -- was forgotten."""


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The training command.")],
    out: Annotated[
        Path,
        typer.Option(metavar="RUN_DIR", help="The run folder; a second start of the same experiment resumes the run."),
    ],
    name: Annotated[str | None, typer.Option(help="The run's name; by default the name of the folder.")] = None,
    text: Annotated[
        str, typer.Option(metavar="full|ids|none", help="Record texts and token ids, only ids, or neither.")
    ] = "full",
    scalars: Annotated[
        bool, typer.Option("--scalars", help="Add ratioscope/... metrics to what the trainer logs.")
    ] = False,
    existing: Annotated[
        str | None,
        typer.Option(
            metavar="resume|new|error",
            help="If RUN_DIR holds a run: go on in it, begin RUN_DIR-2, or do not start. If not given, the same trainer, script"
            " and settings go on, and others begin a new run.",
        ),
    ] = None,
) -> None:
    """Run a training command and record what its trainer holds, without a change to its code.

    The command inherits RATIOSCOPE_... variables and a folder on PYTHONPATH, whose sitecustomize watches for the trainers of
    `ratioscope attach --list`: in `python train.py`, torchrun, accelerate, console and shell scripts, in their child processes
    and in Ray's workers. Output and exit code are the command's own, and no failure to record ever fails it. At the end one
    line on standard error says what was recorded, or that nothing was.

    It cannot record a Python without ratioscope installed (which is said at the end), a container with another environment, and
    `python -I`, `-E` and `-S`. With several nodes, start it on each node, with an --out that all of them see.
    """
    if text not in ("full", "ids", "none"):
        raise ConfigError(f"--text {text}: wanted full, ids or none; try: --text ids")
    if existing not in (None, "resume", "new", "error"):
        raise ConfigError(f"--existing {existing}: wanted resume, new or error; try: --existing new")
    environment = recording_environment(os.environ, out, name=name, text=text, scalars=scalars)
    if existing is not None:
        environment[EXISTING] = existing
    if existing == "error":
        from ratioscope.collectors.writing.starts import demand_none

        demand_none(Path(environment[RUN]), environment[LAUNCH])
    print(f"ratioscope: {_place(Path(environment[RUN]))}", file=sys.stderr, flush=True)
    if not says_the_last_line(environment):
        replace_process(command, environment)
    silence = beside(command, environment)
    try:
        replace_process(command, environment)
    except BaseException:
        silence()
        raise


def _place(named: Path) -> str:
    """The folder that will be recorded into, as far as it is known before a process of the command decides."""
    if not named.is_dir():
        return f"recording into {named}"
    from ratioscope.collectors.writing.starts import (
        place_for,
    )  # numpy and pyarrow, which a new folder should not wait for

    place, is_free = place_for(named)
    if is_free:
        return f"recording into {place}"
    return f"{place} holds a run: a line of the command will name the folder, that one or a new one beside it"


def recording_environment(
    environment: Mapping[str, str], out: Path, *, name: str | None = None, text: str = "full", scalars: bool = False
) -> dict[str, str]:
    """The environment of a command that records.

    Each call names a new launch, with two exceptions: a launcher started several of us side by side, or the user named the
    launch for several nodes (LAUNCH is set and RUN is not; with RUN, LAUNCH is that of a `ratioscope run` around this one).
    """
    from ratioscope.collectors.environment import launch_name
    from ratioscope.collectors.watching.ray_workers import BOOTSTRAP

    inherited = {key: value for key, value in environment.items() if key not in VARIABLES}
    folders = [folder for folder in inherited.get("PYTHONPATH", "").split(os.pathsep) if folder != str(BOOTSTRAP)]
    path = os.pathsep.join([str(BOOTSTRAP), *(folders if inherited.get("PYTHONPATH") else [])])
    named = "" if environment.get(RUN) else environment.get(LAUNCH, "")
    ours = {RUN: os.path.abspath(out), LAUNCH: named or launch_name(environment), TEXT: text, "PYTHONPATH": path}
    return inherited | ours | ({NAME: name} if name else {}) | ({SCALARS: "1"} if scalars else {})


def replace_process(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replaces this process by the command, so that signals, terminal and exit code are the command's own. Does not return."""
    sys.stdout.flush()
    ignored = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in ignored
    }  # signals that Python ignores and commands do not
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise _not_run(command[0], error) from error


def _not_run(command: str, error: OSError) -> RatioscopeError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{command}: no such command; the words after -- are run without a shell")
    return SourceError(f"{command} cannot be run: {error.strerror}")
