"""The worst sequences of a run with their tinted tokens, for a face on which no step is chosen."""

from collections.abc import Iterator

import polars as pl

from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse
from ratioscope.ingest.run import Run

from ..blocks import Block, Markup, Paragraph, TintedSequence
from ..figures.html.tinted_text import token_text
from ..presentation.digits import count
from ..presentation.without_texts import has_texts
from .scope import Scope
from .turn_heads import turn_heads
from .view import asked_gap, metrics_of
from .worst import WorstSequence, sequence_facts, text_of, worst_sequences, worst_tokens

WORST_TOKENS = 5


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
        yield Paragraph(f"not available, because no token rows of {gap} are on record", "absent")


def worst_of(run: Run, gap: str) -> tuple[WorstSequence, ...]:
    """The worst sequences of a run on a gap."""
    steps = without_coarse(metrics_of(run, ("step",), None, *asked_gap(gap)), too_coarse(run))
    return worst_sequences(run, steps, gap, text=has_texts(run))
