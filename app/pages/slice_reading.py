"""Metrics by a slice: from statistics at once, or from token rows, read once a session and for a growing run again on
request."""

import polars as pl

from ..presentation.slice_names import SliceWords
from .face import Face
from .view import View, asked_gap


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
