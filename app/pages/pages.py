"""The pages in the order of the navigation. Every face takes them from here; a page that is added here is on all of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..blocks import Block, Section
from ..presentation.theme import ThemeName
from .alerts import alerts
from .alerts import printed as alerts_printed
from .compare import compare
from .corrections import ahead as corrections_ahead
from .corrections import corrections
from .diagnosis import diagnosis
from .diagnosis import printed as diagnosis_printed
from .distributions import ahead as distributions_ahead
from .distributions import distributions
from .distributions import printed as distributions_printed
from .health import health
from .health import printed as health_printed
from .metrics import ahead as metrics_ahead
from .metrics import metrics
from .metrics import printed as metrics_printed
from .overview import overview
from .overview import printed as overview_printed
from .runs import runs
from .scope import Scope
from .sequences import printed as sequences_printed
from .sequences import sequences
from .staleness import staleness
from .tokens import tokens
from .view import CacheRequest, View
from .where import printed as where_printed
from .where import where

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
        overview,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=overview_printed,
    ),
    Page(
        "diagnosis",
        "Diagnosis",
        "Why the policies are apart: likely causes with their proof and remedy, what is ruled out, and what stays open.",
        diagnosis,
        frozenset({"gap", "steps"}),
        printed=diagnosis_printed,
    ),
    Page(
        "metrics",
        "Metrics",
        "Every metric over the steps, for one run or for several runs in one chart.",
        metrics,
        frozenset({"gap", "readings", "steps", "only", "floor", "others"}),
        printed=metrics_printed,
        ahead=metrics_ahead,
    ),
    Page(
        "distributions",
        "Distributions",
        "The distributions of log-ratios and weights, and the effect of a cap on the weights.",
        distributions,
        frozenset({"gap", "readings", "steps", "only", "floor", "histograms"}),
        printed=distributions_printed,
        ahead=distributions_ahead,
        reads_tokens=True,
    ),
    Page(
        "where",
        "Where",
        "The parts of the data with the largest gap: positions, probabilities, replicas, tokens and more.",
        where,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=where_printed,
        reads_tokens=True,
    ),
    Page(
        "staleness",
        "Staleness",
        "The part of the gap that comes from old weights, the update's part, and the settings of engine and trainer.",
        staleness,
        frozenset({"gap", "readings", "steps", "floor"}),
        reads_tokens=True,
    ),
    Page(
        "sequences",
        "Sequences",
        "The sequences of one step, the worst first.",
        sequences,
        frozenset({"gap", "readings", "only"}),
        printed=sequences_printed,
        reads_tokens=True,
    ),
    Page(
        "tokens",
        "Tokens",
        "One sequence, token by token.",
        tokens,
        frozenset({"gap", "readings", "only"}),
        reads_tokens=True,
    ),
    Page(
        "corrections",
        "Corrections",
        "The effect of truncating, masking or rejecting weights, and the configuration for your trainer.",
        corrections,
        frozenset({"gap", "readings", "steps"}),
        ahead=corrections_ahead,
        reads_tokens=True,
    ),
    Page(
        "compare",
        "Compare",
        "Two runs, groups of seeds or ranges of steps: what differs, by how much, and whether chance explains it.",
        compare,
        frozenset({"gap", "readings"}),
        about="beside",
    ),
    Page(
        "alerts",
        "Alerts",
        "When each signal was out of bounds, and the rules that open an alert.",
        alerts,
        frozenset({"gap", "steps"}),
        printed=alerts_printed,
    ),
    Page(
        "health",
        "Health",
        "Dropped, lost, damaged and missing data, and the state of each writer.",
        health,
        frozenset(),
        printed=health_printed,
        shows_empty=True,
    ),
    Page(
        "runs",
        "Runs",
        "Every run in the folders that this dashboard serves.",
        runs,
        frozenset(),
        about="runs",
    ),  # fmt: skip
)
