"""The identity of conversations in sentences, the same in the verb, the terminal's diagnosis, the report and on the Why page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .digits import count, percent
from .sentence import sentence

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.conversation_identity import Identity

NAME = "conversation identity"
MEANS = (
    "Both sides may share it, so that no gap shows it. It makes a gap only if the engine read the rendered ids while the others"
    " were trained; the record does not hold which ids the engine read."
)
_NAMED = 3


def identity_words(identity: "Identity") -> str:
    """The answer, how the ids differ, and what that means."""
    means = MEANS if identity.differing else ""
    return " ".join(filter(None, (answer_words(identity), *_differences(identity), means)))


def answer_words(identity: "Identity") -> str:
    """The share of turns in one sentence."""
    made = "rendering" if identity.is_rendered else "encoding their text"
    if not identity.turns:
        return "Not available, because no trained turn could be compared."
    turns = count(identity.turns, "turn")
    if not identity.differing:
        return f"All of {turns} are trained on the ids that {made} gives."
    kinds = (("realigned", identity.realigned), ("forked", identity.forked))
    parts = " and ".join(f"{number:,} {kind}" for kind, number in kinds if number)
    return f"{percent(identity.differing / identity.turns)} of {turns} are trained on ids that {made} does not give: {parts}."


def _differences(identity: "Identity") -> Iterator[str]:
    ways = sorted(identity.ways.items(), key=lambda each: -each[1])
    yield sentence("; ".join(f"{way} {count(times, 'time')}" for way, times in ways))
    for verb, place in (("vanish", 0), ("are added", 1)):
        most = sorted(((own[place], name) for name, own in identity.special.items() if own[place]), reverse=True)
        if most:
            named = ", ".join(f"{name} {count(times, 'time')}" for times, name in most[:_NAMED])
            yield f"Special tokens that {verb}: {named}."
