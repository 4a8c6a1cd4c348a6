"""The pages, in the order of the navigation. Each is a function from a run's material to its blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..blocks import Block
from ..pages.alerts import alerts
from ..pages.diagnosis import diagnosis
from ..pages.distributions import distributions
from ..pages.health import health
from ..pages.metrics import metrics
from ..pages.overview import overview
from ..pages.sequences import sequences
from ..pages.staleness import staleness
from ..pages.where import where
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
    StaticPage("overview", "Overview", lambda run: whole(overview(run.scope))),
    StaticPage("diagnosis", "Diagnosis", lambda run: whole(diagnosis(replace(run.scope, gap="")))),
    StaticPage("metrics", "Metrics", lambda run: whole(metrics(run.scope))),
    StaticPage("distributions", "Distributions", lambda run: whole(distributions(run.scope))),
    StaticPage("where", "Where", lambda run: whole(where(run.scope))),
    StaticPage("staleness", "Staleness", lambda run: whole(staleness(run.scope))),
    StaticPage("sequences", "Sequences", lambda run: whole(sequences(run.scope))),
    StaticPage("alerts", "Alerts", lambda run: whole(alerts(run.scope))),
    StaticPage("health", "Health", lambda run: whole(health(run.scope))),
)
