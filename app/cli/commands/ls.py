"""`ratioscope ls FOLDER`: the runs below folders, a row each: verdict, newest step, size of the gap. No run is diagnosed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import SourceError

from ...blocks import Paragraph, Table
from ..blocks_printed import print_blocks
from ..terminal import counting, print_json
from .arguments import AsJson, opened, runs_at

if TYPE_CHECKING:
    from ...pages.folder import ListedRun, Summary
    from ...presentation.run_state import Life

UNDIAGNOSED = "Verdicts are of the bounds alone where no diagnosis is kept; ratioscope diagnose RUN names the cause."
FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FOLDER...", help="Folders that contain runs, at any depth; else this folder."),
]


def ls(folders: FoldersArgument = None, as_json: AsJson = False) -> None:
    """List the runs below folders: verdict, newest step and gap of each, the worst first.

    A run that did not change is not read again, so that a second call takes a moment. --json has more of each run.
    """
    roots = folders or [Path()]
    paths = runs_at(roots)
    entries, diagnosed = _listed(paths, roots)
    if as_json:
        print_json([_plain(*each) for each in zip(entries, paths, diagnosed, strict=True)])
        return
    from ...pages.runs import COLUMNS, rows_of
    from ...presentation.metric_places import OF_FLOOR

    rows = rows_of(entries)
    columns = ("run", "verdict", "newest", OF_FLOOR[0], "gap", "since", "state", "tags", "worst signal")
    shown = [name for name in columns if name in rows.columns and rows[name].cast(str).fill_null("").ne("").any()]
    print_blocks([Table(f"{len(rows)} runs", rows, columns=COLUMNS, only=shown)])
    if not all(diagnosed):
        print_blocks([Paragraph(UNDIAGNOSED, "muted")])


def _listed(paths: Sequence[Path], roots: Sequence[Path]) -> "tuple[list[ListedRun], list[bool]]":
    """(the runs, True for each whose verdict knows its diagnosis). SourceError if a root has none."""
    from ratioscope.ingest.files.folder import is_run, run_folder

    from ...pages.folder import ListedRun
    from ...presentation.run_state import state_of

    if absent := [path for path in paths if not is_run(path)]:
        if not absent[0].is_dir():
            run_folder(absent[0])  # raises, and names a folder of a similar name
        raise SourceError(f"{absent[0]} has no run in it; wanted a folder that contains runs: ratioscope ls FOLDER")
    entries, diagnosed = [], []
    with counting("reading runs") as progress:
        for done, path in enumerate(paths):
            state = state_of(path)
            summary, is_diagnosed = _summary(path, state.life)
            entries.append(ListedRun(_name(path, roots), summary, state, tags=summary.tags))
            diagnosed.append(is_diagnosed)
            if progress:
                progress(done + 1, len(paths))
    return entries, diagnosed


def _summary(path: Path, life: "Life") -> "tuple[Summary, bool]":
    """(the summary of a run, True if its verdict knows the diagnosis): that of the Runs page if it is kept."""
    from ratioscope.ingest.analysis.grades import verdict_of

    from ...pages.folder import summary_of
    from ...pages.kept_summaries import keep_summary, kept_summary, read_summary, signature_of

    made_of = signature_of(str(path))
    for is_diagnosed in (True, False):
        if known := kept_summary(str(path), made_of, life, is_diagnosed=is_diagnosed):
            return known, is_diagnosed or not known.gaps
    run = read_summary(lambda: summary_of(own := opened(path), verdict_of(own)))
    keep_summary(str(path), made_of, life, run, is_diagnosed=False)
    return run, not run.gaps


def _name(path: Path, roots: Sequence[Path]) -> str:
    """The path below the one folder that was named; its whole path where several were."""
    below = path.resolve().relative_to(roots[0].resolve()).as_posix() if len(roots) == 1 else str(path)
    return path.resolve().name if below == "." else below


def _plain(entry: "ListedRun", path: Path, is_diagnosed: bool) -> dict[str, Any]:
    """The row of a run. Severity and cause are null for a run that cannot be read, and `error` has the reason."""
    from ...presentation.metric_places import OF_FLOOR

    known, size = entry.summary, OF_FLOOR[0]
    assert known is not None
    return {
        "run": entry.name, "path": str(path), "state": entry.state.life, "newest_step": entry.state.step,
        "severity": known.severity or None, "found": known.title or None, "since": known.since, "diagnosed": is_diagnosed,
        "gap": known.gap or None, size: known.kl_k3, f"{size}_se": known.error_of_kl_k3, "steps": known.steps,
        "tokens": known.tokens, "bytes": known.bytes, "trainer": known.trainer or None, "tags": list(entry.tags),
        "started": known.started, "error": known.error or None,
    }  # fmt: skip
