"""The columns of the Record that each feature needs: the reason on a page for a missing feature, and how to record it.

The reasons stand here why no gap of a run can be measured, the first thing to go wrong in a new recording, and why steps have
statistics and no token rows; each with what to record.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratioscope.record import GAPS

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run


@dataclass(frozen=True)
class Feature:
    """Something that a reader can look at if its columns were recorded."""

    name: str
    columns: tuple[str, ...]
    """Columns of the Record that it needs, all of them."""
    record: tuple[str, ...] = ()
    """The arguments of Collector.log that record these columns, one each; empty where they have the columns' names."""

    def lacking(self, columns: Collection[str]) -> dict[str, str]:
        """Column that is not among these -> the argument that records it."""
        pairs = zip(self.columns, self.record or self.columns, strict=True)
        return {column: argument for column, argument in pairs if column not in columns}


MISMATCH = Feature("mismatch", ("rollout_logprobs", "old_logprobs"))
FEATURES = (
    MISMATCH,
    Feature("total", ("rollout_logprobs", "current_logprobs")),
    Feature("drift", ("old_logprobs", "current_logprobs")),
    Feature("staleness", ("trainer_version", "rollout_version_min"), ("trainer_version", "rollout_versions")),
    Feature("token texts", ("token_texts",)),
    Feature("token classes", ("token_texts",)),
    Feature("surprisal gap", ("entropy",)),
    Feature("by engine replica", ("replica",)),
    Feature("by turn", ("turn",), ("turns",)),
    Feature("by prompt group", ("group_id",), ("group_ids",)),
    Feature("by reward", ("reward",), ("rewards",)),
    Feature("by advantage", ("advantages",)),
    Feature("by finish reason", ("finish_reason",), ("finish_reasons",)),
    Feature("corrections on the loss mask", ("loss_mask",)),
)


def missing_of(run: "Run") -> Iterator[tuple[str, str]]:
    """(feature, "because ...") for each feature that the run lacks."""
    if not (reason := run.no_tokens):
        yield from (each for each in missing_features(columns_on_record(run)) if each[0] not in run.gaps)
        return
    for feature in FEATURES:
        if feature.name not in run.gaps:
            yield feature.name, f"because {reason}"


def columns_on_record(run: "Run") -> frozenset[str]:
    """The columns on record, with those that statistics hold alone because their rows are gone."""
    return frozenset(run.columns) | {f"{policy}_logprobs" for gap in run.gaps for policy in GAPS[gap]}


def missing_features(columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """(feature, "because ...; log ...") for each feature that needs columns which are not among these."""
    for feature in FEATURES:
        if absent := feature.lacking(columns):
            is_or_are = "is" if len(absent) == 1 else "are"
            yield (
                feature.name,
                f"because {' and '.join(absent)} {is_or_are} not on record; log {' and '.join(absent.values())}",
            )


TRAINED = ("old", "current")
EMPTY = (
    "every sequence is empty, or its mask is false at all of its tokens. Pass a mask= that is true at the tokens that the policy "
    "sampled."
)


def why_no_gap(run: "Run") -> str:
    """The state of the run, and what to record, in words that can follow "because".

    Empty if the run has a token with both sides of a gap, or is a log without tokens. Ids in it are text of the trainer's.
    """
    if run.no_tokens:
        return ""
    steps = run.metrics(by=("step",))
    if steps.width > 1:
        return "" if _has_token(steps) else EMPTY
    if not run.steps:
        return f"no step is on record{_dropped(run)}."
    recorded = run.policies
    trained = next((policy for policy in TRAINED if policy in recorded), None)
    if "rollout" in recorded and trained is not None:
        return (
            f"no sequence has the log-probs of both rollout and {trained}{_apart(run, trained)}. "
            "Log both under the same step and the same sequence_ids."
        )
    wanted = "rollout_logprobs=" if "rollout" not in recorded else "old_logprobs= or current_logprobs="
    words = f"only the log-probs of {' and '.join(recorded)} are on record" if recorded else "no log-prob is on record"
    return f"{words}{_dropped(run)}. Pass {wanted} to the collector too, under the same step and sequence_ids."


def _has_token(steps: "pl.DataFrame") -> bool:
    """True if a token counts in one of the gaps, or would if its log-probs were numbers."""
    return any(steps[name].sum() for name in steps.columns if name.endswith(("/tokens", "/non_finite")))


def _apart(run: "Run", trained: str) -> str:
    """An example of each side at the newest steps that have one."""
    rows = run.tokens(run.steps[-2:]).select("step", "sequence_id", "rollout_logprob", f"{trained}_logprob").collect()
    sides = {
        policy: rows.drop_nulls(f"{policy}_logprob").sort("step", descending=True) for policy in ("rollout", trained)
    }
    if any(side.is_empty() for side in sides.values()):
        return ""
    seen = (f"{policy} has “{side['sequence_id'][0]}” at step {side['step'][0]}" for policy, side in sides.items())
    return f": {', '.join(seen)}"


def _dropped(run: "Run") -> str:
    counts = run.conservation
    if not counts.dropped:
        return ""
    most = max(counts.reasons, key=lambda part: part.sequences)
    return f", and {counts.dropped:,} of {counts.offered:,} offered sequences were dropped ({most.reason})"


def why_no_rows(run: "Run") -> str:
    """A sentence without its full stop: `prune` deleted the rows, or a budget left them out."""
    if run.pruned_rows:
        return "`ratioscope prune` deleted the token rows; --keep-steps keeps those of more steps"
    return (
        "the budget left the token rows out; record them with a budget above 0 (step_bytes, run_bytes of the collector)"
    )
