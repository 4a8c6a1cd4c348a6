"""The pages, and the topics of the navigation that they belong to. Every face takes them from here; one added here is on all."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

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


Topic = Literal["Runs", "Overview", "Why", "Fix", "Charts", "Samples", "Record"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
"""The entries of the navigation, in its order."""
MOVED = {"diagnosis": "why", "corrections": "fix", "metrics": "charts", "sequences": "samples", "health": "record"}
"""The name that a page once had in addresses -> its name now. Links and saved views of that time still open."""


@dataclass(frozen=True)
class Page:
    """One page."""

    topic: Topic
    """The entry of the navigation that it is a tab of; the first page of a topic is what the entry opens."""
    path: str
    """Its name in addresses and files."""
    title: str
    """Its name among the tabs of its topic."""
    help: str
    """Its tooltip."""
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
        "Overview",
        "overview",
        "Verdict",
        "The verdict on the run, the severity of each step, and the headline metrics over the steps.",
        overview.overview,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=overview.printed,
    ),
    Page(
        "Why",
        "why",
        "Cause",
        "Why the policies are apart: likely causes with their proof and remedy, what is ruled out, and what stays open.",
        diagnosis.diagnosis,
        frozenset({"gap", "steps", "floor"}),
        printed=diagnosis.printed,
    ),
    Page(
        "Charts",
        "charts",
        "Over the steps",
        "Every metric over the steps, for one run or for several runs in one chart.",
        metrics.metrics,
        frozenset({"gap", "readings", "steps", "only", "floor", "others"}),
        printed=metrics.printed,
        ahead=metrics.ahead,
    ),
    Page(
        "Charts",
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
        "Why",
        "where",
        "Where",
        "The parts of the data with the largest gap: positions, probabilities, replicas, tokens and more.",
        where.where,
        frozenset({"gap", "readings", "steps", "only", "floor"}),
        printed=where.printed,
        reads_tokens=True,
    ),
    Page(
        "Why",
        "staleness",
        "Staleness and settings",
        "The part of the gap that comes from old weights, the update's part, and the settings of engine and trainer.",
        staleness.staleness,
        frozenset({"gap", "readings", "steps", "floor"}),
        reads_tokens=True,
    ),
    Page(
        "Samples",
        "samples",
        "Sequences",
        "The sequences of one step, the worst first.",
        sequences.sequences,
        frozenset({"gap", "readings", "only"}),
        printed=sequences.printed,
        reads_tokens=True,
    ),
    Page(
        "Samples",
        "tokens",
        "Tokens",
        "One sequence, token by token.",
        tokens.tokens,
        frozenset({"gap", "readings", "only"}),
        reads_tokens=True,
    ),
    Page(
        "Fix",
        "fix",
        "Fix",
        "The run's own correction among others, the configuration for your trainer, and the gap at other sync periods.",
        corrections.corrections,
        frozenset({"gap", "readings", "steps"}),
        ahead=corrections.ahead,
        reads_tokens=True,
    ),
    Page(
        "Overview",
        "alerts",
        "Alerts",
        "When each signal was out of bounds, and the rules that open an alert.",
        alerts.alerts,
        frozenset({"gap", "steps"}),
        printed=alerts.printed,
    ),
    Page(
        "Record",
        "record",
        "Record",
        "Dropped, lost, damaged and missing data, and the state of each writer.",
        health.health,
        frozenset(),
        printed=health.printed,
        shows_empty=True,
    ),
    Page(
        "Runs",
        "runs",
        "All runs",
        "Every run in the folders that this dashboard serves.",
        runs.runs,
        frozenset(),
        about="runs",
    ),
    Page(
        "Runs",
        "compare",
        "Compare",
        "Two runs, groups of seeds or ranges of steps: what differs, by how much, and whether chance explains it.",
        compare.compare,
        frozenset({"gap", "readings"}),
        about="beside",
    ),  # fmt: skip
)


def tabs_of(page: Page) -> tuple[Page, ...]:
    """The pages of its topic."""
    return tuple(each for each in PAGES if each.topic == page.topic)


def lead_of(topic: Topic) -> Page:
    """The page that the entry of the navigation opens."""
    return next(page for page in PAGES if page.topic == topic)


def address_of(path: str) -> str:
    """The page's name in addresses of a server, whose first page has none."""
    return "" if path == PAGES[0].path else path


LETTERS = {
    "o": "overview", "d": "why", "m": "charts", "i": "distributions", "w": "where", "s": "staleness", "q": "samples",
    "t": "tokens", "c": "fix", "x": "compare", "a": "alerts", "h": "record", "r": "runs",
}  # fmt: skip
"""The letter after `g` -> the path of the page that it opens."""
