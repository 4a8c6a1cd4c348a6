"""The buttons of the list of runs: compare, pin, tag or archive the ticked runs, and find those of a tag."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from ratioscope.ingest.analysis.acknowledgements import ARCHIVED, LONGEST

from ..blocks import Action, Actions, Block, Link, Paragraph
from ..presentation.digits import count
from ..presentation.run_names import shortened
from .face import Text
from .folder import MOST_OTHERS, ListedRun
from .pinning import pin_action, said_of_pin, say
from .scope import Scope

OF_TAG = "tag:"
"""Begins a word of the search that is a whole tag."""
MOST_TAGS = 8
"""Tags that have a button. Convention."""


def tag_filters(entries: Sequence[ListedRun]) -> Iterator[Block]:
    """A button for each tag, which finds the runs that have it."""
    counted = Counter(chain.from_iterable(each.tags for each in entries))
    del counted[ARCHIVED]
    finds = {f"finds_{tag}": (f"{tag} {number}", OF_TAG + tag) for tag, number in counted.most_common(MOST_TAGS)}
    buttons = (
        Action(key, words, Link("", {"find": find}), is_plain=True, redraws_page=True)
        for key, (words, find) in (finds | {"every_tag": ("all", "")}).items()
    )
    if finds:
        yield Actions("tags", tuple(buttons), "tags")


def of_ticked(scope: Scope, ticked: Sequence[str], tags: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    """The buttons for the ticked runs. Their row stands above the list at all times, so that no row moves at a tick.

    tags: those of each run.
    """
    face, most = scope.face, 1 + MOST_OTHERS
    with face.row("ticked", labelled=False):
        if not ticked:
            yield Action("overlay", "compare", Link(""), is_off=True)
            yield Paragraph("Tick runs to compare, pin, tag or archive them.", "muted")
            return
        first, *others = ticked[:most]
        words = f"compare {1 + len(others)} runs" if others else "show its metrics"
        left = len(ticked) - most
        more = f"; {count(left)} more are ticked, and at most {most} are compared" if left > 0 else ""
        names = f"{', '.join(map(shortened, ticked[:most]))}{more}"
        opens = Link("charts", {"run": first} | ({"with": others} if others else {}))
        yield Action("overlay", f"{words} of {len(ticked)}" if more else words, opens, names)
        if not others and (pin := pin_action(scope, first)):
            yield pin
        yield from _tagging(scope, ticked, tags)
    yield from said_of_pin(face)


def _tagging(scope: Scope, ticked: Sequence[str], tags: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    if scope.runs.tag is None:
        return
    field = Text("tag", "tag", placeholder="tag", width=120, has_title=False, most=LONGEST, in_url=False)
    scope.face.ask(field)
    yield Action("tag_on", "add tag", lambda: _tag(scope, ticked, scope.face.known(field), holds=True), is_plain=True)
    known = [{*tags.get(name, ())} for name in ticked]
    is_out = all(ARCHIVED in own for own in known)
    about = "An archived run is left out of this list. Its links stay as they are."
    archive = partial(_tag, scope, ticked, ARCHIVED, holds=not is_out)
    yield Action("archive", "take out of the archive" if is_out else "archive", archive, about, is_plain=True)
    for tag in sorted({*chain.from_iterable(known)} - {ARCHIVED})[:MOST_TAGS]:
        off = partial(_tag, scope, ticked, tag, holds=False)
        yield Action(f"off_{tag}", f"× {tag}", off, "Takes the tag off the ticked runs.", is_plain=True)


def _tag(scope: Scope, names: Sequence[str], tag: str, *, holds: bool) -> None:
    if scope.runs.tag is not None:
        say(scope.face, scope.runs.tag(names, tag, holds))
