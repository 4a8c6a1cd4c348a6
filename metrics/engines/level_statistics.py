"""The statistics of a gap, by the level of their formula."""

from dataclasses import dataclass
from functools import cache

from ..definitions.registry import statistics_of
from ..statistic import Statistic


@dataclass(frozen=True)
class LevelStatistics:
    """The statistics of a gap, by the level of their formula."""

    token: tuple[Statistic, ...]
    """Token statistics; those of slices by token come first."""
    sliced: tuple[Statistic, ...]
    """The token statistics that slices by token have."""
    whole: tuple[Statistic, ...]
    """The token statistics that relate tokens to their neighbours."""
    cluster: tuple[Statistic, ...]
    """The statistics of a sequence's token sums in one cell; standard errors need them."""
    sequence: tuple[Statistic, ...]


@cache
def statistics_by_level(gap: str) -> LevelStatistics:
    """The statistics of a gap, by level."""
    token, cluster, sequence = (
        tuple(s for s in statistics_of(gap) if s.level == level) for level in ("token", "cluster", "sequence")
    )
    # Order: max and logsumexp, sums, sums of whole sequences. Those that slices have come first.
    token = tuple(sorted(token, key=lambda s: (s.combine == "sum", s.combine, s.whole)))
    return LevelStatistics(
        token, tuple(s for s in token if not s.whole), tuple(s for s in token if s.whole), cluster, sequence
    )
