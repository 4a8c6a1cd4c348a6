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
    from ...presentation.differing_settings import DifferingSettings
    from ...presentation.logged_difference import LoggedComparison

MOST_SETTINGS = 25
"""Most settings in the terminal; --json holds all."""
MOST_NUMBERS = 15
"""Most numbers of two logs there."""
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
    runs = opened(a), opened(b)
    with working(f"comparing {runs[0].name} and {runs[1].name}"):
        compared = comparison_of(*runs, gap, pair_by)
        answers = [answer_of(run) for run in runs]
    if as_json:
        print_json(plain_compared(compared, [plain for plain, _ in answers]))
    else:
        say(sentences_of(compared)[0], {-1: "healthy", 0: "bold", 1: "act"}[compared.direction])
        say()
        print_blocks(_blocks(compared, [words for _, words in answers]))


def comparison_of(a: "Run", b: "Run", gap: str | None, pair_by: str | None = None) -> "Difference | LoggedComparison":
    """The comparison of run B with run A: by tokens, or by the numbers of each step if one of them has no tokens."""
    from ...presentation.difference import common_gap, difference
    from ...presentation.logged_difference import logged_comparison

    if a.no_tokens or b.no_tokens:
        return logged_comparison(a, b, gap, pair_by)
    return difference(a, b, common_gap(a, b, gap), pair_by)


def sentences_of(compared: "Difference | LoggedComparison") -> tuple[str, ...]:
    """The headline of a comparison, then what it rests on."""
    from ...presentation.difference import Difference, headline, pairs_in_words, parting_in_words
    from ...presentation.logged_difference import errors_in_words, logged_headline

    if isinstance(compared, Difference):
        return headline(compared), pairs_in_words(compared), parting_in_words(compared)
    return logged_headline(compared), errors_in_words(compared)


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


def _blocks(compared: "Difference | LoggedComparison", answers: Sequence[str]) -> Iterator[Block]:
    yield from (Paragraph(words, head=f"{letter}:") for letter, words in zip("AB", answers, strict=True))
    yield Paragraph("")
    yield from map(Paragraph, sentences_of(compared)[1:])
    yield Paragraph("")
    yield from _numbers(compared)
    yield from _settings(compared.settings)


def _numbers(compared: "Difference | LoggedComparison") -> Iterator[Block]:
    from ...presentation.comparison_words import table_of
    from ...presentation.difference import Difference
    from ...presentation.logged_difference import logged_table
    from ...presentation.metric_places import names_at

    if isinstance(compared, Difference):
        cards = set(names_at("card", compared.gap))
        table = table_of([one for one in compared.metrics if one.metric in cards])
        yield Table("the metrics of both", table.rename({"metric": compared.gap}))
        return
    yield Table("the numbers of both", logged_table(compared, MOST_NUMBERS))
    if (more := len(compared.numbers) - MOST_NUMBERS) > 0:
        yield Paragraph(f"and {more} more: --json")


def _settings(settings: "DifferingSettings") -> Iterator[Block]:
    yield Heading(settings.title)
    yield Facts(settings.lines(MOST_SETTINGS))
    if (more := len(settings.table) - MOST_SETTINGS) > 0:
        yield Paragraph(f"and {more} more: --json")


def plain_compared(compared: "Difference | LoggedComparison", answers: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The comparison for JSON. answers: those of both runs."""
    from ...presentation.difference import Difference, plain_difference
    from ...presentation.logged_difference import plain_logged

    plain = plain_difference(compared) if isinstance(compared, Difference) else plain_logged(compared)
    first = {name: plain.pop(name) for name in ("sentence", "direction", "gap")}
    return {**first, "a": answers[0], "b": answers[1], **plain}
