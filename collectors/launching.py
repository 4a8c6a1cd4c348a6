"""The launch of a command that records: its environment, its folder, and the process that becomes it."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratioscope.errors import ConfigError, RatioscopeError, SourceError

from .process.variables import LAUNCH, NAME, RUN, SCALARS, TEXT, VARIABLES


def demand_new(environment: Mapping[str, str]) -> None:
    """ConfigError if the folder of the launch holds a run already."""
    from .writing.starts import demand_none

    demand_none(Path(environment[RUN]), environment[LAUNCH])


def place_words(named: Path) -> str:
    """The folder that will be recorded into, as far as it is known before a process of the command decides."""
    if not named.is_dir():
        return f"recording into {named}"
    from .writing.starts import place_for  # numpy and pyarrow, which a new folder should not wait for

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
    from .environment import launch_name
    from .watching.ray_workers import BOOTSTRAP

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
    # signals that Python ignores and commands do not
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ignored}
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
