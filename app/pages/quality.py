"""The data that the report rests on: counts of steps and tokens, and of dropped, missing and quarantined data."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.feature_requirements import missing_of
from ratioscope.ingest.commits.conservation import UNSEEN
from ratioscope.metrics.definitions import validity
from ratioscope.metrics.metric import Statistic
from ratioscope.metrics.step_holes import missing_steps

from ..presentation.digits import count
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.privacy import scrubbed_text
from ..presentation.run_state import ALARMS, lasting_words, state_of
from ..presentation.unavailable import lost_words, replaced

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
        drop_reasons=tuple(
            DropReason(scrubbed_text(each.reason), each.sequences, None if each.unseen else each.tokens)
            for each in counts.reasons
        ),
        uncommitted=len(run.uncommitted),
        quarantined=tuple(UnreadFile(scrubbed_text(item.path), scrubbed_text(item.reason)) for item in run.quarantined),
        notes=tuple(scrubbed_text(note) for note in run.notes),
        state=lasting_words(run, state),
        alarm=ALARMS.get(state.life, ""),
        unrecorded=tuple(UnavailableFeature(*row) for row in missing_of(run)),
    )


def quality_facts(counts: Quality) -> LabelledTexts:
    """Counts of the data that the report rests on; counts of trouble only if they are above 0."""
    span = f" ({counts.first_step} to {counts.last_step})" if counts.steps else ""
    missing = f", {count(counts.missing_steps)} missing in between" if counts.missing_steps else ""
    exact = "every logged token" if counts.exact else "a sample of the tokens: values are estimates"
    whole = (
        f"; {count(counts.sequences, 'whole sequence')}"
        if counts.sequences_set_aside
        else f" of {count(counts.sequences, 'sequence')}"
    )
    return [
        ("state", counts.state),
        ("steps", f"{count(counts.steps)}{span}{missing}"),
        ("policies on record", ", ".join(counts.policies) or "none"),
        ("metrics cover", exact if counts.tokens else "nothing: no token has two log-probs"),
        ("tokens", f"{count(counts.tokens)}{whole}"),
        ("set aside", _listed(_set_aside(counts)) or "nothing"),
        (
            "sequences logged",
            f"{count(counts.offered)} by {count(counts.writers, 'writer')}, {count(counts.written)} written"
            if counts.offered
            else "none",
        ),
        *(
            [("in statistics only", f"{count(counts.left_out, 'sequence')}, because of the budget")]
            if counts.left_out
            else []
        ),
        ("dropped", _dropped(counts)),
        *(("writer in trouble", state) for state in counts.states),
        *(
            [("lost", lost_words(counts.lost, counts.gone, counts.silent))]
            if counts.lost or counts.gone or counts.silent
            else []
        ),
        *([("pending in a running writer", count(counts.pending, "sequence"))] if counts.pending else []),
        *(("not shown", words) for words in counts.replaced),
        *([("files without a commit", count(counts.uncommitted))] if counts.uncommitted else []),
        ("files set aside", _files_set_aside(counts)),
        *(("note", note) for note in counts.notes),
    ]


def _set_aside(counts: Quality) -> dict[str, int]:
    return {
        "tokens with a log-prob that is NaN or infinite": counts.non_finite,
        "positive log-probs (counted, not left out)": counts.positive_logprobs,
        "tokens of weight 0": counts.zero_weight_tokens,
        "sequences with a token set aside": counts.sequences_set_aside,
        "sequences without an unmasked token": counts.empty_sequences,
    }


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count(number)} {what}" for what, number in counts.items() if number)


def _dropped(counts: Quality) -> str:
    if not counts.dropped:
        return "nothing"
    reasons = "; ".join(f"{count(drop.sequences)} {drop.reason}" for drop in counts.drop_reasons)
    tokens = f"tokens {UNSEEN}" if counts.dropped_tokens is None else count(counts.dropped_tokens, "token")
    return f"{count(counts.dropped, 'sequence')} ({reasons}); {tokens}"


def _files_set_aside(counts: Quality) -> str:
    if not counts.quarantined:
        return "none"
    rows = f", with {count(counts.rows_set_aside, 'token row')}" if counts.rows_set_aside else ""
    return f"{count(len(counts.quarantined))}{rows}"
