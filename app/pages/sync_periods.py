"""The gap under other sync periods, bounds on the lag and updates per batch: on a page, in the terminal, and as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.analysis.staleness import lagged
from ratioscope.metrics.analysis.sync_periods import WhatIf, WhatIfs, lag_bounds, sync_periods, updates_per_batch

from ..blocks import Block, Heading, Paragraph, text_table
from ..presentation.digits import count, digits, plus_minus
from ..presentation.sentence import capital
from .gap_slices import WANTED

TITLE = "If syncs and updates came at another pace"
NO_DRIFT = "the run has no drift: it takes old and current log-probs of the same tokens"


@dataclass(frozen=True)
class Setting:
    """A setting that decides how far apart the policies are, and its words."""

    key: str
    """Its name in JSON."""
    metric: str
    """The size of the gap."""
    shown: str
    """The same for readers."""
    noun: str
    """The thing that a token has a number of."""
    head: str
    """The title of its values, which are numbers of updates."""
    whole: str
    """A value after "With"."""
    assumption: str
    """With {least}, the smallest lag on record, and {batch}, the updates of a batch."""


SETTINGS = (
    Setting(
        "sync_periods", size_metric("mismatch"), "K3", "lag", "a sync every", "a sync every {}",
        "This assumes that the same lag gives the same gap, that a sync brings the lag back to {least}, and that each batch adds "
        "{batch} to it, the smallest distance on record.",
    ),
    Setting(
        "lag_bounds", size_metric("mismatch"), "K3", "lag", "a lag of at most", "a lag of at most {}",
        "This assumes that a token which would be older is sampled at the bound: the engine waits (max_staleness_steps, "
        "max_head_offpolicyness). If such tokens are dropped instead (max_staleness, max_off_policy_steps), the mean is no "
        "larger, as long as the gap grows with the lag.",
    ),
    Setting(
        "updates_per_batch", size_metric("drift"), "K2 of drift", "update", "updates per batch", "{} per batch",
        "This assumes that an update moves the policy as far as the one of the same number on record. A batch has as many "
        "updates as passes (num_iterations, ppo_epochs) times minibatches.",
    ),
)  # fmt: skip
"""The last one is of the drift."""
Answers = Sequence[WhatIfs]
"""The gap under the values of each of SETTINGS."""


def synced_otherwise(by_lag: pl.DataFrame, gap: str, by_update: pl.DataFrame | str) -> Answers:
    """by_lag: metrics by lag. by_update: metrics of the drift by minibatch, or why they are not available."""
    if f"{gap}/{size_metric(gap)}" in by_lag.columns and not by_lag.is_empty():
        lags = lagged(by_lag, gap)
        own = [sync_periods(lags), lag_bounds(lags)]
    else:
        own = [WhatIfs(reason=WANTED["lag"])] * 2
    if isinstance(by_update, str):
        return [*own, WhatIfs(reason=by_update)]
    return [*own, updates_per_batch(lagged(by_update.rename({"minibatch": "lag"}), "drift"))]


def no_updates(run: Run) -> str:
    """Why the drift by update of a batch is not available, to follow "because"; empty if token rows hold it."""
    if not run.columns:
        return run.no_tokens or "the run has no token rows; give the collector a larger budget"
    if "minibatch" not in run.columns:
        return "updates were not recorded; pass minibatch= to Collector.log"
    return "" if "drift" in run.gaps else NO_DRIFT


def sync_blocks(answers: Answers) -> Iterator[Block]:
    yield Heading(TITLE)
    for setting, found in zip(SETTINGS, answers, strict=True):
        if not found.reason:
            yield from _blocks(setting, found)
    for reason in dict.fromkeys(found.reason for found in answers if found.reason):
        names = (
            setting.key.replace("_", " ")
            for setting, found in zip(SETTINGS, answers, strict=True)
            if found.reason == reason
        )
        yield Paragraph(f"{capital(' and '.join(names))}: not available, because {reason}.", "absent")


def _blocks(setting: Setting, found: WhatIfs) -> Iterator[Block]:
    first, *others = found.known
    last = f", and {_mean(others[-1])} with {_with(setting, others[-1])}" if others else ""
    now = digits(found.recorded)
    yield Paragraph(
        f"With {_with(setting, first)} the mean {setting.shown} would be {_mean(first)}{last}; on record it is {now}.",
        "lead",
    )
    head = (setting.head, f"{setting.noun}s", f"mean {setting.shown}", "tokens on record")
    yield text_table(setting.head, head, map(_row, found.known))
    for each in found.each:
        if each.missing is not None:
            why = f"{capital(_with(setting, each))}: not available, because {_absence(setting, each)}."
            yield Paragraph(why, "muted")
    told = setting.assumption.format(least=found.each[0].lags[0], batch=found.batch)
    yield Paragraph(f"{setting.shown} in nats/token ± one standard error. {told}", "muted")


def plain_answers(answers: Answers) -> dict[str, Any]:
    """The same as values that JSON can hold; null where a value is not known."""
    return {setting.key: _plain(setting, found) for setting, found in zip(SETTINGS, answers, strict=True)}


def _plain(setting: Setting, found: WhatIfs) -> dict[str, Any]:
    return {
        f"{setting.metric}_on_record": _known(found.recorded),
        setting.key.split("_")[-1 if setting.noun == "lag" else 0]: [
            {
                "updates": each.updates,
                "lags": [*each.lags],
                setting.metric: _known(each.mean),
                f"{setting.metric}_se": _known(each.error),
                "tokens": _known(each.tokens),
                "reason": _absence(setting, each),
            }
            for each in found.each
        ],
        "reason": found.reason,
    }


def _row(each: WhatIf) -> tuple[str, ...]:
    first, last = each.lags[0], each.lags[-1]
    lags = str(first) if first == last else f"{first} to {last}"
    return count(each.updates, "update"), lags, _mean(each), count(each.tokens)


def _with(setting: Setting, each: WhatIf) -> str:
    return setting.whole.format(count(each.updates, "update")).replace("every 1 ", "every ")


def _absence(setting: Setting, each: WhatIf) -> str:
    """Why the gap is not available; empty if it is."""
    return "" if each.missing is None else f"no token of {setting.noun} {each.missing} is on record"


def _mean(each: WhatIf) -> str:
    return plus_minus(each.mean, _known(each.error))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
