"""`ratioscope explain METRIC`: a metric's meaning, its reading, and its names in trainers."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ...blocks import Block, Facts, Heading, Paragraph
from ...presentation.labelled_texts import LabelledTexts
from ..blocks_printed import print_blocks
from ..terminal import print_json, say
from .arguments import AsJson

if TYPE_CHECKING:
    from ratioscope.metrics.grading.signals import Signal


def explain(
    metric: Annotated[
        str | None,
        typer.Argument(
            metavar="METRIC",
            help="A metric, e.g. kl_k3 or mismatch/kl_k3, a family, a signal of an alert, or a trainer's own name for a "
            "number; else all are listed.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a metric's card: formula, estimator, unit, direction, bands, and its name in every trainer.

    A prefix such as ess prints the card of every metric that begins with it. A signal of an alert, such as
    alignment, prints what it means, when it opens an alert and what to try. A name that a trainer logs, such as
    train/ppo_kl, prints what the trainer measures. Without a name it lists all names.
    """
    if metric is None:
        _list(as_json=as_json)
        return
    entries = _entries(metric)
    if as_json:
        plain = [{"name": name, "card": [{"heading": h, "text": t} for h, t in shown]} for name, shown in entries]
        print_json(plain[0] if len(plain) == 1 else {"name": metric, "family": plain})
        return
    print_blocks(_under_headings(entries))


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


def _entries(name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """(name, card) of the metric of this name, else of the signal, else of the trainers' number, else of each of a family."""
    from ratioscope.ingest.importers.scalars.agreement import ANY, OWN, facts_of, named_by_trainers
    from ratioscope.metrics.card import cards, lines
    from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
    from ratioscope.metrics.grading.signals import SIGNALS

    name = name.removeprefix(f"{OWN}/")
    if name not in BY_NAME:
        for signal in SIGNALS:
            if signal.name == name:
                return [(name, _signal(signal))]
        theirs = named_by_trainers(name)
        if theirs and not any(metric.name.startswith(f"{name}_") for metric in METRICS):
            return [(own, facts_of(trainer, own)) for trainer, own in theirs]
    ours = [(entry.metric.name, [(h, text) for h, text in lines(entry) if text]) for entry in cards(name)]
    exact = [] if name in BY_NAME else [each for each in named_by_trainers(name) if each[1] == name]
    return ours + [(own, facts_of(trainer, own)) for trainer, own in exact if trainer != ANY]


def _signal(signal: "Signal") -> list[tuple[str, str]]:
    act = "" if signal.act is None else f", act from {signal.act:g} on"
    lasting = ", on two adjacent steps" if signal.lasting else ""
    return [
        ("signal", signal.title),
        ("meaning", signal.meaning),
        ("what to try", signal.remedy),
        ("rings", f"watch from {signal.watch:g} on{act}{lasting}"),
        ("gaps", ", ".join(signal.gaps)),
        ("metric", signal.reads),
        ("source", signal.source),
    ]
