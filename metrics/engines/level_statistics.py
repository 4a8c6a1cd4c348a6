"""The statistics of a gap, by the level of their formula."""

from dataclasses import dataclass
from functools import cache, cached_property

from ..definitions.registry import statistics_of
from ..metric import Combine, Statistic


@dataclass(frozen=True, eq=False)
class Order:
    """Statistics in the order of the rows of a matrix. There is one of a kind, so that what is known of it is found once."""

    statistics: tuple[Statistic, ...]
    """The statistic of each row."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each row."""
        return tuple(statistic.name for statistic in self.statistics)

    @cached_property
    def combines(self) -> tuple[Combine, ...]:
        """The way in which each row is combined."""
        return tuple(statistic.combine for statistic in self.statistics)


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

    @cached_property
    def of_parts(self) -> Order:
        """The order of the cells of slices by token, before they have the statistics of clusters."""
        return Order(self.sliced)

    @cached_property
    def of_tokens(self) -> Order:
        """The order of the cells of slices by token."""
        return Order(self.sliced + self.cluster)

    @cached_property
    def of_sequences(self) -> Order:
        """The order of sequences, and of the cells of slices by sequence."""
        return Order(self.token + self.cluster + self.sequence)


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
