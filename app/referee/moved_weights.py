"""Doubts about a reading by a server that may have got other weights while it read."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.on_record import SYNC

from ..presentation.digits import count
from ..presentation.step_words import steps_words
from .engines import Engine, engine_at
from .rescoring import Rescored

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

VERSION = "weight_version"
"""The version of the weights that SGLang tells, and vLLM does not."""


def moved_doubts(run: "Run", engine: Engine, done: Rescored) -> list[str]:
    """Why a reading that was just made may be of several weights: syncs on record since it began, another version, or no way to
    see it in what an earlier call read."""
    doubts = []
    began = run.reading_began(done.reading)
    since = pl.col("time") >= datetime.fromtimestamp(began or 0.0, UTC)
    if began is not None and len(syncs := run.events.filter((pl.col("event") == SYNC) & since)):
        steps = sorted(set(syncs["step"].drop_nulls().to_list()))
        where = f" at {steps_words(steps, run.steps)}" if steps else ""
        known = f"{count(len(syncs), 'weight sync')}{where} on record since this reading began"
        doubts.append(f"the run has {known}: it may be of several weights")
    with suppress(SourceError):  # what was read stays, whether the server still answers or not
        now = engine_at(engine.server).made_of.get(VERSION)
        if now != (before := engine.made_of.get(VERSION)):
            doubts.append(
                f"the server's {VERSION} went from {before} to {now} while it read: the reading is of several weights"
            )
    if done.before and VERSION not in engine.made_of:
        doubts.append(
            f"{count(done.before, 'sequence')} were read by an earlier call, and {engine.kind} does not tell its weights: nothing"
            " shows that they are those of now"
        )
    return doubts
