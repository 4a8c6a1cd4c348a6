"""`ratioscope explain NAME`: a metric's meaning and reading, or the meaning of a trainer's number or of a term."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from ...blocks import Block, Facts, Heading, Paragraph
from ...presentation.labelled_texts import LabelledTexts
from ..blocks_printed import print_blocks
from ..terminal import print_json, say
from .arguments import AsJson


def explain(
    metric: Annotated[
        str | None,
        typer.Argument(
            metavar="METRIC",
            help="A metric, e.g. kl_k3 or mismatch/kl_k3, a family, a signal of an alert, a term such as TIS, or a "
            "trainer's own name for a number, e.g. train/ppo_kl or kl@trl; else all are listed.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a metric's card: formula, estimator, unit, direction, bands, and its name in every trainer.

    A prefix such as ess prints the card of every metric that begins with it. A signal of an alert, such as
    alignment, prints what it means, when it opens an alert and what to try. A name that a trainer logs, such as
    train/ppo_kl or kl@trl, prints what the trainer measures, of which policies and tokens, before or after truncation,
    and the metric of ours that it equals or comes near. A term of the field, such as TIS,
    is explained too. Without a name it lists all names.
    """
    if metric is None:
        _list(as_json=as_json)
        return
    from ratioscope.metrics.explanation import entries

    found = entries(metric)
    if as_json:
        plain = [{"name": name, "card": [{"heading": h, "text": t} for h, t in shown]} for name, shown in found]
        print_json(plain[0] if len(plain) == 1 else {"name": metric, "family": plain})
        return
    print_blocks(_under_headings(found))


def _under_headings(entries: Iterable[tuple[str, LabelledTexts]]) -> Iterator[Block]:
    for place, (name, shown) in enumerate(entries):
        yield Heading(name) if place else Paragraph(name, "lead")
        yield Facts(shown)


def _list(*, as_json: bool) -> None:
    """Prints the names of all metrics by topic, and of all signals."""
    from ratioscope.metrics.definitions.registry import METRICS
    from ratioscope.metrics.grading.signals import SIGNALS

    topics: dict[str, list[tuple[str, str]]] = {}
    for metric in METRICS:
        topics.setdefault(metric.topic, []).append((metric.name, metric.meaning.split(". ")[0].rstrip(".")))
    topics["signals of alerts"] = [(signal.name, signal.title) for signal in SIGNALS]
    if as_json:
        print_json({topic: [{"name": name, "title": title} for name, title in own] for topic, own in topics.items()})
        return
    print_blocks(_under_headings(topics.items()))
    say()
    say("next: ratioscope explain NAME   its formula, unit, direction, and its name in every trainer", "dim")
