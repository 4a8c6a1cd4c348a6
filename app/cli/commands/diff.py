"""`ratioscope diff A B`: whether a change helped: the difference with its error, where it begins, settings, both diagnoses."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import SourceError

from ...blocks import Block, Facts, Heading, Paragraph, Table
from ..blocks_printed import print_blocks
from ..terminal import print_json, say, working
from .arguments import AsJson, opened

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...presentation.difference import Difference

MOST_SETTINGS = 25
"""Most settings in the terminal; --json holds all."""
RunAArgument = Annotated[Path, typer.Argument(metavar="A", help="The run folder before the change.")]
RunBArgument = Annotated[Path, typer.Argument(metavar="B", help="The run folder after the change.")]
PairByOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Pair by prompt_text, group_id or sequence_id; else by the first that both have."
    ),
]


def diff(
    a: RunAArgument,
    b: RunBArgument,
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="mismatch|total|drift|A:B", help="The gap to compare; A:B are any two policies or readings."
        ),
    ] = None,
    pair_by: PairByOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare run B with run A: did the fix help?

    The first line answers. If both runs have prompts in common, these are compared pair by pair, which removes the variation
    between prompts. Errors do not include the variation between seeds.
    """
    from ...presentation.difference import common_gap, difference, headline

    runs = opened(a), opened(b)
    with working(f"comparing {runs[0].name} and {runs[1].name}"):
        compared = difference(*runs, common_gap(*runs, gap), pair_by)
        answers = [answer_of(run) for run in runs]
    if as_json:
        print_json(plain_compared(compared, [plain for plain, _ in answers]))
    else:
        say(headline(compared), {-1: "healthy", 0: "bold", 1: "act"}[compared.direction])
        say()
        print_blocks(_blocks(compared, [words for _, words in answers]))


def answer_of(run: "Run") -> tuple[dict[str, str], str]:
    """The name, severity and answer of the diagnosis of a run, and its first words."""
    from ratioscope.ingest.analysis.diagnosis import diagnosis_of
    from ratioscope.ingest.analysis.grades import verdict_of
    from ratioscope.metrics.diagnosis.judged import judged

    from ...presentation.answer import words_of

    verdict, result = verdict_of(run), None
    try:
        result = diagnosis_of(run)
        verdict, answer = judged(verdict, result.diagnosis), result.diagnosis.answer
        words = words_of(verdict, result).sentence
    except SourceError as error:
        answer = f"No diagnosis: {error}."
        words = f"{words_of(verdict, None).sentence} {answer}"
    return {"name": run.name, "path": run.place, "severity": verdict.word, "answer": answer}, f"{run.name}: {words}"


def _blocks(compared: "Difference", answers: Sequence[str]) -> Iterator[Block]:
    from ...presentation.difference import pairs_in_words, parting_in_words

    yield from (Paragraph(words, head=f"{letter}:") for letter, words in zip("AB", answers, strict=True))
    yield Paragraph("")
    yield Paragraph(pairs_in_words(compared))
    yield Paragraph(parting_in_words(compared))
    yield Paragraph("")
    table = compared.table
    yield Table("the metrics of both", table if compared.logged else table.rename({"metric": compared.gap}))
    if compared.logged and (more := len(compared.metrics) - len(table)):
        yield Paragraph(f"and {more} more: --json")
    yield Heading(compared.settings.title)
    yield Facts(compared.settings.lines(MOST_SETTINGS))
    if (more := len(compared.settings.table) - MOST_SETTINGS) > 0:
        yield Paragraph(f"and {more} more: --json")


def plain_compared(compared: "Difference", answers: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The comparison for JSON. answers: those of both runs."""
    from ...presentation.difference import plain_difference

    plain = plain_difference(compared)
    first = {name: plain.pop(name) for name in ("sentence", "direction", "gap")}
    return {**first, "a": answers[0], "b": answers[1], **plain}
