"""The pages of the dashboard: one file each, whose `render` draws a run and a gap. A new page is a file and a line here."""

from collections.abc import Callable
from dataclasses import dataclass

from ..view import View
from . import distributions, health, overview, sequences, tokens


@dataclass(frozen=True)
class Page:
    """path: the page's part of the URL. help: what the navigation says of it. by_gap: whether it shows one gap at a time."""

    path: str
    title: str
    help: str
    render: Callable[[View, str], None]
    by_gap: bool = True


PAGES = (
    Page(
        "overview",
        "Overview",
        "The verdict, severity per step, and the headline metrics over the steps.",
        overview.render,
    ),
    Page(
        "distributions",
        "Distributions",
        "Log-ratios and weights, and what a cap would do to them.",
        distributions.render,
    ),
    Page("sequences", "Sequences", "The sequences of one step, worst first.", sequences.render),
    Page("tokens", "Tokens", "One sequence, token by token.", tokens.render),
    Page("health", "Health", "Writers, drops, gaps and files that were set aside.", health.render, False),
)
