"""`ratioscope run --out RUN_DIR -- COMMAND ...`: runs a training command and records it, without a change to its code."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.collectors.beside import beside, says_the_last_line
from ratioscope.collectors.launching import demand_new, place_words, recording_environment, replace_process
from ratioscope.collectors.process.variables import EXISTING, RUN, SELF_NOISE
from ratioscope.collectors.self_noise import self_noise_in_words
from ratioscope.errors import ConfigError

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
    self_noise: Annotated[
        str | None,
        typer.Option(
            metavar="STEPSxSEQUENCES",
            help="Have the trainer read a few sequences a second time, such as 10x4: each 10 steps, 4 on each rank. Their"
            " distance is the floor below which no engine agrees with the trainer.",
        ),
    ] = None,
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
    if self_noise is not None and self_noise_in_words(self_noise):
        environment[SELF_NOISE] = self_noise
    if existing is not None:
        environment[EXISTING] = existing
    if existing == "error":
        demand_new(environment)
    print(f"ratioscope: {place_words(Path(environment[RUN]))}", file=sys.stderr, flush=True)
    if not says_the_last_line(environment):
        replace_process(command, environment)
    silence = beside(command, environment)
    try:
        replace_process(command, environment)
    except BaseException:
        silence()
        raise
