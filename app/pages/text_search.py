"""The search in prompts and responses: the words for it and for its hits, the texts that it could not read, the list of a run."""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.text_search import MOST_CHARACTERS, TextHits, expression_of, text_hits
from ratioscope.ingest.run import Run

from ..blocks import Action, Block, Column, Paragraph, Table
from ..presentation.digits import count
from ..presentation.metric_places import title_of
from ..presentation.step_words import steps_words
from .face import Choice, Face, Text
from .scope import NO_STEPS, Scope, steps_of
from .sequence_filters import known
from .step_choice import opened

SHOWN = 500
"""Most sequences in a list."""
SECONDS = 10.0
"""Time after which a search of many steps pauses and shows what it has found."""
HELD = "_text_search"
"""The key under which the session keeps the search of many steps."""
HELP = (
    "Plain text in any case. Between slashes it is a regular expression in the syntax of Rust's regex, such as /(wait|hmm)[,.]/: "
    "there is no look-around and no backreference, and its time grows with the length of the text alone."
)
MATCH = Column("match", width=460, help="The first hit in « », in the response if there is one, else in the prompt.")
OVER = Choice("over_steps", "in", ("this step", "many steps"), "this step", look="segments")
STEPS = Text(
    "steps", "steps", placeholder="all steps, or 100:200", width=200, help="100:200, 100: or -50: (the last 50)"
)


@dataclass(frozen=True)
class Wanted:
    """A search that the reader asked for."""

    expression: str = ""
    """As `expression_of` makes it; empty for no search."""
    over: str | None = None
    """The steps that are searched, as typed; None for the step of the page."""


@dataclass(frozen=True)
class Search:
    """A search of many steps, as far as it got. It reads the newest step first."""

    of: tuple[str, Wanted]
    """Path of the run, and what is wanted."""
    left: tuple[int, ...]
    """The steps with token rows that are still to be read."""
    without_rows: str
    """Words on the chosen steps that have no token rows; empty if all have some."""
    read: tuple[int, ...] = ()
    """The steps that were read."""
    found: TextHits = field(default_factory=TextHits)
    """The hits of the steps that were read."""
    is_at_work: bool = True
    """False while it pauses, until the reader goes on with it."""


def asked_search(face: Face) -> Generator[Block, None, Wanted]:
    """The reader's search. A wrong expression is explained and searches nothing."""
    with face.row("search"):
        title, words = "search in prompts and responses", "words, or /regular expression/"
        typed = face.ask(Text("search", title, placeholder=words, width=340, most=MOST_CHARACTERS, help=HELP)).strip()
        over = face.ask(STEPS) if typed and face.ask(OVER) != OVER.usual else None
    try:
        return Wanted(expression_of(typed) if typed else "", over)
    except ConfigError as error:
        yield Paragraph(str(error), "warning")
        return Wanted()


def hits_at(scope: Scope, step: int, wanted: Wanted) -> Generator[Block, None, TextHits | None]:
    """The hits at one step; None after words on an expression that takes too long."""
    found = scope.view.of(text_hits, step, wanted.expression, None)
    yield from _told(scope, found, [step])
    return None if found.too_slow else found


