"""One line on the recording of a run: Overview and Health tell the same."""

from datetime import datetime

import polars as pl

from ratioscope.ingest.run import Run

from ..figures.html.cards import facts_line
from ..presentation.digits import count
from ..presentation.run_state import ALARMS, RunState
from ..presentation.theme import LIGHT, Theme


def collector_line(run: Run, state: RunState, theme: Theme = LIGHT) -> str:
    """One line: the state of the writers, the counts of sequences, and the last commit."""
    counts, set_aside = run.conservation, len(run.quarantined)
    facts = [("collector", collector_state(run, state))]
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
        facts.append(
            ("last commit", f"{last:%Y-%m-%d %H:%M:%S} UTC")
        )  # an age would stand still until the next drawing
    return facts_line(doubt(run, state) or "healthy", facts, theme=theme)


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
    troubled = open_ones.filter(pl.col("state") != "ok")["state"].unique().sort()
    gone = [f"{count(counts.gone)} of {counts.writers:,} ended without closing"] if counts.gone else []
    silent = [f"{count(counts.silent)} of {counts.writers:,} silent for an hour"] if counts.silent else []
    return ", ".join((f"{state.life} ({count(len(newest), 'writer')})", *gone, *silent, *troubled))
