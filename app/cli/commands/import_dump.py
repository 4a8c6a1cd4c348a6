"""`ratioscope import SOURCE -o RUN`: dumps, logs and tables of other programs become an ordinary run. Nothing in them is run."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.importers.confinement import FileLimits

from ..terminal import transfer
from .arguments import AsJson, comma_separated

if TYPE_CHECKING:
    from ratioscope.collectors.batch.text_policy import Text
    from ratioscope.ingest.importers.joining import Matches
    from ratioscope.ingest.importers.source_files import Options, SourceNumbers
    from ratioscope.ingest.importers.table import ColumnMapping

    from ...upkeep.rejected_rows import Written

SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SOURCE]", help="A dump, a log of numbers, a folder of them, or wandb://ENTITY/PROJECT/RUN."
    ),
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder to make.")]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="NAME", help="The format. Without it, each file is looked at.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="COLUMN=FIELD", help="Which field becomes which column, for a table of any kind. Repeatable."
    ),
]
RolloutOption = Annotated[
    Path | None, typer.Option("--rollout", metavar="A", help="The sampler's side, to be joined with --train.")
]
TrainOption = Annotated[Path | None, typer.Option("--train", metavar="B", help="The trainer's side.")]
OnOption = Annotated[
    str | None, typer.Option("--on", metavar="FIELD,...", help="Fields by which the rows of both sides are joined.")
]
MapRolloutOption = Annotated[
    list[str] | None, typer.Option("--map-rollout", metavar="COLUMN=FIELD", help="As --map, of A alone.")
]
MapTrainOption = Annotated[
    list[str] | None, typer.Option("--map-train", metavar="COLUMN=FIELD", help="As --map, of B alone.")
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be imported.")]
StepOption = Annotated[int | None, typer.Option("--step", min=0, help="The step of rows that name none.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the run; the name of the folder if not given.")]
DialectOption = Annotated[
    str | None,
    typer.Option(
        "--dialect", metavar="TRAINER[@VERSION]", help="The trainer that wrote a scalar log; else by its names."
    ),
]
RunOfOption = Annotated[str | None, typer.Option("--run", metavar="ID", help="The run of a store that holds several.")]
NoTextOption = Annotated[
    bool, typer.Option("--no-text", help="Leave prompts and token texts out of the run, and texts among other values.")
]
MemoryOption = Annotated[
    float, typer.Option("--most-memory", metavar="GIB", help="Memory that one file may take when it is decoded.")
]


def import_dump(
    source: SourceArgument = None,
    output: OutputOption = Path("imported-run"),
    format_name: FromOption = None,
    columns: MapOption = None,
    rollout: RolloutOption = None,
    train: TrainOption = None,
    on: OnOption = None,
    map_rollout: MapRolloutOption = None,
    map_train: MapTrainOption = None,
    step: StepOption = None,
    name: NameOption = None,
    strict: StrictOption = False,
    no_text: NoTextOption = False,
    most_memory: MemoryOption = 8.0,
    dialect: DialectOption = None,
    run_id: RunOfOption = None,
    as_json: AsJson = False,
) -> int:
    """Make a run of what a trainer or engine has written. Every row is imported, or listed with the reason why not.

    Formats: see docs/import.md. Pickles and .pt files are read without running anything in them. Exit code 1 if rows were left
    out; import/rejected.jsonl in the run lists them.
    """
    from ...upkeep.import_units import ImportChanged
    from ..import_report import print_json_report, print_report
    from ..terminal import note

    if source is not None and rollout is None and train is None:
        if format_name is None:
            _demand_no_run(source)
        from ..scalar_import import LogOptions, import_scalars, scalar_logs

        limits = _limits(most_memory)
        asked = LogOptions(source, output, format_name, columns or (), dialect, run_id, name, strict, as_json, limits)
        if logs := scalar_logs(asked):
            return import_scalars(asked, logs)
    began = time.monotonic()
    named = _options(format_name, columns, step, most_memory)
    if rollout is not None or train is not None:
        sources = _sides(source, rollout, train, on)
        sides = [_with(named, map_rollout, on), _with(named, map_train, on)]
    elif source is None:
        raise ConfigError("wanted a dump or a folder of dumps; try: ratioscope import DUMP -o RUN")
    else:
        sources, sides = [source], [named]
    text: Text = "ids" if no_text else "full"
    request = sources, sides, output, comma_separated(on), name, strict, text
    try:
        readings, matches, done = _imported(*request)
    except ImportChanged as error:
        note(f"{error}; what it had written is removed, and the import begins anew")
        readings, matches, done = _imported(*request)
    if as_json:
        print_json_report(output, readings, matches, done, time.monotonic() - began)
    else:
        print_report(output, readings, matches, done, time.monotonic() - began)
    return int(done.rejected > 0)


def _demand_no_run(source: Path) -> None:
    if is_run(source):
        raise SourceError(
            f"{source} is a run already, as a collector or an import made it; to look at it: ratioscope info {source}; to make"
            f" another run of its token rows: ratioscope import {source}/tokens -o RUN"
        )


def _sides(source: Path | None, rollout: Path | None, train: Path | None, on: str | None) -> list[Path]:
    if source is not None or rollout is None or train is None or not comma_separated(on):
        raise ConfigError(
            "--rollout and --train name the two sides of a join, and --on the fields by which rows match; try: ratioscope import"
            " --rollout A --train B --on sample_id,token_ids -o RUN"
        )
    return [rollout, train]


def _with(options: "Options", lines: list[str] | None, on: str | None) -> "Options":
    """The options of one side: its own lines before those of both, and the keys."""
    from ratioscope.ingest.importers.table import column

    keys = tuple(
        column(f"key.{name}={name}") for name in comma_separated(on) if name not in ("token_ids", "prompt_ids")
    )
    own = tuple(map(_line, lines or ()))
    return replace(
        options, lines=(*own, *(line for line in options.lines if line.into not in {o.into for o in own})), keys=keys
    )


def _options(format_name: str | None, columns: list[str] | None, step: int | None, most_memory: float) -> "Options":
    from ratioscope.ingest.importers.detection import by_name
    from ratioscope.ingest.importers.source_files import Options

    lines = tuple(map(_line, columns or ()))
    wanted = None if format_name is None else by_name(format_name)
    return Options(wanted, lines, step, _limits(most_memory))


def _limits(most_memory: float) -> FileLimits:
    if not 0 < most_memory < 1 << 20:
        raise ConfigError(f"--most-memory {most_memory}: wanted gibibytes, more than 0")
    return FileLimits(nbytes=int(most_memory * (1 << 30)))


def _line(text: str) -> "ColumnMapping":
    """A line of a table that the user gave. ConfigError for one that is none."""
    from ratioscope.ingest.importers.samples import is_target, targets
    from ratioscope.ingest.importers.table import column

    line = column(text)
    if not is_target(line.into):
        raise ConfigError(f"--map {line}: there is no column {line.into}; wanted one of {', '.join(targets())}")
    return line


def _resolution(readings: "list[SourceNumbers]") -> dict[str, float]:
    """Policy -> the largest error of its log-probs, where a format holds few digits. The first of two sides has the rollout."""
    from ratioscope.record import POLICIES

    formats = [(place, file.read_as.format) for place, one in enumerate(readings) for file in one.files if file.read_as]
    return {
        policy: size
        for place, format_ in formats
        for policy, size in format_.resolution.items()
        if len(readings) == 1 or (policy == POLICIES[0]) == (place == 0)
    }


def _imported(
    sources: list[Path],
    sides: "list[Options]",
    output: Path,
    on: tuple[str, ...],
    name: str | None,
    strict: bool,
    text: "Text",
) -> "tuple[list[SourceNumbers], Matches | None, Written]":
    from ratioscope.ingest.importers.joining import Matches, join
    from ratioscope.ingest.importers.reading import read
    from ratioscope.ingest.importers.source_files import opened

    from ...upkeep.importing import write
    from ..import_folder import new_run
    from ..import_report import why

    readings = [opened(source, side) for source, side in zip(sources, sides, strict=True)]
    matches = Matches(on) if len(readings) == 2 else None
    config = {"imported_from": ", ".join(source.name for source in sources)}
    with new_run(output) as staged, transfer(f"importing {config['imported_from']}") as show:
        rows = [
            read(reading, side, _shown(show, readings, n))
            for n, (reading, side) in enumerate(zip(readings, sides, strict=True))
        ]
        both = rows[0] if matches is None else join(rows[0], rows[1], matches)
        first = list(islice(rest := iter(both), 1))  # the format of a file is known once it is read
        done = write(
            staged,
            chain(first, rest),
            name=name or output.name,
            trainer=_trainer(readings),
            config=config,
            strict=strict,
            resolution=_resolution(readings),
            text=text,
        )
        if not done.rows:
            raise SourceError(f"nothing of {config['imported_from']} can be imported: {why(readings, done)}")
    return readings, matches, done


def _trainer(readings: "list[SourceNumbers]") -> str | None:
    """The trainer of all files, as their names promise it or their content says; None where it is not one."""
    from ratioscope.ingest.importers.detection import promised

    files = [file for reading in readings for file in reading.files]
    kinds = [file.read_as or next(iter(promised(file.name, file.found)), None) for file in files]
    trainers = {kind.format.trainer for kind in kinds if kind is not None and kind.format.trainer}
    return trainers.pop() if len(trainers) == 1 else None


def _shown(
    show: Callable[[int, int], None] | None, readings: "list[SourceNumbers]", number: int
) -> Callable[[int], None] | None:
    """Shows the bytes that were read of all sources."""
    if show is None:
        return None
    before, total = sum(reading.size for reading in readings[:number]), sum(reading.size for reading in readings)
    return lambda at: show(before + at, total)
