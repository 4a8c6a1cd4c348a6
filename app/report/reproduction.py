"""What it takes to make this report again, and to know that nothing else was read: versions, digest, command, thresholds."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.version import __version__

from .scrubbed import scrubbed, scrubbed_text

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


@dataclass(frozen=True)
class Threshold:
    """One graded signal: where it turns watch and act (None: never), and who says so."""

    signal: str
    title: str
    watch: float
    act: float | None
    source: str


@dataclass(frozen=True)
class Reproduction:
    """digest: of the committed files that were read. command: runs in the folder that holds the run's, for a report is sent
    around and names no path of this machine. versions, config: as run.json has them, without secrets."""

    version: str
    digest: str
    command: str
    trainer: str | None
    versions: dict[str, Any]
    config: dict[str, Any]
    thresholds: tuple[Threshold, ...]


def reproduction(run: "Run", options: tuple[str, ...] = ()) -> Reproduction:
    """options: the arguments of `ratioscope report` after the run, so that equal inputs name equal commands."""
    info = run.info
    folder = scrubbed_text(run.path.resolve().name) or "."
    folder = f"./{folder}" if folder.startswith("-") else folder
    trainer, versions, config = (info.get(name) for name in ("trainer", "versions", "config"))
    return Reproduction(
        __version__,
        run.digest,
        shlex.join(["ratioscope", "report", folder, *(options or ("-o", "report.html"))]),
        None if trainer is None else scrubbed_text(str(trainer)),
        scrubbed(versions) if isinstance(versions, dict) else {},
        scrubbed(config) if isinstance(config, dict) else {},
        tuple(Threshold(s.name, s.title, s.watch, s.act, s.source) for s in SIGNALS),
    )
