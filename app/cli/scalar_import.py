"""`ratioscope import` of a scalar log: which log it is, and what became of it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.detection import candidates
from ratioscope.ingest.importers.neighbours import neighbour
from ratioscope.ingest.importers.samples import LOGPROBS, Rejected
from ratioscope.ingest.importers.scalars.agreement import OWN, LoggedMetrics, trainer_named
from ratioscope.ingest.importers.scalars.number_row import LogChoices, Logged
from ratioscope.ingest.importers.scalars.rows_apart import log_rows
from ratioscope.ingest.importers.scalars.sources import BY_NAME, LogFiles, log_kinds, logs_at, named_source
from ratioscope.ingest.importers.scalars.wandb_online import ONLINE, is_online, online_rows
from ratioscope.ingest.importers.table import column
from ratioscope.layout import REJECTED
from ratioscope.metrics.definitions.registry import is_metric

from ..presentation.digits import count
from ..upkeep.importing_scalars import ScalarsWritten, write_scalars
from ..upkeep.rejected_rows import rejection_words
from .import_folder import new_run
from .terminal import print_json, say

_SHOWN = 12


@dataclass(frozen=True)
class LogOptions:
    """The options of the verb that concern scalar logs."""

    source: Path
    """The log, or a folder of one run's logs."""
    output: Path
    """The folder of the new run."""
    format: str | None = None
    """The kind of log; None: it is detected."""
    columns: Sequence[str] = ()
    """Lines --map: step=FIELD, or <gap>/<metric>=NAME."""
    dialect: str | None = None
    run: str | None = None
    name: str | None = None
    strict: bool = False
    """True: the first rejected row ends the import."""
    as_json: bool = False
    """True: the outcome is printed as JSON."""
    limits: FileLimits = FileLimits()


def scalar_logs(asked: LogOptions) -> tuple[LogFiles, ...]:
    """The logs that are asked for; none where the source is a dump, or nothing that is known here."""
    if is_online(asked.source):
        return (LogFiles(ONLINE, (asked.source,)),)
    if asked.format is not None:
        return logs_at(asked.source, named_source(asked.format)) if asked.format in BY_NAME else ()
    if any(column(line).into in (*LOGPROBS, "mask", "token_ids") for line in asked.columns):
        return ()
    if asked.source.is_dir() and _holds_dumps(asked.source):
        return ()
    return logs_at(asked.source) if asked.source.exists() else ()


def _holds_dumps(folder: Path) -> bool:
    """True if a file below it has the name of a dump, and is no log of numbers."""
    named = [
        path
        for root, _, names in os.walk(folder)
        for name in names
        if (path := Path(root, name)).is_file() and not path.is_symlink()
        if candidates(below := path.relative_to(folder).as_posix()) and neighbour(below) is None
    ]
    return any(kind is None for kind in log_kinds(named))


def import_scalars(asked: LogOptions, logs: Sequence[LogFiles]) -> int:
    """Makes the run of a log, or a folder with a run of each of several logs, and prints what became of them.

    Exit code 1 if rows were rejected, or if one of several logs was not imported.
    """
    if len(logs) == 1:
        code, plain = _imported(asked, logs[0])
        if asked.as_json:
            print_json(plain)
        return code
    if asked.name is not None:
        raise ConfigError(
            f"--name {asked.name}: {asked.source} holds {len(logs)} runs, which keep their names; leave it out"
        )
    done = [_one_of_several(replace(asked, source=log.files[0], output=asked.output / log.name), log) for log in logs]
    if asked.as_json:
        print_json({"runs": [plain for _, plain in done]})
    else:
        say(f"{count(sum('error' not in plain for _, plain in done), 'run')} of {len(logs)} in {asked.output}")
    return max(code for code, _ in done)


def _one_of_several(asked: LogOptions, log: LogFiles) -> tuple[int, dict[str, Any]]:
    """(exit code, the outcome as JSON) of one log. A log that cannot be imported ends only its own import."""
    try:
        return _imported(asked, log)
    except RatioscopeError as error:
        if not asked.as_json:
            say(f"{asked.output}: not imported: {error}", "watch")
        return 1, {"run": str(asked.output), "files": [file.name for file in log.files], "error": str(error)}


def _imported(asked: LogOptions, log: LogFiles) -> tuple[int, dict[str, Any]]:
    """(exit code, the outcome as JSON) of the import of a log, which is printed unless JSON is asked for."""
    choice, names = _choices(asked)
    with new_run(asked.output) as staged:
        done = write_scalars(
            staged,
            _rows(log, choice, asked.limits),
            names,
            name=asked.name or asked.output.name,
            source=log.source,
            origin=asked.source.name,
            strict=asked.strict,
            choice=choice,
        )
    if not asked.as_json:
        _print(asked, log, choice, names, done)
    return int(done.listed.rejected > 0), _plain(asked, log, choice, names, done)


