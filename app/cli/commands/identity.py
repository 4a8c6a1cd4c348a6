"""`ratioscope identity RUN --tokenizer DIR`: does rendering the conversations give the ids that were trained?"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError

from ...blocks import Block, Facts, Paragraph, text_table
from ..blocks_printed import print_blocks
from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..terminal import counting, print_json
from .arguments import AsJson, OnlySteps, OwnRun, opened, steps_of
from .rescore import EveryOption

if TYPE_CHECKING:
    from ...referee.identity import Examined

TokenizerOption = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="The folder of the run's tokenizer; nothing is downloaded, and no code of it runs."
    ),
]
NumberOption = Annotated[int, typer.Option(min=1, help="Sequences to read, drawn by chance.")]
NoTextOption = Annotated[bool, typer.Option("--no-text", help="Show ids without their texts.")]
FailOption = Annotated[
    str | None,
    typer.Option(metavar="realigned|forked", help="Exit 1 if a turn is so, or worse; 4 if no turn could be compared."),
]
MOST_IDS = 8
"""Ids of the table at most."""


def identity(
    run: OwnRun,
    tokenizer: TokenizerOption,
    steps: OnlySteps = None,
    sequences: NumberOption = 256,
    everything: EveryOption = False,
    no_text: NoTextOption = False,
    fail_on: FailOption = None,
    as_json: AsJson = False,
) -> int:
    """Render the recorded conversations with the run's own chat template, and say which turns were trained on other ids.

    A turn is clean, realigned (its answer differs) or forked (ids before its answer differ). The result is written into the run.
    """
    from ...referee.choice import Wanted
    from ...referee.identity import examined, record

    if fail_on not in (None, "realigned", "forked"):
        raise ConfigError(f"--fail-on {fail_on}: wanted realigned or forked; try: --fail-on forked")
    opened_run = opened(run)
    with counting(f"rendering {opened_run.name}") as progress:
        found = examined(opened_run, tokenizer, Wanted(steps_of(steps), sequences, everything, 0.0), progress)
    if found.identity.turns:
        record(opened_run, found.identity)
    if as_json:
        print_json(_plain(found, text=not no_text))
    else:
        print_blocks(_blocks(found, text=not no_text))
    if fail_on is None:
        return OK
    own = found.identity
    return (FINDINGS if own.forked or (fail_on == "realigned" and own.realigned) else OK) if own.turns else UNMEASURED


def _plain(found: "Examined", *, text: bool) -> dict[str, Any]:
    from ratioscope.ingest.analysis.conversation_identity import plain_identity

    from ...presentation.identity_words import answer_words

    ids = [
        {"id": id, "lost": lost, "gained": gained} | ({"text": found.texts[id]} if text else {})
        for id, (lost, gained) in _most(found.ids)
    ]
    own = plain_identity(found.identity)
    return {"answer": answer_words(found.identity), **own, "ids": ids, "examples": [*found.examples]}


def _blocks(found: "Examined", *, text: bool) -> Iterator[Block]:
    """The answer, the ids that vanish or are added most, the first differences, and the sequences that were not compared."""
    from ...presentation.identity_words import NAME, answer_words, identity_words

    own = found.identity
    if not own.turns:
        reasons = "; ".join(f"of {number} sequences, {reason}" for reason, number in own.left_out.items())
        yield Paragraph(f"not available, because {reasons or 'no chosen step has token rows'}", "absent")
        return
    head = answer_words(own)
    yield Paragraph(head, "lead")
    yield Facts([(NAME, identity_words(own).removeprefix(head).strip())] if own.differing else [])
    shown: Callable[[int], str] = (lambda id: f"{id} {found.texts[id]!r}") if text else str
    if found.ids:
        rows = [[shown(id), str(lost), str(gained)] for id, (lost, gained) in _most(found.ids)[:MOST_IDS]]
        yield text_table("ids", ("id", "vanishes", "is added"), rows)
    if found.examples:
        titles = ("step", "sequence", "turn", "class", "place", "trained", "rendered")
        yield text_table("differences", titles, [_example(each, shown) for each in found.examples])
    yield from (
        Paragraph(f"not compared: {number} sequences, because {why}", "muted") for why, number in own.left_out.items()
    )


def _example(one: Mapping[str, Any], shown: Callable[[int], str]) -> list[str]:
    place = "earlier turn" if one["place"] is None else str(one["place"])
    own = [str(one["step"]), str(one["sequence_id"]), str(one["turn"]), str(one["class"]), place]
    return [*own, *(" ".join(map(shown, one[side])) for side in ("lost", "gained"))]


def _most(ids: Mapping[int, tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    """The ids, the most frequent first."""
    return sorted(ids.items(), key=lambda each: (-sum(each[1]), each[0]))
