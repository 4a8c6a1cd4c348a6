"""Arguments that several verbs share, with the same words and behaviour everywhere."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError, SchemaError, SourceError
from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.files.run_tree import runs_below
from ratioscope.metrics.grading.finding import Finding, Severity

from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..terminal import working

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...presentation.noise_floor import NoiseFloor


def _named(text: str) -> Path | str:
    """A path, or a URL as it was typed: a path would make one slash of two."""
    return text if "://" in text else Path(text)


def _copied(named: Path | str) -> Path:
    """The folder to open: for a URL the copy of its run, with the newest commits."""
    if isinstance(named, Path):
        return named
    from ratioscope.ingest.remote.address import address_of
    from ratioscope.ingest.remote.opening import local_run

    with working(f"reading {address_of(named)}"):
        return local_run(named)


def _own(named: Path | str) -> Path:
    """The folder of a run that a verb writes into. ConfigError for a URL."""
    if isinstance(named, Path):
        return named
    from ratioscope.ingest.remote.address import address_of
    from ratioscope.ingest.remote.opening import local_run

    address = address_of(named)
    if address is not None and address.scheme == "file":
        return local_run(named)
    raise ConfigError(
        f"{address} is on a store, which is only read; wanted a folder on this machine: use this verb where the run was"
        " recorded, and `ratioscope push` after it"
    )


RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=_named,
        callback=_copied,
        help="A run folder (the folder with run.json), or the URL of one, such as s3://bucket/runs/a.",
    ),
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        parser=_named,
        callback=lambda named: [_copied(each) for each in named],
        help="Run folders, folders that contain runs, or URLs of runs.",
    ),
]
OwnRun = Annotated[
    Path, typer.Argument(metavar="RUN", parser=_named, callback=_own, help="A run folder (the folder with run.json).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WritersEnded = Annotated[
    bool, typer.Option("--writers-ended", help="Treat every writer as ended, also one that did not close its log.")
]
FailOn = Annotated[
    str | None,
    typer.Option(
        metavar="watch|act",
        help="Exit 1 if the verdict is this severe or worse, 4 if it was not measured, or only in part.",
    ),
]

OnlySteps = Annotated[str | None, typer.Option("--steps", metavar="A:B", help="Only steps A to B, both included.")]
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules", metavar="FILE.toml", help="Mute or tune signals and causes; else ratioscope.toml in RUN does."
    ),
]

BaselineName = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Compare with a floor that `ratioscope baseline save` kept."),
]


_ATTEMPT: ContextVar[int | None] = ContextVar("attempt", default=None)
AttemptNumber = Annotated[
    int | None,
    typer.Option(
        "--attempt",
        metavar="N",
        min=0,
        help="Only what start N of the job recorded, from 0: also steps that a later start hides.",
    ),
]


def with_attempt(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """The verb with the option --attempt, which `opened` obeys."""

    @wraps(verb)
    def of_attempt(*, attempt: int | None = None, **own: Any) -> int | None:  # Any: whatever the verb takes
        before = _ATTEMPT.set(attempt)
        try:
            return verb(**own)
        finally:
            _ATTEMPT.reset(before)

    signature = inspect.signature(verb)
    option = inspect.Parameter("attempt", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AttemptNumber)
    of_attempt.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    of_attempt.__annotations__ = {**verb.__annotations__, "attempt": AttemptNumber}
    return of_attempt


def attempt_asked() -> int | None:
    """The start that --attempt names; None: the run as it went on."""
    return _ATTEMPT.get()


_SHOWN_AS: "ContextVar[Callable[[Run], Run] | None]" = ContextVar("shown_as", default=None)


@contextmanager
def shown_as(change: "Callable[[Run], Run]") -> "Iterator[None]":
    """Inside, every verb reads `change(run)` instead of the run that it opened."""
    before = _SHOWN_AS.set(change)
    try:
        yield
    finally:
        _SHOWN_AS.reset(before)


def floor_named(name: str | None) -> "NoiseFloor | None":
    """The saved noise floor that --baseline names; ConfigError if there is none of this name."""
    if name is None:
        return None
    from ...referee.baselines import baseline

    return baseline(name)


def opened(folder: Path, rules: Path | None = None, *, is_reference: bool = False) -> "Run":
    """The run in this folder, or at this URL, with a spinner while it is read; of it what --attempt asks for.

    rules: a file with rules for it. is_reference: the run is one that others are compared with, and --attempt is not about it.
    """
    from ratioscope.ingest.files.run_file import rules_of_file
    from ratioscope.ingest.remote.opening import place_of
    from ratioscope.ingest.run import open_run

    own = None if rules is None else rules_of_file(rules)
    with working(f"reading {place_of(folder)}"):
        run = open_run(folder, rules=own, attempt=None if is_reference else attempt_asked())
    return run if (change := _SHOWN_AS.get()) is None else change(run)


def runs_at(folders: Sequence[Path]) -> list[Path]:
    """The run folders among these and below them, each once. A folder without a run stays, for the error that `opened` raises."""
    found: dict[Path, Path] = {}
    for folder in folders:
        below = () if is_run(folder) or not folder.is_dir() else runs_below(folder).runs
        found |= {path.resolve(): path for path in below or (folder,)}
    return list(found.values())


def comma_separated(value: str | None) -> tuple[str, ...]:
    """The parts of "a, b,c"; empty for None and ""."""
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def severity_of(fail_on: str | None) -> "Severity | None":
    """The severity that --fail-on names; ConfigError for any other word than watch and act."""
    if fail_on is None:
        return None
    known = {severity.label: severity for severity in (Severity.WATCH, Severity.ACT)}
    if fail_on not in known:
        raise ConfigError(f"--fail-on {fail_on}: wanted {' or '.join(known)}; try: --fail-on act")
    return known[fail_on]


def failing(verdict: "Finding", fail_on: str | None) -> int:
    """The exit code: 1 if the verdict is as severe as --fail-on or worse, 4 if what it asks was not measured."""
    least = severity_of(fail_on)
    if least is None:
        return OK
    return FINDINGS if verdict.severity >= least else OK if verdict.coverage.is_measured else UNMEASURED


def steps_of(text: str | None) -> range | None:
    """The steps of A:B, either of which may be left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        low = int(first) if first else 0
        high = (int(last) if last else 2**62) if colon else low
    except ValueError:
        raise ConfigError(f"--steps {text}: wanted A:B with whole numbers, such as --steps 100:200") from None
    if high < low:
        raise ConfigError(f"--steps {text}: the last step is before the first one; try --steps {high}:{low}")
    return range(low, high + 1)


