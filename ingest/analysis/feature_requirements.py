"""The columns of the Record that each feature needs: the reason on a page for a missing feature, and how to record it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratioscope.record import GAPS

if TYPE_CHECKING:
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
