"""Which side is off, for pages and the report: the answer of the run's referee in words and numbers, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ratioscope.record import gap_between

from ..presentation.digits import count
from ..presentation.gap_words import direction
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.sentence import capital, sentence
from ..presentation.step_words import steps_words
from .answer import RefereeAnswer, answer, words
from .choice import at_even_distances

if TYPE_CHECKING:
    from ratioscope.ingest.rows.readings import Reading
    from ratioscope.ingest.run import Run

REFEREE, AGAIN = "referee", "_again"
MOST_STEPS = 32
"""Most steps that are compared here. Convention; `ratioscope rescore` compares all."""
MOST_TOKENS = 2_000_000
"""Most recorded tokens that are read for it: about a second."""


@dataclass(frozen=True)
class SideOff:
    """The answer of a run's referee."""

    reading: str
    """The name of the reading."""
    answer: RefereeAnswer
    sentence: str
    """One sentence with a full stop."""
    facts: LabelledTexts
    """Label and text: the distance of each policy and of the policies from each other, and what was read."""


def side_off(run: "Run") -> SideOff | None:
    """None if no referee read the run. It reads token rows of some steps that were read; a run without readings costs nothing."""
    readings = run.readings
    name = referee_of(readings)
    if name is None:
        return None
    steps = compared_steps(run, name)
    result = answer(run, name, steps)
    return SideOff(name, result, sentence(capital(result.sentence)), _facts(run, readings[name], result, steps))


def referee_of(readings: "Mapping[str, Reading]") -> str | None:
    """The reading that judges: `referee`, else the first that a model made and that repeats no other reading."""
    models = (
        name
        for name, reading in readings.items()
        if not name.endswith(AGAIN) and any("model" in made for made in reading.made_of)
    )
    return REFEREE if REFEREE in readings else next(models, None)


def plain_side_off(side: SideOff) -> dict[str, Any]:
    """The answer as values that JSON can hold."""
    return {"off": side.answer.off, "sentence": side.sentence, "reading": side.reading, "facts": dict(side.facts)}


def compared_steps(run: "Run", reading: str) -> list[int]:
    """The steps, among those of a reading, whose rows are read to say which side is off."""
    read = [step for step in run.readings[reading].steps if step in run.row_digests()]
    size = run.size.tokens / max(1, len(run.steps))
    return at_even_distances(read, max(1, min(MOST_STEPS, int(MOST_TOKENS / max(size, 1.0)))))


def _facts(run: "Run", reading: "Reading", result: RefereeAnswer, steps: list[int]) -> LabelledTexts:
    rows = [(direction(gap_between(policy, reading.name)), words(own)) for policy, own in result.distances.items()]
    if result.between is not None:
        sides = [policy for policy in run.policies if policy in result.distances][:2]
        rows.append((direction(gap_between(sides[0], sides[1])), f"{words(result.between)}, at the same steps"))
    return (*rows, ("what was read", _read(run, reading, steps)))


def _read(run: "Run", reading: "Reading", steps: list[int]) -> str:
    size = f"{count(reading.sequences, 'sequence')} of {count(reading.tokens, 'token')}"
    compared = "" if len(steps) == len(reading.steps) else f", {count(len(steps))} of them compared here"
    drawn = ", and drawn, because the rows of the others are on a store" if compared and run.is_remote else ""
    lacking = [step for step in run.steps if step not in reading.steps]
    have = "has" if len(lacking) == 1 else "have"
    rest = f"; {steps_words(lacking, run.steps)} {have} no reading" if lacking else ""
    return f"{size} at {steps_words(reading.steps, run.steps)}{compared}{drawn}{_made_by(reading)}{rest}"


def _made_by(reading: "Reading") -> str:
    """The model that made the newest part of the reading, without its folder."""
    made = reading.made_of[0] if reading.made_of else {}
    name, dtype = PurePath(str(made.get("model") or "")).name, made.get("dtype")
    more = len(reading.made_of) - 1
    others = f" and {count(more, 'other model or setting')}" if more > 0 else ""
    return f", by {name}{f' in {dtype}' if dtype else ''}{others}" if name else ""
