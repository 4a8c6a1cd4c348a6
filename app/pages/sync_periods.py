"""The gap if the weights were synced at other periods, as a sentence and a table: on a page, in the terminal, and as JSON."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import polars as pl

from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.analysis.staleness import lagged
from ratioscope.metrics.analysis.sync_periods import SyncPeriod, SyncPeriods, sync_periods

from ..blocks import Block, Heading, Paragraph, text_table
from ..presentation.digits import count, digits, plus_minus
from .gap_slices import WANTED

TITLE = "If the weights were synced more or less often"
HEAD = ("a sync every", "lags", "mean K3", "tokens on record")


def synced_otherwise(by_lag: pl.DataFrame, gap: str) -> SyncPeriods:
    """The gap at other sync periods. by_lag: metrics by lag."""
    if f"{gap}/{size_metric(gap)}" not in by_lag.columns or by_lag.is_empty():
        return SyncPeriods(reason=WANTED["lag"])
    return sync_periods(lagged(by_lag, gap))


def sync_blocks(found: SyncPeriods) -> Iterator[Block]:
    yield Heading(TITLE)
    if found.reason:
        yield Paragraph(f"Not available, because {found.reason}.", "absent")
        return
    yield Paragraph(sync_answer(found), "lead")
    yield text_table(TITLE, HEAD, map(_row, found.known))
    for each in found.each[len(found.known) :]:
        yield Paragraph(f"A sync every {_period(each)}: not available, because {each.reason}.", "muted")
    yield Paragraph(f"K3 in nats/token ± one standard error. {found.assumption}", "muted")


def sync_answer(found: SyncPeriods) -> str:
    """The gap at the shortest and the longest period that the record covers, beside that on record, in one sentence."""
    first, *others = found.known
    longest = f", and {_mean(others[-1])} with one every {_period(others[-1])}" if others else ""
    now = digits(found.recorded)
    return f"With a sync every {_period(first)} the mean K3 would be {_mean(first)}{longest}; on record it is {now}."


def plain_sync_periods(found: SyncPeriods) -> dict[str, Any]:
    """The same as values that JSON can hold; null where a value is not known."""
    periods = [{**asdict(each), "lags": [*each.lags], "reason": each.reason} for each in found.each]
    return {
        "kl_k3_on_record": None if found.reason else found.recorded,
        "periods": [_plain(each) for each in periods],
        "reason": found.reason,
    }


def _plain(period: dict[str, Any]) -> dict[str, Any]:
    size = size_metric("mismatch")  # the drift has no lag
    renamed = {"value": size, "error": f"{size}_se"}
    return {
        renamed.get(name, name): None if isinstance(value, float) and math.isnan(value) else value
        for name, value in period.items()
        if name != "missing"
    }


def _row(each: SyncPeriod) -> tuple[str, ...]:
    first, last = each.lags[0], each.lags[-1]
    lags = str(first) if first == last else f"{first} to {last}"
    return _period(each), lags, _mean(each), count(each.tokens)


def _period(each: SyncPeriod) -> str:
    return count(each.updates, "update") if each.updates > 1 else "update"


def _mean(each: SyncPeriod) -> str:
    return plus_minus(each.value, _error(each.error))


def _error(error: float) -> float | None:
    return None if math.isnan(error) else error
