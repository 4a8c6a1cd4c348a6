"""The facts needed to make this report again from the same data: versions, digest, command, thresholds."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratioscope.collectors.batch.text_policy import name_or_digest
from ratioscope.version import __version__

from ..presentation.labelled_texts import LabelledTexts
from ..presentation.privacy import scrubbed_settings, scrubbed_text

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


@dataclass(frozen=True)
class SignalThresholds:
    """The thresholds of one graded signal."""

    signal: str
    title: str
    watch: float
    """Value from which the signal is watch."""
    act: float | None
    """Value from which the signal is act; None if it never is."""
    source: str
    """Publication or convention that the thresholds come from."""


@dataclass(frozen=True)
class Reproduction:
    """The facts needed to make the report again."""

    version: str
    """The version of ratioscope that made the report."""
    digest: str
    """Digest of the committed files that were read."""
    command: str
    """Command for the parent folder of the run: a report is sent around and names no path of this machine."""
    trainer: str | None
    """The trainer's name in run.json; None if it has none."""
    versions: dict[str, Any]
    """Versions in run.json."""
    config: dict[str, Any]
    """Configuration in run.json, without secrets."""
    thresholds: tuple[SignalThresholds, ...]


def reproduction(run: "Run", options: tuple[str, ...] = (), *, text: bool = True) -> Reproduction:
    """text: False keeps the folder's name only if it is a name. options: the arguments of `ratioscope report` after the run, so
    that equal inputs name equal commands."""
    info = run.info
    folder = folder_name(run, text=text)
    trainer, versions, config = (info.get(name) for name in ("trainer", "versions", "config"))
    return Reproduction(
        __version__,
        run.digest,
        shlex.join(["ratioscope", "report", folder, *(options or ("-o", "report.html"))]),
        None if trainer is None else scrubbed_text(str(trainer)),
        scrubbed_settings(versions) if isinstance(versions, dict) else {},
        scrubbed_settings(config) if isinstance(config, dict) else {},
        tuple(SignalThresholds(s.name, s.title, s.watch, s.act, s.source) for s in run.rules.rules.signals),
    )


def folder_name(run: "Run", *, text: bool = True) -> str:
    """The folder of the run as a command in its parent folder names it."""
    name = run.path.resolve().name
    folder = scrubbed_text(name if text else name_or_digest(name)) or "."
    return f"./{folder}" if folder.startswith("-") else folder


def reproduction_facts(made: Reproduction) -> LabelledTexts:
    """Versions, digest and command."""
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    return [
        ("report made by", f"ratioscope {made.version}"),
        ("command, to run in the parent folder of the run", made.command),
        ("input digest (sha256)", made.digest),
        ("trainer", made.trainer or "not recorded"),
        ("recorded with", versions or "not recorded"),
    ]
