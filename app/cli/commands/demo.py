"""`ratioscope demo`: the dashboard on the real runs that ship with the package."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.errors import ConfigError, SourceError

from ...dashboard.server.options import ServerOptions
from .dashboard import show
from .server_options import NoBrowser, Port


def demo(
    run: Annotated[
        str | None, typer.Option(metavar="healthy|stale", help="Only this run; without it, all of them.")
    ] = None,
    port: Port = 0,
    no_browser: NoBrowser = False,
) -> int:
    """Browse a recorded real run: one healthy, one with stale weights."""
    runs = sample_runs()
    if not runs:
        raise SourceError("no sample runs in this installation; reinstall ratioscope, or: ratioscope dashboard RUN")
    if run is not None and run not in runs:
        wanted = f"wanted one of {', '.join(runs)}: ratioscope demo --run {min(runs)}"
        raise ConfigError(f"--run {run} is no sample run; {wanted}")
    shown = list(runs.values()) if run is None else [runs[run]]
    show(shown, ServerOptions(port=port), browser=not no_browser)
    return 0


def sample_runs() -> dict[str, Path]:
    """The runs that ship with the package, by the last word of their names. The stale one is first: it shows the most."""
    folder = Path(str(files("ratioscope.sample_data"))) / "runs"
    folders = sorted((path.parent for path in folder.glob("*/run.json")), reverse=True)
    return {path.name.rsplit("-", 1)[-1]: path for path in folders}