def steps_on_record(run: "Run", text: str | None) -> range | None:
    """The steps of A:B as a range that the run's steps end; None for None. ConfigError if the run has none of them."""
    wanted = steps_of(text)
    if wanted is None:
        return None
    if run.steps and not any(step in wanted for step in run.steps):
        raise ConfigError(f"no step of --steps is on record; the run has steps {run.steps[0]} to {run.steps[-1]}")
    return range(wanted.start, min(wanted.stop, max(run.steps, default=0) + 1))


def gaps_of_readings(run: "Run", gaps: Sequence[str]) -> list[str]:
    """Those of the gaps that are between two policies or readings. ConfigError for a gap that there cannot be."""
    from ratioscope.record import GAPS, gap_between, sides

    pairs = []
    for gap in (gap for gap in gaps if gap not in GAPS):
        try:
            named = gap_between(*sides(gap))
            run.demand_gap(gap)
        except (SchemaError, SourceError) as error:
            raise ConfigError(f"--gap {gap}: {error}; try: --gap {next(iter(GAPS))}") from error
        if named != gap:
            raise ConfigError(f"--gap {gap}: this gap is called {named}; try: --gap {named}")
        pairs.append(gap)
    return pairs


def demand_metrics(names: Sequence[str]) -> None:
    """ConfigError unless all of these are names of metrics."""
    from ratioscope.metrics.definitions.registry import BY_NAME

    from ...presentation.metric_places import names_at

    if unknown := [name for name in names if name not in BY_NAME]:
        close = ", ".join(get_close_matches(unknown[0], BY_NAME, n=3, cutoff=0.3) or names_at("core", "mismatch")[:3])
        raise ConfigError(
            f"--metric {unknown[0]}: no such metric; wanted names such as {close}; try: ratioscope metrics RUN --json"
        )
