"""The Runs page: a row per run of the folder, with its state, its verdict and the verdict's first step."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from ratioscope.metrics.grading.coverage import NOT_MEASURED, PARTLY

from ..blocks import Action, Actions, Block, Column, Link, Paragraph, Part, Table
from ..presentation.digits import count, digits
from ..presentation.metric_places import SPOKEN, metrics_at
from ..presentation.run_names import shortened
from ..presentation.theme import MARKS
from .empty_run import WAITS, how_to_attach
from .face import Text
from .folder import MOST_OTHERS, ListedRun
from .pinning import pin_action, said_of_pin
from .scope import Scope

UNREADABLE, NOT_READ = "✕ unreadable", "not yet read"
GRADES = {word: f"{MARKS[word]} {word}" for word in ("act", "watch", PARTLY, NOT_MEASURED, "healthy")}
WORDS = (GRADES["act"], UNREADABLE, *[*GRADES.values()][1:], NOT_READ)
"""Every verdict of the list, the first to look at first."""
LEAST, LARGEST = -5, 1
"""Powers of ten between which the small courses are drawn, so that those of several runs compare."""
EVERY = 2.0
"""Seconds between two looks at the folder."""
TALLEST, MOST_AT_ONCE = 720, 24
"""Height in pixels of a table with more rows; it scrolls."""
COLOURS = ("red", "orange", "yellow", "gray", "gray", "green", "gray")
"""The colour of each verdict, of the theme."""
WHOLE = Column(format="localized")
DRAWN = metrics_at("runs", "mismatch")[0]
"""The metric of the table, in the first gap of a run that has it."""
TABLE = "runs_table"
NEWEST = f"{SPOKEN[DRAWN.name]} of the gap in this row, at the last step, in {DRAWN.unit}"
STATES = (
    "live: a writer is running; ended: every writer closed its log; silent: no commit for two minutes, and this machine cannot "
    "check the process; dead: the writer's process is gone"
)
SCALE = f"log10 of {DRAWN.title} over the steps, from 10^{LEAST} to 10^{LARGEST} in every row, so that runs compare"
COLUMNS = {
    # This column is not pinned, because the text of a pinned column is drawn faded.
    "run": Column(help="the path below the served folder", width=186),
    "verdict": Column(help="the worst grade of any step", width=132, words=dict(zip(WORDS, COLOURS, strict=True))),
    "worst signal": Column(width=310),
    "since": Column("since step", "localized"),
    DRAWN.name: Column(f"{DRAWN.title}, newest step", "%.3g", NEWEST),
    "gap": Column(width=78),
    "± se": Column("", "%.2g", "its standard error, clustered by sequence", 74),
    "course": Column("over steps", help=SCALE, width=92, ends=(LEAST, LARGEST)),
    "state": Column(help=STATES, width=68),
    "newest": Column("newest step", "localized", "the newest committed step"),
    "age": Column("last commit", width=100),
    "records": Column(help="statistics: no token rows were kept, so no token can be shown"),
    "steps": WHOLE,
    "tokens": Column("", "compact", "tokens measured in this gap, over all steps"),
    "whole run": Column(f"{DRAWN.title}, whole run", help=f"of the gap in this row, in {DRAWN.unit}", width=150),
    "size": Column("size on disk", "bytes"),
}
SCHEMA: dict[str, Any] = {
    "run": pl.String, "verdict": pl.String, "state": pl.String, "newest": pl.Int64, "age": pl.String,
    "worst signal": pl.String, "since": pl.Int64, "gap": pl.String, DRAWN.name: pl.Float64, "± se": pl.Float64,
    "course": pl.List(pl.Float64), "steps": pl.Int64, "whole run": pl.String, "tokens": pl.Int64, "gaps": pl.String,
    "records": pl.String, "trainer": pl.String, "started": pl.Datetime("us"), "size": pl.Int64, "attempts": pl.Int64,
    "name": pl.String,
}  # fmt: skip
LASTING = ("run", "verdict", "state", "worst signal", "since", "whole run", "gap", "course", "steps")
"""The columns of a file: without ages, and no more than a sheet has room for."""


def runs(scope: Scope) -> Iterator[Block]:
    words = "search name, trainer, verdict, signal, state"
    find = scope.face.ask(Text("find", "find", placeholder=words, width=340, has_title=False))
    yield Part("runs_list", partial(_listed, scope, find), EVERY)
    if scope.runs.note:
        yield Paragraph(scope.runs.note, "absent")
    known = [each.summary for each in scope.runs.listed(())[0]]
    if not any(summary is None or summary.gaps or summary.error for summary in known):
        waits = "" if scope.face.unasked(LASTING) else f" {WAITS}"
        yield Paragraph(f"No run here has the log-probs of two policies for the same tokens yet.{waits}", "info")
        yield from how_to_attach(scope.face)


def _listed(scope: Scope, find: str) -> Iterator[Block]:
    """The list, which is made anew while runs are read, grow or appear."""
    face, known = scope.face, scope.runs
    entries, waiting = known.listed(_wanted_first(known.runs, find))
    rows = rows_of(entries)
    matching = rows.filter(matches(rows, find))
    names, on_paper = matching["run"].to_list(), bool(face.unasked(LASTING))
    yield Paragraph(_how_many(matching, len(rows), waiting, on_paper), "muted")
    yield Table(
        f"{len(matching)} runs",
        matching.with_columns(pl.col("course").list.eval(pl.element().log10().clip(LEAST, LARGEST))),
        columns=COLUMNS,
        only=face.unasked(LASTING),
        tallest=None if len(matching) <= MOST_AT_ONCE else TALLEST,
        picks=TABLE,
        leads=lambda row: Link("overview", {"run": names[row]}),
        cut=("run",),
        rows=names,
        has_ticks=True,
    )
    if on_paper:
        ends = f"from {digits(10.0**LEAST)} at the bottom to {digits(10.0**LARGEST)} at the top"
        about = f"The state is that at the writing of this file. {DRAWN.title} is that of the gap in its row, in {DRAWN.unit}."
        yield Paragraph(f"{about} The small courses have one logarithmic scale, {ends}, so that runs compare.", "small")
    yield from _of_ticked(scope, face.ticked(TABLE))


def rows_of(entries: Sequence[ListedRun]) -> pl.DataFrame:
    """One row per run, the worst verdict first, then as they came. A run that was not read yet has only a name, and is last."""
    frame = pl.DataFrame([*map(_row, entries)], schema=SCHEMA, orient="row")
    rank = pl.col("verdict").replace_strict({word: rank for rank, word in enumerate(WORDS)}, return_dtype=pl.Int8)
    frame = frame.sort(rank, maintain_order=True)
    named_apart = (frame["name"] != "") & (frame["name"] != frame["run"].str.split("/").list.last())
    return frame if named_apart.any() else frame.drop("name")


def _row(entry: ListedRun) -> tuple[Any, ...]:
    name, known, stands = entry.name, entry.summary, (entry.state.brief, entry.state.step, entry.state.ago)
    if known is None or known.error:
        word = NOT_READ if known is None else UNREADABLE
        why = "" if known is None else known.error
        return (name, word, *stands, why, *[None] * (len(SCHEMA) - 7), "")
    verdict = GRADES[known.severity or NOT_MEASURED]
    healthy = known.severity == "healthy"
    return (
        name, verdict, *stands, "" if healthy else known.title, None if healthy else known.since, known.gap, known.kl_k3,
        known.error_of_kl_k3, list(known.course), known.steps, known.size, known.tokens, ", ".join(known.gaps),
        "" if not known.steps else "tokens" if known.has_rows else "statistics", known.trainer,
        None if known.started is None else known.started.replace(tzinfo=None), known.bytes, known.attempts, known.name,
    )  # fmt: skip


def matches(rows: pl.DataFrame, find: str) -> pl.Expr:
    """True for rows that contain every word, in any case."""
    columns = [name for name, kind in rows.schema.items() if kind == pl.String and name != "age"]
    text = pl.concat_str(columns, separator="\n", ignore_nulls=True).str.to_lowercase()
    words = [text.str.contains(word, literal=True) for word in find.lower().split()]
    return pl.all_horizontal(words) if words else pl.lit(True)


def _wanted_first(known: Mapping[str, str], find: str) -> list[str]:
    """The paths of all runs, those first whose names match the search."""
    words = find.lower().split()
    ranked = sorted(known.items(), key=lambda run: not all(word in run[0].lower() for word in words))
    return [path for _, path in ranked]


def _how_many(matching: pl.DataFrame, rows: int, waiting: int, on_paper: bool) -> str:
    which = f"{len(matching):,} of {count(rows, 'run')}" if len(matching) < rows else count(rows, "run")
    verdicts = Counter(matching["verdict"])
    found = ", ".join(f"{count(verdicts[word])} {word.partition(' ')[2]}" for word in WORDS[:-1] if verdicts[word])
    reading = f"{waiting:,} not yet read; this page keeps reading them" if waiting else ""
    tick = "" if on_paper else "; tick several to compare them"
    return " · ".join(part for part in (which, found, reading, f"click a run to open it{tick}") if part)


def _of_ticked(scope: Scope, ticked: Sequence[str]) -> Iterator[Block]:
    """The buttons for the ticked runs."""
    if not ticked:
        return
    most = 1 + MOST_OTHERS
    first, *others = ticked[:most]
    words = f"compare {1 + len(others)} runs" if others else "show its metrics"
    opens = Action("overlay", words, Link("charts", {"run": first} | ({"with": others} if others else {})))
    pin = None if others else pin_action(scope, first)
    more = f" · at most {most}; {len(ticked) - most} more are ticked" if len(ticked) > most else ""
    names = f"{', '.join(map(shortened, ticked[:most]))}{more}"
    yield Actions("ticked", (opens, *((pin,) if pin else ())), after=names)
    yield from said_of_pin(scope.face)
