"""The data that the report rests on: counts of steps and tokens, and of dropped, missing and quarantined data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.ingest.analysis.feature_requirements import missing_of
from ratioscope.ingest.commits.conservation import Dropped
from ratioscope.metrics.definitions import validity
from ratioscope.metrics.metric import Statistic
from ratioscope.metrics.step_holes import missing_steps

from ..presentation.loss_words import replaced
from ..presentation.run_state import ALARMS, lasting_words, state_of
from .privacy import scrubbed_text

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


@dataclass(frozen=True)
class UnreadFile:
    """A file that was not read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class UnavailableFeature:
    """A feature whose columns are not on record."""

    view: str
    """The name of the feature."""
    reason: str
    """The missing columns, and the arguments to log for them."""


@dataclass(frozen=True)
class DropReason:
    """A reason why offered sequences were not written."""

    reason: str
    sequences: int
    tokens: int | None
    """Number of their tokens; None if some were never counted."""


@dataclass(frozen=True)
class Quality:
    """Counts over the whole run. Tokens, and sequences set aside, are counted in the first gap on record.

    offered = written + left_out + dropped + pending + lost, in sequences: see ingest/commits/conservation.py.
    """

    first_step: int | None
    last_step: int | None
    steps: int
    missing_steps: int
    """Number of steps missing in holes between recorded steps."""
    policies: tuple[str, ...]
    """Policies with log-probs in any token row."""
    exact: bool
    """True if the metrics rest on every token that was logged."""
    tokens: int
    sequences: int
    non_finite: int
    """Tokens of which a log-prob is NaN or infinite."""
    positive_logprobs: int
    """Tokens with a log-prob above 1e-6, as no log of a probability is."""
    zero_weight_tokens: int
    """Tokens that the later policy gives probability 0."""
    sequences_set_aside: int
    """Sequences left out of sequence metrics, because a token was set aside."""
    empty_sequences: int
    """Sequences without a sampled token."""
    writers: int
    offered: int
    written: int
    left_out: int
    states: tuple[str, ...]
    """Writers that cannot write everything, with the reason."""
    dropped: int
    dropped_tokens: int | None
    """Tokens of the dropped sequences; None where some were never counted."""
    pending: int
    lost: int
    gone: int
    """Number of writers that ended without closing."""
    silent: int
    """Number of writers without a commit for so long that they count as ended."""
    rows_set_aside: int
    """Number of token rows in files that cannot be read."""
    replaced: tuple[str, ...]
    """Steps that were recorded again, with the reason."""
    drop_reasons: tuple[DropReason, ...]
    uncommitted: int
    """Number of files that no commit names."""
    quarantined: tuple[UnreadFile, ...]
    """Files that are not read, with the reason."""
    notes: tuple[str, ...]
    state: str
    """The state of the run when this was made, and its last commit."""
    alarm: str
    """The severity of this state, if it is silent or dead; empty otherwise."""
    unrecorded: tuple[UnavailableFeature, ...]
    """Features that the recorded columns do not allow."""


def quality(run: "Run", steps: pl.DataFrame) -> Quality:
    """steps: the metric frame by step."""
    gap = next(iter(judged_first(run)), "")

    def total(count: Statistic) -> int:
        column = f"{gap}/{count.name}"
        return int(steps[column].sum() or 0) if column in steps.columns else 0

    counts, state = run.conservation, state_of(run.path)
    return Quality(
        first_step=min(run.steps, default=None),
        last_step=max(run.steps, default=None),
        steps=len(run.steps),
        missing_steps=missing_steps(run.steps),
        policies=run.policies,
        exact=run.exact(),
        tokens=total(validity.TOKENS),
        sequences=total(validity.SEQUENCES),
        non_finite=total(validity.NON_FINITE),
        positive_logprobs=total(validity.POSITIVE),
        zero_weight_tokens=total(validity.ZERO_WEIGHT),
        sequences_set_aside=total(validity.SET_ASIDE),
        empty_sequences=total(validity.EMPTY),
        writers=len(run.writers),
        offered=counts.offered,
        written=counts.written,
        left_out=counts.left_out,
        states=tuple(f"{scrubbed_text(writer)}: {scrubbed_text(note)}" for writer, note in run.states.items()),
        dropped=counts.dropped,
        dropped_tokens=counts.dropped_tokens,
        pending=counts.pending,
        lost=counts.lost,
        gone=counts.gone,
        silent=counts.silent,
        rows_set_aside=counts.set_aside,
        replaced=tuple(": ".join(replaced(shadow)) for shadow in run.shadowed),
        drop_reasons=_drop_reasons(counts.reasons),
        uncommitted=len(run.uncommitted),
        quarantined=tuple(UnreadFile(scrubbed_text(item.path), scrubbed_text(item.reason)) for item in run.quarantined),
        notes=tuple(scrubbed_text(note) for note in run.notes),
        state=lasting_words(run, state),
        alarm=ALARMS.get(state.life, ""),
        unrecorded=tuple(UnavailableFeature(*row) for row in missing_of(run)),
    )


def _drop_reasons(reasons: Sequence[Dropped]) -> tuple[DropReason, ...]:
    return tuple(DropReason(scrubbed_text(r.reason), r.sequences, None if r.unseen else r.tokens) for r in reasons)
