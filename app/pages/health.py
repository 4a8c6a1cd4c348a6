"""The Record page: writers, and dropped, lost, missing and damaged data.

One line on the recording of a run: Overview and Record tell the same.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import polars as pl

from ratioscope.ingest.analysis.feature_requirements import why_no_gap
from ratioscope.ingest.commits.conservation import UNSEEN, Conservation, Dropped
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.coverage import NOT_MEASURED

from ..blocks import Block, Cards, Facts, Heading, Json, Markup, Paragraph, Section, Table
from ..figures.html.cards import facts_line
from ..figures.html.reasons import reasons
from ..presentation.cause_facts import sentinel_facts
from ..presentation.digits import count
from ..presentation.run_state import ALARMS, RunState
from ..presentation.sentence import capital
from ..presentation.theme import LIGHT, Theme
from ..presentation.unavailable import replaced, unavailable_rows
from ..presentation.weights_table import NO_DIGESTS, weights_table
from .quality import quality, quality_facts
from .reproduction import reproduction, reproduction_facts
from .scope import Scope

MANY, TALLEST = 12, 430
"""A table of so many rows scrolls, at this height in pixels: what stands below it is found without."""
NARROW = ("step", "note", "state", "lost", "dropped")
"""Columns that follow a table's first in a narrow window, which has no room for more."""


def health(scope: Scope) -> Iterator[Block]:
    run = scope.view.run
    ways = _ways(run)
    if well := [none for _, frame, none in ways if none and frame.is_empty()]:
        yield Paragraph(" ".join(well), "good")
    yield Markup(partial(collector_line, run, scope.view.state))
    yield Cards(_facts(run), narrowest=108)
    for writer, state in run.states.items():
        yield Paragraph(f"{writer}: {state}", "warning")
    for note in run.notes:
        yield Paragraph(note, "absent")
    if why := scope.view.of(why_no_gap):
        yield Paragraph(capital(why), "info")
    yield from _listed("Writers", _writers(run), "The run has no commit log.")
    for title, frame, _ in ways:
        if len(frame):
            yield from _listed(title, frame)
    yield from _not_available(run)
    yield from _listed("Weights of the engines", weights_table(run), NO_DIGESTS)
    yield from _listed("Events", run.events, "No event was recorded.")
    if checked := scope.view.verdict().checked:
        yield Heading("Checks")
        yield Paragraph(checked)
    yield Heading("Data behind the numbers")
    yield from _quality(run, scope)
    yield Heading("Run")
    facts = reproduction_facts(scope.view.of(reproduction))
    yield Facts([(name, text) for name, text in facts if not name.startswith("command")])
    steps = f"steps {run.steps[0]} to {run.steps[-1]}" if run.steps else "no step"
    recorded = f"policies {', '.join(run.policies) or 'none'} · gaps {', '.join(run.gaps) or 'none'}"
    yield Paragraph(
        f"{run.place if run.is_remote else _shown(Path(run.place))} · {steps} · {recorded} · its run.json:", "muted"
    )
    yield Json("run.json", run.info)


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("quality", "Data quality", partial(_printed_quality, scope))
    yield Section("reproduction", "Reproduction", partial(_reproduction, scope))


def _quality(run: Run, scope: Scope) -> Iterator[Block]:
    found, known = quality(run, scope.view.metrics()), scope.view.source.known_diagnosis(scope.view)
    sentinels = [] if known is None or known.context is None else sentinel_facts(known.context)
    yield Facts([*quality_facts(found), *sentinels])
    if found.unrecorded:
        yield Heading("Not recorded")
        yield Facts([(item.view, f"not available, {item.reason}") for item in found.unrecorded])


def _printed_quality(scope: Scope) -> Iterator[Block]:
    yield from _quality(scope.view.run, scope)
    for title, frame, _ in _ways(scope.view.run):
        if len(frame):
            yield from _listed(title, frame)


