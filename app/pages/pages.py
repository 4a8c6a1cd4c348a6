"""The pages in the order of the navigation. Every face takes them from here; a page that is added here is on all of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..blocks import Block, Section
from ..presentation.theme import ThemeName
from . import (
    alerts,
    compare,
    corrections,
    diagnosis,
    distributions,
    health,
    metrics,
    overview,
    runs,
    sequences,
    staleness,
    tokens,
    where,
)
from .scope import Scope
from .view import CacheRequest, View

ScopeChoice = Literal["gap", "readings", "steps", "only", "floor", "others", "histograms"]
"""readings: the page takes gaps with a reading for a side. floor: its charts show a saved noise floor.
histograms: it shows histograms, which a filter takes from token rows."""


@dataclass(frozen=True)
class Page:
    """One page."""

    path: str
    """Its name in addresses and files."""
    title: str
    help: str
    """Tooltip in the navigation."""
    blocks: Callable[[Scope], Iterable[Block]]
    """The page of a scope."""
    choices: frozenset[ScopeChoice] = frozenset({"gap"})
    """Parts of a Scope that the page reads."""
    reads_tokens: bool = False
    """True if all that the page shows is read from tokens, of which a scalar log has none."""
    shows_empty: bool = False
    """True if the page has something to say of a run without a gap."""
    printed: Callable[[Scope], Iterable[Section]] = lambda scope: ()
    """The parts that the report prints."""
    ahead: Callable[[View, ThemeName], Iterable[CacheRequest]] = lambda view, theme: ()
    """Frames and figures that the first visit needs; a server makes them while another page of the run is open."""
    about: Literal["run", "beside", "runs"] = "run"
    """beside: a run and others of its folder. runs: the folder, also where no run is chosen. A file of one run has neither."""


PAGES = (
    Page(
        "overview",
        "Overview",
        "The verdict on the run, the severity of each step, and the headline metrics over the steps.",
        overview.overview,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=overview.printed,
    ),
    Page(
        "diagnosis",
        "Diagnosis",
        "Why the policies are apart: likely causes with their proof and remedy, what is ruled out, and what stays open.",
        diagnosis.diagnosis,
        frozenset({"gap", "steps"}),
        printed=diagnosis.printed,
    ),
    Page(
        "metrics",
        "Metrics",
        "Every metric over the steps, for one run or for several runs in one chart.",
        metrics.metrics,
        frozenset({"gap", "readings", "steps", "only", "floor", "others"}),
        printed=metrics.printed,
        ahead=metrics.ahead,
    ),
    Page(
        "distributions",
        "Distributions",
        "The distributions of log-ratios and weights, and the effect of a cap on the weights.",
        distributions.distributions,
        frozenset({"gap", "readings", "steps", "only", "floor", "histograms"}),
        printed=distributions.printed,
        ahead=distributions.ahead,
        reads_tokens=True,
    ),
    Page(
        "where",
        "Where",
        "The parts of the data with the largest gap: positions, probabilities, replicas, tokens and more.",
        where.where,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=where.printed,
        reads_tokens=True,
    ),
    Page(
        "staleness",
        "Staleness",
        "The part of the gap that comes from old weights, the update's part, and the settings of engine and trainer.",
        staleness.staleness,
        frozenset({"gap", "readings", "steps", "floor"}),
        reads_tokens=True,
    ),
    Page(
        "sequences",
        "Sequences",
        "The sequences of one step, the worst first.",
        sequences.sequences,
        frozenset({"gap", "readings", "only"}),
        printed=sequences.printed,
        reads_tokens=True,
    ),
    Page(
        "tokens",
        "Tokens",
        "One sequence, token by token.",
        tokens.tokens,
        frozenset({"gap", "readings", "only"}),
        reads_tokens=True,
    ),
    Page(
        "corrections",
        "Corrections",
        "The run's own correction among others, the configuration for your trainer, and the gap at other sync periods.",
        corrections.corrections,
        frozenset({"gap", "readings", "steps"}),
        ahead=corrections.ahead,
        reads_tokens=True,
    ),
    Page(
        "compare",
        "Compare",
        "Two runs, groups of seeds or ranges of steps: what differs, by how much, and whether chance explains it.",
        compare.compare,
        frozenset({"gap", "readings"}),
        about="beside",
    ),
    Page(
        "alerts",
        "Alerts",
        "When each signal was out of bounds, and the rules that open an alert.",
        alerts.alerts,
        frozenset({"gap", "steps"}),
        printed=alerts.printed,
    ),
    Page(
        "health",
        "Health",
        "Dropped, lost, damaged and missing data, and the state of each writer.",
        health.health,
        frozenset(),
        printed=health.printed,
        shows_empty=True,
    ),
    Page(
        "runs",
        "Runs",
        "Every run in the folders that this dashboard serves.",
        runs.runs,
        frozenset(),
        about="runs",
    ),  # fmt: skip
)
