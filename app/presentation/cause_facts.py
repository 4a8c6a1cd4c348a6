"""The facts of a likely cause, in the same words on the page, in the report and in the terminal."""

from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely, percent

from .growth_words import growth_facts
from .sentence import capital, sentence

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.known_context import KnownContext


def share_words(item: Likely) -> str:
    """Share and confidence of a cause in one line."""
    sure = f"{item.confidence} confidence"
    if item.share is None:
        return f"{item.weight} · {sure}"
    error = f" ± {100 * item.error:.1g}%" if 5e-5 < item.error < 1 else ""
    return f"explains {percent(item.of_whole)}{error} of the gap · {sure}"


def over_steps(item: Likely) -> pl.DataFrame:
    """The gap of each step before and after the undoing."""
    rows = [(at.step, at.tokens, at.before, at.after) for at in (item.share.over_steps if item.share else ())]
    schema = {"step": pl.Int64, "tokens": pl.Int64, "before": pl.Float64, "after": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def cause_facts(item: Likely, context: "KnownContext | None" = None) -> list[tuple[str, str]]:
    """The finding, its proof and meaning, the remedy, the check that confirms it, and causes it is mistaken for."""
    cause = item.cause
    rows = [
        ("found", sentence(item.effect)),
        ("proof", item.proof),
        ("means", cause.meaning),
        ("do", cause.remedy),
        *_context_facts(cause.code, context),
        ("confirm", cause.confirm),
        *(("or else", f"{capital(title_of(code))}? {text}") for code, text in cause.mistaken_for.items()),
        ("as likely", sentence("; ".join(map(title_of, item.instead)))),
    ]
    return [(name, text) for name, text in rows if text]


def _context_facts(code: str, context: "KnownContext | None") -> list[tuple[str, str]]:
    """The remedy in the run's trainer, and the correction to use meanwhile."""
    if context is None:
        return []
    remedy, bridge = context.remedies.get(code), context.bridge_for(code)
    return [
        (f"do in {context.trainer}", f"{remedy.do} ({_place(remedy.source)})" if remedy else ""),
        ("meanwhile", sentence(bridge.words) if bridge else ""),
    ]


def context_facts(context: "KnownContext") -> list[tuple[str, str]]:
    """Changes over the steps, the published range, the run's own correction, odd counts, and faults of the settings on record."""
    return [
        *growth_facts(context.growth),
        ("published range", sentence(context.reference.words)),
        ("own correction", sentence(context.correction.words)),
        *((each.code.replace("_", " "), sentence(each.words)) for each in context.groups if each.is_odd),
        *((each.code.replace("_", " "), f"{each.words} ({_place(each.source)})") for each in context.faults),
    ]


def _place(source: str) -> str:
    """A source without the beginning that would make it a link: reports link to nothing."""
    return source.replace("https://", "")


def settings_of(code: str, context: "KnownContext | None") -> str:
    """The settings of the correction to use meanwhile, in the trainer's syntax; empty if there are none for this cause."""
    bridge = None if context is None else context.bridge_for(code)
    return bridge.settings if bridge else ""


def stays_open(diagnosis: Diagnosis) -> str:
    """The titles of all causes that the record cannot tell, in one sentence; empty if there are none."""
    titles = "; ".join(item.cause.title for item in diagnosis.cannot_tell)
    return sentence(f"{len(diagnosis.cannot_tell)} causes: {titles}") if titles else ""


def title_of(code: str) -> str:
    """The title of a cause; its code if there is no such cause."""
    return CAUSE[code].title if code in CAUSE else code