def _reproduction(scope: Scope) -> Iterator[Block]:
    made = scope.view.of(reproduction)
    yield Facts(reproduction_facts(made))
    if made.config:
        yield Json("configuration of the run", made.config)


def _writers(run: Run) -> pl.DataFrame:
    """The writers, each with one state in the words of the header. The losses of one that ended without closing are not known."""
    ended, state = pl.col("ended"), pl.col("state")
    unknown = ended.is_in(["gone", "silent"]) & (pl.col("lost") == 0)
    well = pl.when(ended == "closed").then(pl.lit("ended")).otherwise(pl.lit("live"))
    writers = run.writers.with_columns(
        state=pl.when(state == "ok").then(well).otherwise(state), lost=pl.when(~unknown.fill_null(False)).then("lost")
    )
    return writers.drop("ended").rename(lambda name: name.replace("_", " "))


def _facts(run: Run) -> tuple[tuple[str, str, str], ...]:
    counts = run.conservation
    if not _counts_sequences(run):
        return (("steps", count(len(run.steps)), "steps with numbers of the log"),)
    return (
        ("steps", count(len(run.steps)), "steps with statistics or token rows"),
        ("offered", count(counts.offered), "sequences that trainers gave to the collectors, over all attempts"),
        ("written", count(counts.written), "sequences whose token rows are on disk"),
        (
            "left out",
            count(counts.left_out),
            "sequences whose token rows the budget left out; the statistics include them",
        ),
        ("dropped", count(counts.dropped), "sequences that were not written; the table Dropped gives the reasons"),
        ("pending", count(counts.pending), "sequences that a running writer has queued or is writing"),
        (
            "lost",
            "not known" if _unknown_loss(counts) else count(counts.lost),
            "at least this many sequences; their writer ended before it wrote them",
        ),
        ("not shown", count(counts.hidden), "rows that a later start recorded again; the table Not shown lists them"),
        (
            "set aside",
            count(len(run.quarantined) + len(run.uncommitted)),
            "damaged or foreign files, and files that no commit names",
        ),
    )


def _counts_sequences(run: Run) -> bool:
    """False for the import of a scalar log: it was offered none, so that 0 of them lost says nothing."""
    return bool(run.conservation.offered) or not run.no_tokens


def _unknown_loss(counts: Conservation) -> bool:
    """True if a writer ended without closing and no loss is on record: nobody counted what it took after its last line."""
    return bool(counts.gone or counts.silent) and not counts.lost


def _ways(run: Run) -> tuple[tuple[str, pl.DataFrame, str], ...]:
    """Title and table of each way in which data can be missing, and a sentence for a run in which none is."""
    counts = run.conservation
    if not _counts_sequences(run):
        return (("Set aside", _set_aside(run), "Every file of the run could be read."),)
    return (
        ("Dropped", _dropped(counts), "Nothing was dropped."),
        ("Dropped, by step", run.drops, ""),
        (
            "Lost",
            _lost(counts),
            "" if _unknown_loss(counts) else "Every writer that ended had written all of its sequences.",
        ),
        ("Set aside", _set_aside(run), "Every file of the run could be read."),
        ("Not shown", _not_shown(run), "Everything that was recorded is shown."),
    )


def _set_aside(run: Run) -> pl.DataFrame:
    rows = [(str(item.path), item.reason) for item in run.quarantined]
    rows += [(path, "no commit names it: its writer is still running or was killed") for path in run.uncommitted]
    return pl.DataFrame(rows, schema={"file": pl.String, "reason": pl.String}, orient="row")


def _dropped(counts: Conservation) -> pl.DataFrame:
    rows = [
        (part.reason, part.sequences, UNSEEN if part.unseen == part.sequences else _tokens(part))
        for part in counts.reasons
    ]
    return pl.DataFrame(rows, schema={"reason": pl.String, "sequences": pl.Int64, "tokens": pl.String}, orient="row")


def _tokens(part: Dropped) -> str:
    unseen = f" and those of {count(part.unseen, 'sequence')} whose tokens were not counted" if part.unseen else ""
    return f"{count(part.tokens)}{unseen}"


