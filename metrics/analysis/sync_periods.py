"""The mean gap if the engine got new weights at other periods, from the gap by lag on record.

A sync brings the lag of the engine's weights back to the smallest one on record, l. Each batch until the next sync adds b
updates to it: the smallest distance between two lags on record. Synced every N = j b updates, one batch in j has each of the
lags l, l + b, ..., l + N - b. With v_k the mean gap of the tokens at lag k and e_k its standard error,

    mean(N) = sum over these lags of v_k / j        error(N) = sqrt(sum over these lags of e_k^2) / j

The same lag is taken to give the same gap whenever the weights are synced. If lags occur at different steps, other changes
between those steps count as lag. A lag that is not on record has no gap here: nothing is extrapolated.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .staleness import Lagged, staleness


@dataclass(frozen=True)
class SyncPeriod:
    """The gap if the weights were synced at one period."""

    updates: int
    """Updates of the trainer from one sync to the next."""
    lags: range
    """The lags that the tokens have then, each equally often."""
    value: float = math.nan
    """The mean gap, nats/token; NaN if one of the lags is not on record."""
    error: float = math.nan
    """Its standard error, the lags taken as independent; NaN if it is unknown."""
    tokens: float = math.nan
    """Tokens on record with these lags."""
    missing: int | None = None
    """The first of the lags that no token on record has; None if there is none."""

    @property
    def reason(self) -> str:
        """Why the gap is unknown, to follow "not available, because"; empty if it is known."""
        return "" if self.missing is None else f"no token of lag {self.missing} is on record"


@dataclass(frozen=True)
class SyncPeriods:
    """The gap at periods of 1, 2, 4, ... batches: all that the record covers, and the first that it does not."""

    each: tuple[SyncPeriod, ...] = ()
    """Ascending; empty if the record has fewer than two lags."""
    recorded: float = math.nan
    """The mean gap of all tokens with a known lag, nats/token."""
    reason: str = ""
    """Why there are none, to follow "not available, because"."""

    @property
    def known(self) -> list[SyncPeriod]:
        """Those with a value. The shortest one is among them: its only lag is on record."""
        return [each for each in self.each if each.missing is None]

    @property
    def assumption(self) -> str:
        """The assumption in one sentence."""
        least, batch = self.each[0].lags.start, self.each[0].updates
        return (
            f"This assumes that the same lag gives the same gap, that a sync brings the lag back to {least}, and that each batch "
            f"adds {batch} to it, the smallest distance on record."
        )


def sync_periods(lags: Sequence[Lagged]) -> SyncPeriods:
    """The mean gap at sync periods of 1, 2, 4, ... batches. Lags below 0 and those without tokens or value are left out."""
    known = {each.lag: each for each in lags if each.lag >= 0 and each.tokens > 0 and not math.isnan(each.value)}
    if len(known) < 2:
        only = [f"every token has lag {lag}: no other lag is on record" for lag in known]
        return SyncPeriods(reason=next(iter(only), "no token with a known lag is on record"))
    return SyncPeriods(tuple(_periods(known)), staleness(lags).value)


def _periods(known: Mapping[int, Lagged]) -> Iterator[SyncPeriod]:
    ordered = sorted(known)
    batch = min(later - earlier for earlier, later in zip(ordered, ordered[1:], strict=False))
    batches, missing = 1, None
    while missing is None:
        updates = batches * batch
        lags = range(ordered[0], ordered[0] + updates, batch)
        missing = next((lag for lag in lags if lag not in known), None)
        yield SyncPeriod(updates, lags, missing=missing) if missing is not None else _mean(updates, lags, known)
        batches *= 2


def _mean(updates: int, lags: range, known: Mapping[int, Lagged]) -> SyncPeriod:
    own = [known[lag] for lag in lags]
    value, error = sum(each.value for each in own) / len(own), math.hypot(*(each.error for each in own)) / len(own)
    return SyncPeriod(updates, lags, value, error, sum(each.tokens for each in own))