def over_steps(scope: Scope, wanted: Wanted) -> Iterator[Block]:
    """The list of the sequences of many steps with a hit, newest step first. A click opens one at its hit."""
    try:
        search = _search(scope, wanted)
    except ConfigError as error:
        yield Paragraph(str(error), "warning")
        return
    if not search.read:
        yield Paragraph(f"not searched: {search.without_rows}" if search.without_rows else NO_STEPS, "info")
        return
    found, left = search.found, search.left
    yield from _told(scope, found, search.read, search.without_rows)
    if scope.only is not None:
        yield Paragraph("the filter is of one step; many steps are searched without it", "absent")
    if left:
        yield Action("search_on", f"search {count(len(left), 'earlier step')} too", partial(_go_on, scope.face, search))
    if scope.view.steps[-1] > search.read[0] and scope.view.is_growing:
        yield Action("search_again", "search newer steps too", partial(scope.face.forget, HELD))
    rows = found.rows.head(SHOWN)
    if found.matching > len(rows):
        yield Paragraph(f"The first {len(rows):,} of {count(found.matching, 'sequence')} are listed.", "muted")
    if len(rows):
        shown = [name for name in ("step", "sequence_id", "match", "hits", "replica", "reward") if known(rows, name)]
        yield Table(
            "Sequences with the text, newest step first",
            rows.select(shown),
            columns={"match": MATCH} | {name: Column(title_of(name)) for name in shown if title_of(name) != name},
            tallest=None if len(rows) < 20 else 720,
            picks="found_rows",
            leads=partial(opened, rows.select("step", "at", sequence="sequence_id")),
            cut=("sequence_id", "replica"),
        )


def _search(scope: Scope, wanted: Wanted) -> Search:
    """The search of the session, read on until it is done or has taken its time."""
    view, face = scope.view, scope.face
    search: Search | None = face.remembered(HELD, None)
    if search is None or search.of != (view.path, wanted):
        chosen = steps_of(wanted.over or "").recorded(view.steps)
        with_rows = set(view.run.rows_on_disk)
        left = tuple(step for step in reversed(chosen) if step in with_rows)
        bare = len(chosen) - len(left)
        search = Search(
            (view.path, wanted), left, f"no token rows of {count(bare, 'step')} are on record" if bare else ""
        )
    if not (search.is_at_work and search.left):
        return search
    began, of = time.monotonic(), len(search.read) + len(search.left)
    with face.working("searching texts, the newest step first") as tell:
        while search.is_at_work:  # kept after each step: a page that is drawn anew goes on with it
            search = _one_more(view.run, search, is_late=time.monotonic() - began > SECONDS)
            _keep(face, search)
            tell(len(search.read), of)
    return search


def _one_more(run: Run, search: Search, *, is_late: bool) -> Search:
    step, *left = search.left
    found = search.found + text_hits(run, step, search.of[1].expression, SHOWN - len(search.found.rows))
    return replace(
        search,
        left=tuple(left),
        read=(*search.read, step),
        found=found,
        is_at_work=bool(left) and not (is_late or found.too_slow),
    )


def _go_on(face: Face, search: Search) -> None:
    _keep(face, replace(search, is_at_work=True))


def _keep(face: Face, search: Search) -> None:
    face.forget(HELD)
    face.remembered(HELD, search)


def _told(scope: Scope, found: TextHits, read: Sequence[int], without_rows: str = "") -> Iterator[Block]:
    """The hits, the steps that were read, and texts that could not be searched."""
    if found.too_slow:
        yield Paragraph(found.too_slow, "warning")
        if not found.sequences:
            return
    there = f"{count(found.hits, 'hit')} in {found.matching:,} of {count(found.searched, 'sequence')} searched"
    yield Paragraph(f"{there}, {steps_words(read, scope.view.steps)}", "muted")
    sides = (("prompt", found.prompts, "prompt_texts="), ("response", found.responses, "token_texts="))
    lacking = [
        f"of the {side} for {found.sequences - having:,} of {count(found.sequences, 'sequence')} ({argument})"
        for side, having, argument in sides
        if having < found.sequences
    ]
    own = scope.view.of(_rows_left_out)
    left_out = sum(own.get(step, 0) for step in read)
    lost = [f"no text on record {' and '.join(lacking)}"] if lacking else []
    lost += [without_rows] if without_rows else []
    lost += [f"a budget kept {count(left_out, 'row')} of these steps off the record"] if left_out else []
    if lost:
        yield Paragraph(f"not searched: {'; '.join(lost)}", "absent")


def _rows_left_out(run: Run) -> dict[int, int]:
    """step -> the token rows that a budget left out."""
    on_disk = run.rows_on_disk
    return {step: rows - on_disk.get(step, 0) for step, rows in run.rows_left_out.items()}
