"""The pages Sequences and Health: the worst sequences with their tokens, and what was recorded of the run."""

from ..presentation.digits import count
from ..report import texts
from ..report.drawings import tokens_html, tokens_legend
from .blocks import Block, Code, Drawer, Facts, Heading, Markup, Paragraph, Table, TintedSequence
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
        Markup(legend, legend),
        *(_sequence(run, place) for place in range(len(data.worst))),
    )


def _sequence(run: Material, place: int) -> TintedSequence:
    item = run.data.worst[place]
    cut = item.length > len(item.tokens)
    more = f"the first {count(len(item.tokens))} of {count(item.length, 'token')}" if cut else ""
    tokens = tokens_html(item.tokens, run.gap)
    return TintedSequence(f"{place + 1}. {item.sequence_id}", texts.sequence_facts(item), item.prompt, tokens, more)


def health(run: Material) -> tuple[Block, ...]:
    """Dropped, lost and damaged data, what was not recorded, and how to make the pages again."""
    data = run.data
    blocks: list[Block] = [Facts(texts.quality_facts(data.quality))]
    if data.quality.quarantined:
        rows = [(item.path, item.reason) for item in data.quality.quarantined]
        blocks += [Heading("Set aside while reading"), Table("set aside", ("file", "reason"), rows)]
    if data.quality.unrecorded:
        missing = [(item.view, f"not available, {item.reason}") for item in data.quality.unrecorded]
        blocks += [Heading("Not recorded"), Facts(missing)]
    if data.verdict.checked:
        blocks += [Heading("Checks"), Paragraph(data.verdict.checked)]
    if len(data.events):
        blocks += [Heading("Events"), _events(run)]
    blocks += [Heading("Run"), Facts(_run_facts(run))]
    if data.reproduction.config:
        blocks.append(Drawer("configuration of the run", (Code(texts.config_lines(data.reproduction)),)))
    return tuple(blocks)


EVENTS = 100
"""Most events of the table."""


def _events(run: Material) -> Table:
    frame = run.data.events.head(EVENTS)
    rows = [(str(row["step"]), str(row["event"]), str(row["note"] or "")) for row in frame.iter_rows(named=True)]
    cut = f", the first {EVENTS} of {count(len(run.data.events))}" if len(run.data.events) > EVENTS else ""
    return Table(f"events{cut}", ("step", "event", "note"), rows)


def _run_facts(run: Material) -> list[tuple[str, str]]:
    """Trainer, versions and digest; the command of a report is none of this."""
    return [
        (name, text) for name, text in texts.reproduction_facts(run.data.reproduction) if not name.startswith("command")
    ]
