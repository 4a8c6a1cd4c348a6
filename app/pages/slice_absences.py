"""The slices of a run, and the reasons why others are not available.

Metrics by a slice: from statistics at once, or from token rows, read once a session and for a growing run again on
request.
"""

import math
from collections.abc import Collection

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.ingest.rows.part import terms_of
from ratioscope.ingest.run import Run
from ratioscope.metrics.engines.slices import WRITTEN

from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.slice_names import SLICES, UNFILTERED, SliceWords
from .face import Face
from .view import View, asked_gap

MOST_KEYS = 20
"""Most keys that an error message lists."""


def wrong_part(view: View, typed: str) -> str:
    """Why terms of the typed filter match no token of the run, with the known slices or keys; empty if each matches some."""
    try:
        reasons = (_wrong_term(view, name, key) for name, key in terms_of(typed))
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    except ConfigError as error:
        return str(error)


def _wrong_term(view: View, name: str, key: str) -> str:
    absent = absences(view)
    known = known_slices(view)
    if name in absent:
        return f"{name} is not available, {absent[name]}"
    if name not in known:
        found = "" if name == "?" else f"{visible(name, 40)} is not a slice of this run; "
        return f"{found}wanted slice=key, with a slice of {', '.join(known)}"
    keys = view.of(written_keys, name)
    if key in keys or (key and not keys):
        return ""
    there = f": {', '.join(keys[:MOST_KEYS])}{' …' if len(keys) > MOST_KEYS else ''}" if keys else ""
    return (
        f"{name} has no key {visible(key, 40)}; it has {count(len(keys), 'key')}{there}"
        if key
        else f"wanted {name}=key{there}"
    )


def known_slices(view: View) -> list[str]:
    """Names of the slices that pages can be filtered by."""
    absent = absences(view)
    return [words.name for words in SLICES if words.name not in {*absent, *UNFILTERED}]


def written_keys(run: Run, name: str) -> tuple[str, ...]:
    """The keys of a slice; none if they would need token rows."""
    keys = run.metrics((name,))[name].cast(pl.String) if name in WRITTEN else pl.Series(dtype=pl.String)
    return tuple(sorted(keys, key=lambda key: (len(key), key) if key.isdecimal() else (math.inf, key)))


def absences(view: View) -> dict[str, str]:
    """slice -> "because ..." for the slices that this run does not have."""
    columns, has_rows = view.of(recorded)
    if reason := view.run.no_tokens:
        return {words.name: f"because {reason}" for words in SLICES}
    return {words.name: reason for words in SLICES if (reason := _absence(view, words, columns, has_rows=has_rows))}


def _absence(view: View, words: SliceWords, columns: Collection[str], *, has_rows: bool) -> str:
    missing = [name for name in words.needs if name not in columns]
    if words.written:
        absent = bool(words.needs) and words.name not in view.of(written_slices)
        return f"because the rows have no {' and no '.join(words.needs)}; {words.record}" if absent else ""
    if not has_rows:
        return "because the run has no token rows, which this slice needs; give the collector a larger budget"
    return f"because the rows have no {' and no '.join(missing)}; {words.record}" if missing else ""


def recorded(run: Run) -> tuple[frozenset[str], bool]:
    columns = run.columns
    return columns, bool(columns)


def written_slices(run: Run) -> frozenset[str]:
    """The slices in the statistics that have a bucket."""
    names = (words.name for words in SLICES if words.written)
    return frozenset(name for name in names if len(run.metrics((name,))))  # the bars read the same metrics


def steps_shown(view: View, face: Face, words: SliceWords, chosen: range | None) -> range | None:
    """The steps of a displayed slice. For a growing run they change only if the reader asks for newer ones."""
    steps = view.steps
    if words.written or not view.is_growing:
        return chosen
    last = face.remembered(last_key(view, words), steps[-1])
    return range(chosen.start if chosen else steps[0], min(chosen.stop if chosen else last + 1, last + 1))


def last_key(view: View, words: SliceWords) -> str:
    return f"_measured {view.path} {words.name}"


def slice_frame(view: View, face: Face, words: SliceWords, steps: range | None, gap: str = "") -> pl.DataFrame:
    """Metrics by bucket. The first time that a session reads token rows for them, the page shows the progress."""
    if not words.written:
        read_rows(view, face, (words.name,), words.title, steps, gap)
    return view.metrics((words.name,), steps, gap)


def read_rows(view: View, face: Face, by: tuple[str, ...], title: str, steps: range | None, gap: str = "") -> None:
    """Computes metrics from token rows with a bar. gap: of readings; the rows that it gains later are read without a bar."""
    seen: set[object] = face.remembered("_read", set())
    of_gap = asked_gap(gap)
    asked = (view.path, view.revision if steps is None and not of_gap else None, by, steps, of_gap)
    if asked in seen:
        return
    with face.working(f"measuring by {title} from token rows") as tell:
        view.run.metrics(by, steps=steps, progress=tell, gap=next(iter(of_gap), None))
    seen.add(asked)
