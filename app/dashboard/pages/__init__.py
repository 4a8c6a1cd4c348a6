"""The pages of the dashboard: one file each, whose `render` draws a run and a gap. A new page is a file and a line here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..model.scope import Scope
from ..model.view import View, Wanted
from . import health, overview, staleness
from .alerts import page as alerts
from .compare import page as compare
from .corrections import page as corrections
from .distributions import page as distributions
from .metrics import page as metrics
from .runs import page as runs
from .sequences import page as sequences
from .tokens import page as tokens
from .where import page as where

Choice = Literal["gap", "steps", "only", "others"]


@dataclass(frozen=True)
class Page:
    """path: the page's part of the URL. help: what the navigation says. choices: what of a Scope it heeds beside the run."""

    path: str
    title: str
    help: str
    render: Callable[[Scope], None]
    choices: frozenset[Choice] = frozenset({"gap"})
    about: Literal["run", "runs"] = "run"
    """runs: all that are served; the page is drawn although the run of its Scope may be unreadable or hold nothing yet."""
    ahead: Callable[[View], Iterable[Wanted]] = lambda _: ()
    """What its first visit would wait for, made while a reader looks at another page of the run."""


PAGES = (
    Page(
        "overview",
        "Overview",
        "The verdict, severity per step, and the headline metrics over the steps.",
        overview.render,
        frozenset({"gap", "steps", "only"}),
    ),
    Page(
        "metrics",
        "Metrics",
        "Every metric over the steps, of one run or of several laid over each other.",
        metrics.render,
        frozenset({"gap", "steps", "only", "others"}),
        ahead=metrics.ahead,
    ),
    Page(
        "distributions",
        "Distributions",
        "Log-ratios and weights, and what a cap would do to them.",
        distributions.render,
        frozenset({"gap", "steps", "only"}),
        ahead=distributions.ahead,
    ),
    Page(
        "where",
        "Where",
        "Where in the data the gap sits: by position, probability, replica, token, ...",
        where.render,
        frozenset({"gap", "steps", "only"}),
    ),
    Page(
        "staleness",
        "Staleness",
        "How much of the gap comes from old weights, what the update adds, and whether both sides compute the same.",
        staleness.render,
        frozenset({"gap", "steps"}),
    ),
    Page(
        "sequences",
        "Sequences",
        "The sequences of one step, worst first.",
        sequences.render,
        frozenset({"gap", "only"}),
    ),
    Page("tokens", "Tokens", "One sequence, token by token.", tokens.render),
    Page(
        "corrections",
        "Corrections",
        "What truncating, masking or rejecting weights would do, side by side, and how to set it.",
        corrections.render,
        frozenset({"gap", "steps"}),
        ahead=corrections.ahead,
    ),
    Page(
        "compare",
        "Compare",
        "Two runs, seeds or ranges of steps: what differs, by how much, and whether chance explains it.",
        compare.render,
    ),
    Page(
        "alerts",
        "Alerts",
        "When each signal was out of its bounds, and the rules by which it rings.",
        alerts.render,
        frozenset({"gap", "steps"}),
    ),
    Page("health", "Health", "Writers, drops, gaps and files that were set aside.", health.render, frozenset()),
    Page("runs", "Runs", "Every run below the folders that are served.", runs.render, frozenset(), about="runs"),
)
