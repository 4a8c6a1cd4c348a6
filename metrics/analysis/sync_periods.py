"""The mean gap under other settings of weight syncs and updates, from the gap by lag and by update on record.

A sync brings the lag of the engine's weights back to the smallest one on record, l. Each batch until the next sync adds b
updates to it: the smallest distance between two lags on record. Synced every N = j b updates, one batch in j has each of the
lags l, l + b, ..., l + N - b. With v_k the mean gap of the tokens at lag k and e_k its standard error,

    mean(N) = sum over these lags of v_k / j        error(N) = sqrt(sum over these lags of e_k^2) / j

Under a bound of k on the lag, a token that would be older has lag k. With n_l tokens at lag l, n of them in all,

    mean(k) = (sum over lags l < k of n_l v_l  +  sum over lags l >= k of n_l v_k) / n

The updates of a batch are numbered from 0, and N of them have the mean(N) of the lags 0, ..., N - 1.

The same lag is taken to give the same gap whatever the setting. If lags occur at different steps, other changes between those
steps count as lag. A lag that is not on record has no gap here: nothing is extrapolated.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .staleness import Lagged, staleness


@dataclass(frozen=True)
class WhatIf:
    """The gap under one value of a setting."""

    updates: int
    """From one sync to the next, as the bound on the lag, or per batch."""
    lags: tuple[int, ...]
    """The lags that the tokens have then, or the numbers of their updates within the batch."""
    mean: float = math.nan
    """The mean gap, nats/token; NaN if one of the lags is not on record."""
    error: float = math.nan
    """Its standard error, the lags taken as independent; NaN if it is unknown."""
    tokens: float = math.nan
    """Tokens on record with these lags."""
    missing: int | None = None
    """The first of the lags that no token on record has; None if there is none."""


@dataclass(frozen=True)
class WhatIfs:
    """The gap under values of a setting, ascending; those that the record does not cover have no mean."""

    each: tuple[WhatIf, ...] = ()
    """Empty if the record has fewer than two lags."""
    recorded: float = math.nan
    """The mean gap of all tokens with a known lag, nats/token."""
    batch: int = 1
    """Updates that a batch adds to the lag."""
    reason: str = ""
    """Why there are none, to follow "not available, because"."""

    @property
    def known(self) -> list[WhatIf]:
        """Those with a mean. The smallest one is among them: its only lag is on record."""
        return [each for each in self.each if each.missing is None]


def sync_periods(lags: Sequence[Lagged]) -> WhatIfs:
    """The mean gap at sync periods of 1, 2, 4, ... batches: all that the record covers, and the first that it does not.

    Lags below 0 and those without tokens or value are left out, here and below.
    """
    known, none = _usable(lags, "lag")
    if none:
        return none
    batch = _batch(known)
    return WhatIfs((*_evenly(known, batch),), staleness(lags).value, batch)


def lag_bounds(lags: Sequence[Lagged]) -> WhatIfs:
    """The mean gap under bounds on the lag: the smallest one on record, and those by 1, 2, 4, ... batches above it.

    The largest lag on record ends them: a bound above it changes nothing.
    """
    known, none = _usable(lags, "lag")
    if none:
        return none
    batch, least = _batch(known), min(known)
    above = (least + batch * (1 << power) for power in range(max(known).bit_length()))
    bounds = (least, *(bound for bound in above if bound < max(known)))
    return WhatIfs((*(_bounded(known, bound) for bound in bounds),), staleness(lags).value, batch)


def updates_per_batch(updates: Sequence[Lagged]) -> WhatIfs:
    """The mean drift with 1, 2, 4, ... updates per batch. updates: the tokens of each update, its number from 0 as their lag."""
    known, none = _usable(updates, "update")
    return none or WhatIfs((*_evenly(known, 1),), staleness(updates).value)


def _usable(lags: Sequence[Lagged], noun: str) -> tuple[dict[int, Lagged], WhatIfs | None]:
    """The known lags, and the answer if they are fewer than two."""
    known = {each.lag: each for each in lags if each.lag >= 0 and each.tokens > 0 and not math.isnan(each.value)}
    only = [f"every token has {noun} {lag}: no other {noun} is on record" for lag in known]
    reason = next(iter(only), f"no token with a known {noun} is on record")
    return known, WhatIfs(reason=reason) if len(known) < 2 else None


def _batch(known: Mapping[int, Lagged]) -> int:
    ordered = sorted(known)
    return min(later - earlier for earlier, later in zip(ordered, ordered[1:], strict=False))


def _evenly(known: Mapping[int, Lagged], batch: int) -> Iterator[WhatIf]:
    """Each of the first 1, 2, 4, ... lags equally often, until one of them is not on record."""
    batches, missing, least = 1, None, min(known)
    while missing is None:
        lags = tuple(range(least, least + batches * batch, batch))
        missing = next((lag for lag in lags if lag not in known), None)
        found = WhatIf(batches * batch, lags, missing=missing)
        yield found if missing is not None else _mean(found, [(1 / batches, known[lag]) for lag in lags])
        batches *= 2


def _bounded(known: Mapping[int, Lagged], bound: int) -> WhatIf:
    found = WhatIf(bound, tuple(lag for lag in sorted(known) if lag <= bound))
    if bound not in known:
        return replace(found, missing=bound)
    total = sum(each.tokens for each in known.values())
    at_most = sum(each.tokens for each in known.values() if each.lag >= bound)
    parts = [(known[lag].tokens / total, known[lag]) for lag in found.lags[:-1]]
    return _mean(found, [*parts, (at_most / total, known[bound])])


def _mean(found: WhatIf, parts: Sequence[tuple[float, Lagged]]) -> WhatIf:
    """parts: each lag with its share of the tokens."""
    mean = sum(share * each.value for share, each in parts)
    error = math.hypot(*(share * each.error for share, each in parts))
    return replace(found, mean=mean, error=error, tokens=sum(each.tokens for _, each in parts))
