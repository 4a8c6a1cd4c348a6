"""The pages of the dashboard: a file or a folder each, whose `render` draws what a Scope chooses. PAGES lists them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ...pages.alerts import alerts
from ...pages.diagnosis import diagnosis
from ...pages.distributions import ahead as distributions_ahead
from ...pages.distributions import distributions
from ...pages.health import health
from ...pages.metrics import ahead as metrics_ahead
from ...pages.metrics import metrics
from ...pages.overview import overview
from ...pages.scope import Scope
from ...pages.sequences import sequences
from ...pages.staleness import staleness
from ...pages.view import CacheRequest, View
from ...pages.where import where
from ..blocks_drawn import drawn
from ..panels.charts import last_appearance
from .compare import page as compare
from .corrections import page as corrections
from .runs import page as runs
from .tokens import page as tokens

ScopeChoice = Literal["gap", "readings", "steps", "only", "floor", "others", "histograms"]
"""readings: the page takes gaps with a reading for a side. floor: its charts show a saved noise floor.
histograms: it shows histograms, which a filter takes from token rows."""


@dataclass(frozen=True)
class Page:
    """One page."""

    path: str
    """Its part of the URL."""
    title: str
    help: str
    """Tooltip in the navigation."""
    render: Callable[[Scope], None]
    """Draws the page for a scope."""
    choices: frozenset[ScopeChoice] = frozenset({"gap"})
    """Parts of a Scope that the page reads."""
    about: Literal["run", "runs"] = "run"
    """runs: the page is about all served runs. It is drawn even if the chosen run is unreadable or empty."""
    reads_tokens: bool = False
    """True if all that the page shows is read from tokens, of which a scalar log has none."""
    shows_empty: bool = False
    """True if the page has something to say of a run without a gap."""
    prefetch: Callable[[View], Iterable[CacheRequest]] = lambda _: ()
    """Frames and figures that the first visit needs; the server makes them while another page of the run is open."""


PAGES = (
    Page(
        "overview",
        "Overview",
        "The verdict on the run, the severity of each step, and the headline metrics over the steps.",
        partial(drawn, overview),
        frozenset({"gap", "readings", "steps", "only", "floor"}),
    ),
    Page(
        "diagnosis",
        "Diagnosis",
        "Why the policies are apart: likely causes with their proof and remedy, what is ruled out, and what stays open.",
        partial(drawn, diagnosis),
        frozenset({"gap", "steps"}),
    ),
    Page(
        "metrics",
        "Metrics",
        "Every metric over the steps, for one run or for several runs in one chart.",
        partial(drawn, metrics),
        frozenset({"gap", "readings", "steps", "only", "floor", "others"}),
        prefetch=lambda view: metrics_ahead(view, last_appearance()),
    ),
    Page(
        "distributions",
        "Distributions",
        "The distributions of log-ratios and weights, and the effect of a cap on the weights.",
        partial(drawn, distributions),
        frozenset({"gap", "readings", "steps", "only", "floor", "histograms"}),
        prefetch=lambda view: distributions_ahead(view, last_appearance()),
        reads_tokens=True,
    ),
    Page(
        "where",
        "Where",
        "The parts of the data with the largest gap: positions, probabilities, replicas, tokens and more.",
        partial(drawn, where),
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        reads_tokens=True,
    ),
    Page(
        "staleness",
        "Staleness",
        "The part of the gap that comes from old weights, the update's part, and the settings of engine and trainer.",
        partial(drawn, staleness),
        frozenset({"gap", "readings", "steps", "floor"}),
        reads_tokens=True,
    ),
    Page(
        "sequences",
        "Sequences",
        "The sequences of one step, the worst first.",
        partial(drawn, sequences),
        frozenset({"gap", "readings", "only"}),
        reads_tokens=True,
    ),
    Page(
        "tokens",
        "Tokens",
        "One sequence, token by token.",
        tokens.render,
        frozenset({"gap", "readings", "only"}),
        reads_tokens=True,
    ),
    Page(
        "corrections",
        "Corrections",
        "The effect of truncating, masking or rejecting weights, and the configuration for your trainer.",
        corrections.render,
        frozenset({"gap", "readings", "steps"}),
        prefetch=corrections.prefetch,
        reads_tokens=True,
    ),
    Page(
        "compare",
        "Compare",
        "Two runs, groups of seeds or ranges of steps: what differs, by how much, and whether chance explains it.",
        compare.render,
        frozenset({"gap", "readings"}),
    ),
    Page(
        "alerts",
        "Alerts",
        "When each signal was out of bounds, and the rules that open an alert.",
        partial(drawn, alerts),
        frozenset({"gap", "steps"}),
    ),
    Page(
        "health",
        "Health",
        "Dropped, lost, damaged and missing data, and the state of each writer.",
        partial(drawn, health),
        frozenset(),
        shows_empty=True,
    ),
    Page(
        "runs", "Runs", "Every run in the folders that this dashboard serves.", runs.render, frozenset(), about="runs"
    ),
)
