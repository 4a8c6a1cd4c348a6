"""The worst sequences of a run with their tinted tokens, for a face on which no step is chosen.

The worst few of them in a line each, for the first page.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse
from ratioscope.ingest.run import Run
from ratioscope.record import sides

from ..blocks import Block, Link, Markup, Paragraph, TintedSequence
from ..figures.html.sample_lines import empty_lines, sample_lines
from ..figures.html.tinted_text import token_text
from ..presentation.digits import count
from ..presentation.metric_places import sequence_measures_at
from ..presentation.theme import Theme
from ..presentation.without_texts import has_texts
from .scope import Scope
from .sequence_text import turn_heads
from .view import asked_gap, metrics_of
from .worst import WORST, WorstSequence, facts_in_words, sequence_facts, text_of, worst_sequences, worst_tokens

WORST_TOKENS = 5
SAMPLES = 5
BEFORE, AFTER = 8, 40
"""Tokens of a sample that are kept around its worst one: as many as a line has room for."""
IN_LINE = (sequence_measures_at("report")[0], "replica", "lag", "reward")


def worst_of_run(scope: Scope) -> Iterator[Block]:
    """The sequences with the largest |x|, the worst first."""
    view, gap = scope.view, scope.gap
    yield from worst_listed(scope, "" if view.of(has_texts) else "Texts were left out (--no-text).")
    legend = token_text(pl.DataFrame(), gap, styled=False)
    for place, item in enumerate(view.of(worst_of, gap), 1):
        if place == 1:
            yield Markup(lambda theme: legend)
        cut = item.length > len(item.tokens)  # the part around the worst token is there, which the facts tell
        more = f"{count(len(item.tokens))} of {count(item.length, 'token')} are shown" if cut else ""
        yield TintedSequence(
            f"{place}. {item.sequence_id}",
            sequence_facts(item),
            item.prompt,
            token_text(
                item.tokens, gap, legend=False, styled=False, heads=None if cut else turn_heads(item.tokens, gap)
            ),
            more,
            text_of(item),
            worst_tokens(item, gap, WORST_TOKENS),
        )


def worst_listed(scope: Scope, more: str) -> Iterator[Block]:
    """The order of the sequences below, or the reason why there are none. more: a sentence."""
    gap = scope.gap
    if scope.view.of(worst_of, gap):
        said = f"The order is that of the largest |x| of {gap} among the recorded token rows. {more}"
        yield Paragraph(said.strip(), "muted")
    else:
        yield Paragraph(f"not available, because {scope.view.of(why_none, gap)}", "absent")


def worst_of(run: Run, gap: str, most: int = WORST) -> tuple[WorstSequence, ...]:
    """The worst sequences of a run on a gap."""
    steps = without_coarse(metrics_of(run, ("step",), None, *asked_gap(gap)), too_coarse(run))
    return worst_sequences(run, steps, gap, text=has_texts(run), most=most)


def why_none(run: Run, gap: str) -> str:
    """The reason why the run has no worst sequence on the gap."""
    if run.steps_with_rows and gap in (*run.gaps, *run.reading_gaps):
        return f"the two sides of {gap} are equal at every token row on record"
    return f"no token rows of {gap} are on record"


def samples_of(run: Run, gap: str) -> tuple[WorstSequence, ...]:
    """The worst few of them, each with the tokens around its worst one."""
    return tuple(
        replace(item, tokens=item.tokens.filter(pl.col("position").is_between(item.worst - BEFORE, item.worst + AFTER)))
        for item in worst_of(run, gap, SAMPLES)
    )


def samples_in_lines(samples: tuple[WorstSequence, ...], gap: str, older: str, none: str = "") -> Iterator[Block]:
    """A line for each sample, which a click opens at its worst token.

    older: the step up to which rows were read, in words. none: the reason why there is none.
    """
    if not samples:
        yield Paragraph(f"Worst samples: not available, because {none}", "absent")
        return
    earlier, later = sides(gap)
    said = f"Orange: {later} finds the token less likely than {earlier}; blue: more likely. Click one to read it."
    yield Paragraph(
        f"by the largest |log-ratio| of a token{f', {older}' if older else ''}. {said}", "muted", "Worst samples,"
    )
    yield Markup(partial(_lines, samples, gap), leads=partial(_of_line, samples))


def _lines(samples: tuple[WorstSequence, ...], gap: str, theme: Theme) -> str:
    facts = [f"step {item.step} · {facts_in_words(item, IN_LINE)}" for item in samples]
    return sample_lines([*zip(facts, (item.tokens for item in samples), strict=True)], gap, theme=theme)


def room_for_samples(words: str) -> Iterator[Block]:
    """The words, and empty lines, so that nothing below moves once the samples are there."""
    yield Paragraph(words, "muted")
    yield Markup(lambda theme: empty_lines(SAMPLES))


def _of_line(samples: tuple[WorstSequence, ...], line: int) -> Link:
    item = samples[line]
    choices = {"step": item.step, "sequence": item.sequence_id, "minibatch": item.minibatch, "at": item.worst}
    return Link("tokens", {name: value for name, value in choices.items() if value is not None})
