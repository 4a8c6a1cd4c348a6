"""Draws how a log-prob gets from the trainer to a page: `make docs`. A test keeps the picture current."""

from collections.abc import Iterator
from pathlib import Path

from drawing import arrow, box, labelled, svg, text

WIDTH, HEIGHT = 960, 310
STEP = 62
"""Pixels between two boxes of a column."""
COLUMNS: dict[str, tuple[int, int, tuple[tuple[str, ...], ...]]] = {
    "your training job": (
        10,
        220,
        (
            ("sampling engine", "log-probs: rollout"),
            ("trainer", "log-probs: old, current"),
            ("Collector.log", "copies and returns"),
        ),
    ),
    "a process beside it": (
        270,
        190,
        (
            ("rows", "one per sequence"),
            ("statistics", "exact, over all tokens"),
            ("token rows", "under your budget"),
        ),
    ),
    "run folder": (
        500,
        190,
        (
            ("statistics/*.parquet", "sums that merge"),
            ("tokens/**/*.parquet", "log-probs as lists"),
            ("commits/*.jsonl", "digests, drops, events"),
        ),
    ),
    "where you look": (
        730,
        220,
        (
            ("ratioscope dashboard", "live, every view a link"),
            ("ratioscope report", "one file, or JSON"),
            ("ratioscope.open_run", "frames for notebooks"),
            ("ratioscope metrics, info", "in the terminal"),
        ),
    ),
}
"""Column -> its left edge, its width, its boxes."""

MOST = max(len(boxes) for _, _, boxes in COLUMNS.values())


def picture() -> str:
    """The way of a log-prob as SVG."""
    return svg(WIDTH, HEIGHT, "From the trainer to a page", parts())


def parts() -> Iterator[str]:
    places = list(COLUMNS.items())
    for name, (x, width, boxes) in places:
        yield box(x, 10, width, HEIGHT - 20, "room")
        yield text(x + width // 2, 36, name, "head")
        top = 50 + STEP * (MOST - len(boxes)) // 2
        for number, lines in enumerate(boxes):
            yield from labelled(x + 15, top + STEP * number, width - 30, lines, "folder")
    for (_, (left, width, _)), (_, (right, _, _)) in zip(places, places[1:], strict=False):
        yield arrow(left + width + 2, HEIGHT // 2, right - 2, HEIGHT // 2)


if __name__ == "__main__":
    (Path(__file__).parent / "pictures" / "how_it_works.svg").write_text(picture())