def _choices(asked: LogOptions) -> tuple[LogChoices, LoggedMetrics]:
    dialect, version = trainer_named(asked.dialect)
    lines = {line.into: line.places[0] for line in map(column, asked.columns)}
    step = lines.pop("step", None)
    if odd := [into for into in lines if not is_metric(into)]:
        raise ConfigError(
            f"--map {odd[0]}={lines[odd[0]]}: of a scalar log, wanted step=FIELD, or <gap>/<metric>=NAME where you know"
            " that the definitions agree, such as mismatch/kl_k3=train/gen_kl_error"
        )
    return LogChoices(step, asked.run), LoggedMetrics(dialect, version, {name: into for into, name in lines.items()})


def _rows(log: LogFiles, choice: LogChoices, limits: FileLimits) -> Iterator[Logged | Rejected]:
    if log.source is ONLINE:
        yield from online_rows(log.files[0], choice)
        return
    for file in log.files:
        try:
            yield from log_rows(log.source, file, choice, limits)
        except RatioscopeError as error:
            if len(log.files) == 1:
                raise
            yield Rejected(file.name, None, None, str(error))


def _print(asked: LogOptions, log: LogFiles, choice: LogChoices, names: LoggedMetrics, done: ScalarsWritten) -> None:
    size = f"{count(len(done.names), 'number')} of {count(len(done.steps), 'step')}, {count(done.values, 'value')}"
    say(f"{asked.output}: {size}, and no tokens: a scalar log holds none")
    say(f"{count(len(log.files), 'file')}: {log.source.title}" + (f", of {names.dialect}" if names.dialect else ""))
    for line in _sentences(log, choice, done):
        say(line)
    for metric, name in sorted((m, n) for m, n in names.drawn.items() if n != f"{OWN}/{m}"):
        say(f"  {metric} is drawn from {name}")
    own = sorted(done.names - set(names.drawn.values()))
    if own:
        say(
            f"{count(len(own), 'number')} under the trainer's own names; all of them: ratioscope metrics {asked.output} --logged"
        )
    for name in [name for name in own if names.why_own(name).startswith(("it comes close to", "it is "))][:_SHOWN]:
        say(f"  {name}: {names.why_own(name)}", "dim")
    if done.listed.rejected:
        say(f"{count(done.listed.rejected, 'row')} not imported; all are listed in {asked.output / REJECTED}", "watch")
        for rejected in done.listed.first_rejected:
            say(f"  {rejection_words(rejected)}")
    say(f"to look at it: ratioscope info {asked.output}")


def _sentences(log: LogFiles, choice: LogChoices, done: ScalarsWritten) -> Iterable[str]:
    if choice.config:
        yield f"{count(len(choice.config), 'setting')} of the run kept, without secrets"
    if log.source.lacks:
        yield f"not in such files: {log.source.lacks}"
    if done.dialect_unknown:
        yield done.dialect_unknown
    if done.attempts.begins:
        steps = ", ".join(map(str, done.attempts.begins[:8]))
        yield f"the steps go back {count(len(done.attempts.begins), 'time')}, to {steps}: each is a start, and the newest counts"
    if done.attempts.twice:
        yield f"{count(done.attempts.twice, 'value')} logged twice at one step; the later one counts"
    if done.not_finite:
        yield f"{count(done.not_finite, 'value')} NaN or infinite, kept as such"
    if choice.no_numbers:
        few = ", ".join(name for name, _ in choice.no_numbers.most_common(5))
        yield f"{count(sum(choice.no_numbers.values()), 'value')} passed over, which are no numbers: {few}"
    if log.passed_over:
        yield f"{count(len(log.passed_over), 'file')} passed over, which hold an earlier part: {', '.join(log.passed_over[:5])}"
    yield from choice.notes


def _plain(
    asked: LogOptions, log: LogFiles, choice: LogChoices, names: LoggedMetrics, done: ScalarsWritten
) -> dict[str, Any]:
    """The outcome as JSON holds it."""
    return {
        "run": str(asked.output), "format": log.source.name, "files": [file.name for file in log.files],
        "passed_over": list(log.passed_over), "dialect": names.dialect, "version": names.version,
        "steps": len(done.steps), "values": done.values, "not_finite": done.not_finite,
        "drawn": names.drawn,
        "own": {name: names.why_own(name) for name in sorted(done.names - set(names.drawn.values()))},
        "attempts_begin": done.attempts.begins, "logged_twice": done.attempts.twice,
        "no_numbers": dict(choice.no_numbers), "notes": choice.notes, "rejected": done.listed.rejected,
        "rejected_listed_in": REJECTED if done.listed.rejected else None,
        "first_rejected": [asdict(rejected) for rejected in done.listed.first_rejected],
    }  # fmt: skip
