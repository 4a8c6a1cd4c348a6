"""`ratioscope explain METRIC`: what a number is, how it is read, and what trainers call it."""

from typing import Annotated

import typer

from .arguments import AsJson


def explain(
    metric: Annotated[str, typer.Argument(metavar="METRIC", help="A metric, e.g. kl_k3 or mismatch/kl_k3.")],
    as_json: AsJson = False,
) -> None:
    """Print a metric's card: formula, estimator, unit, direction, bands, and its name in every trainer."""
    from ratioscope.metrics.card import card, lines

    from ..terminal import print_json, print_pairs, say

    entry = card(metric)
    shown = [(heading, text) for heading, text in lines(entry) if text]
    if as_json:
        print_json({"name": entry.metric.name, "card": [{"heading": h, "text": t} for h, t in shown]})
        return
    say(entry.metric.name, "bold")
    print_pairs(shown)
