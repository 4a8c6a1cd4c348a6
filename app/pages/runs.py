"""The Runs page: a row per run of the folder, with its state, its verdict and the verdict's first step; or a row per group."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.acknowledgements import ARCHIVED
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.coverage import NOT_MEASURED, PARTLY

from ..blocks import Block, Column, Link, Paragraph, Part, Table
from ..presentation.digits import count, digits
from ..presentation.metric_places import SPOKEN, metrics_at, names_at
from ..presentation.run_names import shortened
from ..presentation.theme import MARKS
from .empty_run import WAITS, how_to_attach
from .face import AtMostOne, Face, Several, Switch, Text
from .folder import MOST_OTHERS, NEWEST, WHOLE, ListedRun
from .run_groups import SEEDS, by_key, by_seed, differing, sharing_keys
from .scope import Scope
from .ticked_runs import OF_TAG, of_ticked, tag_filters

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
COUNTED = Column(format="localized")
DRAWN = metrics_at("runs", "mismatch")[0]
"""The metric of the table, in the first gap of a run that has it."""
TABLE = "runs_table"
OF_NEWEST = f"{SPOKEN[DRAWN.name]} of the gap in this row, at the last step, in {DRAWN.unit}"
STATES = (
    "live: a writer is running; ended: every writer closed its log; silent: no commit for two minutes, and this machine cannot "
    "check the process; dead: the writer's process is gone"
)
SCALE = f"log10 of {DRAWN.title} over the steps, from 10^{LEAST} to 10^{LARGEST} in every row, so that runs compare"
FOUND = "the cause, if a diagnosis of the run is known already, else the signal that is worst"
COLUMNS = {
    # This column is not pinned, because the text of a pinned column is drawn faded.
    "run": Column(help="the path below the served folder", width=186),
    "verdict": Column(help="the worst grade of any step", width=132, words=dict(zip(WORDS, COLOURS, strict=True))),
    "worst signal": Column("what was found", width=400, help=FOUND),
    "tags": Column(help="put on runs by readers; the run keeps them", width=130),
    "since": Column("since step", "localized"),
    DRAWN.name: Column(f"{DRAWN.title}, newest step", "%.3g", OF_NEWEST),
    "gap": Column(width=78),
    "± se": Column("", "%.2g", "its standard error, clustered by sequence", 74),
    "course": Column("over steps", help=SCALE, width=92, ends=(LEAST, LARGEST)),
    "state": Column(help=STATES, width=68),
    "newest": Column("newest step", "localized", "the newest committed step"),
    "age": Column("last commit", width=100),
    "records": Column(help="statistics: no token rows were kept, so no token can be shown"),
    "steps": COUNTED,
    "tokens": Column("", "compact", "tokens measured in this gap, over all steps"),
    "whole run": Column(f"{DRAWN.title}, whole run", help=f"of the gap in this row, in {DRAWN.unit}", width=150),
    "size": Column("size on disk", "bytes"),
}
SCHEMA: dict[str, Any] = {
    "run": pl.String, "verdict": pl.String, "tags": pl.String, "state": pl.String, "newest": pl.Int64, "age": pl.String,
    "worst signal": pl.String, "since": pl.Int64, "gap": pl.String, DRAWN.name: pl.Float64, "± se": pl.Float64,
    "course": pl.List(pl.Float64), "steps": pl.Int64, "whole run": pl.String, "tokens": pl.Int64, "gaps": pl.String,
    "records": pl.String, "trainer": pl.String, "started": pl.Datetime("us"), "size": pl.Int64, "attempts": pl.Int64,
    "name": pl.String,
}  # fmt: skip
MEASURED = {
    f"{name} {end}": Column(f"{BY_NAME[name].title}, {end}", "%.3g")
    for name in dict.fromkeys((*names_at("card", "mismatch"), *names_at("card", "drift")))
    for end in (NEWEST, WHOLE)
}
"""The columns of metrics that a reader can add; `Summary.values` has their numbers."""
SAME_LAST = "Settings and metrics; settings that are the same in all runs come last."
GROUPS = {
    "group": Column(width=300, narrow=170),
    "runs": COUNTED,
    "verdicts": Column(width=200),
    "gap": Column(width=96),
    "mean": Column(f"{DRAWN.title}, newest step: mean", "%.3g", OF_NEWEST),
    "least": Column("least", "%.3g"),
    "largest": Column("largest", "%.3g"),
    "its runs": Column(width=420),
}
LASTING = ("run", "verdict", "state", "worst signal", "since", "whole run", "gap", "course", "steps")
"""The columns of a file: without ages, and no more than a sheet has room for."""


@dataclass(frozen=True)
class ListChoices:
    """The choices of a reader for the list."""

    find: str = ""
    """Words of the search."""
    columns: tuple[str, ...] = ()
    """Columns beside the usual ones: settings by dotted key, and metrics of MEASURED."""
    by: str | None = None
    """`SEEDS` or a setting that runs are grouped by; None for a row per run."""
    archived: bool = False
    """True if archived runs are listed too."""


def runs(scope: Scope) -> Iterator[Block]:
    choices = _asked(scope.face, {each.name: each.settings for each in scope.runs.listed(())[0]})
    yield Part("runs_list", partial(_listed, scope, choices), EVERY)
    if scope.runs.note:
        yield Paragraph(scope.runs.note, "absent")
    known = [each.summary for each in scope.runs.listed(())[0]]
    if not any(summary is None or summary.gaps or summary.error for summary in known):
        waits = "" if scope.face.unasked(LASTING) else f" {WAITS}"
        yield Paragraph(f"No run here has the log-probs of two policies for the same tokens yet.{waits}", "info")
        yield from how_to_attach(scope.face)


def _asked(face: Face, settings: Mapping[str, Mapping[str, str]]) -> ListChoices:
    """settings: those of each run, by its name."""
    apart, same = differing(settings)
    offered = [key for key in (*apart, *MEASURED, *same) if key not in SCHEMA]
    columns = Several(
        "columns", "columns", offered, placeholder="more columns", help=SAME_LAST, absent="No run here has the column {}.",
        width=300, has_title=False,
    )  # fmt: skip
    by = AtMostOne(
        "by", "group by", [SEEDS, *sharing_keys(settings)], "group by", absent="Runs cannot be grouped by {}.", width=220,
        has_title=False,
    )  # fmt: skip
    with face.row("runs_choices", labelled=False):
        return ListChoices(
            face.ask(
                Text("find", "find", placeholder="search name, verdict, signal, state, tag", width=300, has_title=False)
            ),
            tuple(face.ask(columns)),
            face.ask(by),
            face.ask(Switch("archived", "archived", help="Lists archived runs, too.")),
        )


def _listed(scope: Scope, choices: ListChoices) -> Iterator[Block]:
    """The list, which is made anew while runs are read, grow or appear."""
    face, known = scope.face, scope.runs
    every, waiting = known.listed(_wanted_first(known.runs, choices.find))
    entries = [each for each in every if choices.archived or ARCHIVED not in each.tags]
    rows = rows_of(entries, choices.columns)
    matching = rows.filter(matches(rows, choices.find))
    on_paper = bool(face.unasked(LASTING))
    hidden = len(every) - len(entries)
    click = "click a group to lay its runs over each other" if choices.by else "click a run to open it"
    yield Paragraph(" · ".join((*_how_many(matching, len(rows), waiting, hidden), click)), "muted")
    if not on_paper:
        yield from tag_filters(entries)
    if choices.by is not None:
        settings = {each.name: each.settings for each in entries}
        groups = by_seed([*settings]) if choices.by == SEEDS else by_key(settings, choices.by)
        yield _group_table(matching, groups, choices.by)
        return
    if not on_paper:
        yield from of_ticked(scope, face.ticked(TABLE), {each.name: each.tags for each in every})
    names = matching["run"].to_list()
    yield Table(
        f"{len(matching)} runs",
        matching.with_columns(pl.col("course").list.eval(pl.element().log10().clip(LEAST, LARGEST))),
        columns=COLUMNS | {key: _column(key, matching[key]) for key in choices.columns},
        first=choices.columns,
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
    if beside := [each.name for each in entries if each.keeps_tags_beside]:
        why = "cannot be written: their tags are kept beside this server, and other servers do not show them"
        yield Paragraph(f"{', '.join(map(shortened, beside))} {why}.", "absent")


def _column(key: str, values: pl.Series) -> Column:
    """The look of a chosen column. A setting is headed by the last two words of its key."""
    exact = "%.12g" if values.dtype.is_numeric() else ""  # 1e-6 and 0.000001 look the same
    return MEASURED.get(key) or Column(".".join(key.split(".")[-2:]), exact, key)


def rows_of(entries: Sequence[ListedRun], chosen: Sequence[str] = ()) -> pl.DataFrame:
    """One row per run, the worst verdict first, then as they came. A run that was not read yet has only a name, and is last.

    chosen: columns beside the usual ones, which follow the verdict.
    """
    frame = pl.DataFrame([*map(_row, entries)], schema=SCHEMA, orient="row")
    first = ("run", "verdict", "tags")[: 3 if (frame["tags"] != "").any() else 2]
    frame = frame.select(
        *first, *(_added(entries, key) for key in chosen), *(name for name in SCHEMA if name not in (*first, "tags"))
    )
    rank = pl.col("verdict").replace_strict({word: rank for rank, word in enumerate(WORDS)}, return_dtype=pl.Int8)
    frame = frame.sort(rank, maintain_order=True)
    named_apart = (frame["name"] != "") & (frame["name"] != frame["run"].str.split("/").list.last())
    return frame if named_apart.any() else frame.drop("name")


def _added(entries: Sequence[ListedRun], key: str) -> pl.Series:
    """A chosen column, as numbers if every value of it is one. A version such as 2.10 is none."""
    if key in MEASURED:
        return pl.Series(key, [each.summary and each.summary.values.get(key) for each in entries], pl.Float64)
    words = pl.Series(key, [each.settings.get(key) for each in entries], pl.String)
    numbers = words.cast(pl.Float64, strict=False)
    is_number = key.startswith("config.") and numbers.null_count() == words.null_count() and numbers.is_finite().all()
    return numbers if is_number else words


def _row(entry: ListedRun) -> tuple[Any, ...]:
    name, known, stands = entry.name, entry.summary, (entry.state.brief, entry.state.step, entry.state.ago)
    tags = ", ".join(entry.tags)
    if known is None or known.error:
        word = NOT_READ if known is None else UNREADABLE
        why = "" if known is None else known.error
        return (name, word, tags, *stands, why, *[None] * (len(SCHEMA) - 8), "")
    verdict = GRADES[known.severity or NOT_MEASURED]
    healthy = known.severity == "healthy"
    return (
        name, verdict, tags, *stands, "" if healthy else known.title, None if healthy else known.since, known.gap, known.kl_k3,
        known.error_of_kl_k3, list(known.course), known.steps, known.size, known.tokens, ", ".join(known.gaps),
        "" if not known.steps else "tokens" if known.has_rows else "statistics", known.trainer,
        None if known.started is None else known.started.replace(tzinfo=None), known.bytes, known.attempts, known.name,
    )  # fmt: skip


def matches(rows: pl.DataFrame, find: str) -> pl.Expr:
    """True for rows that contain every word, in any case. A word such as tag:good is a whole tag."""
    columns = [name for name, kind in rows.schema.items() if kind == pl.String and name != "age"]
    text = pl.concat_str(columns, separator="\n", ignore_nulls=True).str.to_lowercase()
    tags = pl.col("tags").str.to_lowercase().str.split(", ") if "tags" in columns else pl.lit([""])
    words = [
        tags.list.contains(word.removeprefix(OF_TAG))
        if word.startswith(OF_TAG)
        else text.str.contains(word, literal=True)
        for word in find.lower().split()
    ]
    return pl.all_horizontal(words) if words else pl.lit(True)


def _wanted_first(known: Mapping[str, str], find: str) -> list[str]:
    """The paths of all runs, those first whose names match the search."""
    words = find.lower().split()
    ranked = sorted(known.items(), key=lambda run: not all(word in run[0].lower() for word in words))
    return [path for _, path in ranked]


def _how_many(matching: pl.DataFrame, rows: int, waiting: int, hidden: int) -> Iterator[str]:
    which = f"{len(matching):,} of {count(rows, 'run')}" if len(matching) < rows else count(rows, "run")
    reading = f"{waiting:,} not yet read; this page keeps reading them" if waiting else ""
    apart = f"{count(hidden)} archived {'is' if hidden == 1 else 'are'} hidden" if hidden else ""
    yield from (part for part in (which, _verdicts(matching), reading, apart) if part)


def _verdicts(rows: pl.DataFrame) -> str:
    """The number of runs of each verdict in words, the first to look at first."""
    verdicts = Counter(rows["verdict"])
    return ", ".join(f"{count(verdicts[word])} {word.partition(' ')[2]}" for word in WORDS[:-1] if verdicts[word])


def _group_table(rows: pl.DataFrame, groups: Mapping[str, str], by: str) -> Table:
    """One row per group, that with the worst run first. groups: run -> its group."""
    members = rows.with_columns(group=pl.col("run").replace_strict(groups, return_dtype=pl.String))
    parts = [own for _, own in members.group_by("group", maintain_order=True)]
    found, names = [*map(_group, parts)], [own["run"].to_list() for own in parts]

    def leads(row: int) -> Link:
        first, *others = names[row][: 1 + MOST_OTHERS]
        if not others:
            return Link("overview", {"run": first})
        return Link("charts", {"run": first, "with": others} | ({"group": SEEDS} if by == SEEDS else {}))

    frame = pl.DataFrame(found, [*GROUPS], orient="row", infer_schema_length=None)
    return Table(
        f"{len(frame)} groups", frame, "No run matches.", GROUPS, picks="groups_table", leads=leads, rows=frame["group"].to_list()
    )  # fmt: skip


def _group(own: pl.DataFrame) -> tuple[Any, ...]:
    """The newest sizes of runs with another gap than most are not comparable: they are left out."""
    gap = next((gap for gap, _ in Counter(own["gap"].drop_nulls()).most_common(1)), None)
    sizes = own.filter(gap=gap)[DRAWN.name].drop_nulls() if gap else pl.Series(dtype=pl.Float64)
    of = gap if gap is None or len(sizes) == len(own) else f"{gap}, {len(sizes)} of {len(own)}"
    members = ", ".join(map(shortened, own["run"]))
    return own["group"][0], len(own), _verdicts(own), of, sizes.mean(), sizes.min(), sizes.max(), members