def _lost(counts: Conservation) -> pl.DataFrame:
    rows = [
        (lost.writer, lost.sequences, lost.step, lost.taken, UNSEEN, "the writer ended before it wrote them")
        for lost in counts.losses
    ]
    schema = {
        "writer": pl.String,
        "at least": pl.Int64,
        "after step": pl.Int64,
        "up to step": pl.Int64,
        "tokens": pl.String,
        "why": pl.String,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _not_shown(run: Run) -> pl.DataFrame:
    rows = [replaced(old) for old in run.shadowed]
    return pl.DataFrame(rows, schema={"what": pl.String, "reason": pl.String}, orient="row")


def _not_available(run: Run) -> Iterator[Block]:
    yield Heading("Not available")
    if rows := unavailable_rows(run):
        told = [(capital(why.removeprefix("because ")), which) for why, which in rows]
        yield Markup(partial(reasons, ("reason", "which"), told))
    else:
        yield Paragraph("Every metric of every recorded gap is available.", "muted")


def _listed(title: str, frame: pl.DataFrame, none: str = "") -> Iterator[Block]:
    """A heading with the table, or with the words `none` if it is empty."""
    yield Heading(title)
    yield Table(title, frame, none, first=NARROW, tallest=None if len(frame) < MANY else TALLEST)


def _shown(path: Path) -> str:
    """The path as its owner would type it on this machine."""
    here, home = Path.cwd(), Path.home()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def collector_line(run: Run, state: RunState, theme: Theme = LIGHT) -> str:
    """One line: the state of the writers, the counts of sequences, and the last commit."""
    counts, set_aside = run.conservation, len(run.quarantined)
    facts = [("collector", collector_state(run, state) if _counts_sequences(run) else f"none: {run.no_tokens}")]
    if counts.offered:
        facts += [("offered", count(counts.offered, "sequence")), ("written", count(counts.written))]
        facts += [("left out by the budget", count(counts.left_out))] if counts.left_out else []
        facts += [("dropped", count(counts.dropped))]
        facts += [("pending", count(counts.pending))] if counts.pending else []
        facts += [("lost", f"at least {count(counts.lost)}")] if counts.lost else []
        facts += [("not shown", count(counts.hidden, "row"))] if counts.hidden else []
    facts += [("files set aside", count(set_aside))] if set_aside else []
    last = run.writers["last_commit"].max()
    if isinstance(last, datetime):
        # an age would stand still until the next drawing
        facts.append(("last commit", f"{last:%Y-%m-%d %H:%M:%S} UTC"))
    return facts_line(doubt(run, state) or ("healthy" if _counts_sequences(run) else NOT_MEASURED), facts, theme=theme)


def doubt(run: Run, state: RunState) -> str:
    """The severity of what went wrong with the recording; empty if nothing did."""
    counts, alarm = run.conservation, ALARMS.get(state.life, "")
    odd = run.states or run.quarantined or counts.gone or counts.silent or counts.hidden
    return "act" if not counts.is_whole or alarm == "act" else "watch" if odd else alarm


def collector_state(run: Run, state: RunState) -> str:
    """The state of the run, the number of writers of the newest attempt, and those in trouble, in a few words."""
    writers, counts = run.writers, run.conservation
    if writers.is_empty():
        return "no commit log"
    newest = writers.filter(pl.col("attempt") == pl.col("attempt").max())
    open_ones = newest.filter(pl.col("closed").is_null() & pl.col("ended").is_null())
    troubled = open_ones.filter(~pl.col("state").is_in(["ok", state.life]))["state"].unique().sort()
    gone = [f"{count(counts.gone)} of {counts.writers:,} ended without closing"] if counts.gone else []
    silent = [f"{count(counts.silent)} of {counts.writers:,} silent for an hour"] if counts.silent else []
    return ", ".join((f"{state.life} ({count(len(newest), 'writer')})", *gone, *silent, *troubled))
