"""The page Sequences: the worst sequences with their tokens."""

from ..blocks import Block, Markup, Paragraph, TintedSequence
from ..presentation.digits import count
from ..report import texts
from ..report.drawings import tokens_html, tokens_legend
from .material import Material


def sequences(run: Material) -> tuple[Block, ...]:
    """The worst sequences of the run with their tinted tokens."""
    data = run.data
    if not data.worst:
        return (Paragraph(f"not available, because no token rows of {run.gap} are on record", "absent"),)
    left_out = "" if data.text else " Texts were left out (--no-text)."
    said = f"The order is that of the largest |x| of {run.gap} among the recorded token rows.{left_out}"
    legend = tokens_legend(run.gap)
    return (
        Paragraph(said, "muted"),
        Markup(lambda theme: legend),
        *(_sequence(run, place) for place in range(len(data.worst))),
    )


def _sequence(run: Material, place: int) -> TintedSequence:
    item = run.data.worst[place]
    cut = item.length > len(item.tokens)
    more = f"the first {count(len(item.tokens))} of {count(item.length, 'token')}" if cut else ""
    tokens = tokens_html(item.tokens, run.gap)
    return TintedSequence(f"{place + 1}. {item.sequence_id}", texts.sequence_facts(item), item.prompt, tokens, more)
