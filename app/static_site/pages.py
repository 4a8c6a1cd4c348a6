"""The pages, in the order of the navigation. Each is a function from a run's material to its blocks."""

from collections.abc import Callable
from dataclasses import dataclass

from .answer_pages import diagnosis, overview
from .blocks import Block
from .course_pages import alerts, distributions, metrics
from .material import Material
from .record_pages import health, sequences
from .slice_pages import staleness, where


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
    StaticPage("where", "Where", where),
    StaticPage("staleness", "Staleness", staleness),
    StaticPage("sequences", "Sequences", sequences),
    StaticPage("alerts", "Alerts", alerts),
    StaticPage("health", "Health", health),
)
