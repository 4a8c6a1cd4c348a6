"""The pages, in the order of the navigation. Each is a function from a run's material to its blocks."""

from collections.abc import Callable
from dataclasses import dataclass

from ..blocks import Block
from ..pages.alerts import alerts
from ..pages.health import health
from ..pages.sequences import sequences
from ..pages.staleness import staleness
from ..pages.where import where
from .answer_pages import diagnosis, overview
from .course_pages import distributions, metrics
from .markup import whole
from .material import Material


@dataclass(frozen=True)
class StaticPage:
    """One page."""

    path: str
    """Its name in files and addresses, that of the dashboard's page."""
    title: str
    blocks: Callable[[Material], tuple[Block, ...]]


PAGES = (
    StaticPage("overview", "Overview", overview),
    StaticPage("diagnosis", "Diagnosis", diagnosis),
    StaticPage("metrics", "Metrics", metrics),
    StaticPage("distributions", "Distributions", distributions),
    StaticPage("where", "Where", lambda run: whole(where(run.scope))),
    StaticPage("staleness", "Staleness", lambda run: whole(staleness(run.scope))),
    StaticPage("sequences", "Sequences", lambda run: whole(sequences(run.scope))),
    StaticPage("alerts", "Alerts", lambda run: whole(alerts(run.scope))),
    StaticPage("health", "Health", lambda run: whole(health(run.scope))),
)
