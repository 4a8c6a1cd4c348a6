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
    record: str
    """The arguments of Collector.log that record these columns."""


FEATURES = (
    Feature("mismatch", ("rollout_logprobs", "old_logprobs"), "rollout_logprobs and old_logprobs"),
    Feature("total", ("rollout_logprobs", "current_logprobs"), "rollout_logprobs and current_logprobs"),
    Feature("drift", ("old_logprobs", "current_logprobs"), "old_logprobs and current_logprobs"),
    Feature("staleness", ("trainer_version", "rollout_version_min"), "trainer_version and rollout_versions"),
    Feature("token texts", ("token_texts",), "token_texts"),
    Feature("token classes", ("token_texts",), "token_texts"),
    Feature("surprisal gap", ("entropy",), "entropy"),
    Feature("by engine replica", ("replica",), "replica"),
    Feature("by turn", ("turn",), "turns"),
    Feature("by prompt group", ("group_id",), "group_ids"),
    Feature("by reward", ("reward",), "rewards"),
    Feature("by advantage", ("advantages",), "advantages"),
    Feature("by finish reason", ("finish_reason",), "finish_reasons"),
    Feature("corrections on the loss mask", ("loss_mask",), "loss_mask"),
)


def missing_of(run: "Run") -> Iterator[tuple[str, str]]:
    """(feature, "because ...") for each feature that the run lacks."""
    if not (reason := run.no_tokens):
        passed = {f"{policy}_logprobs" for gap in run.gaps for policy in GAPS[gap]}  # in statistics, if rows are gone
        yield from (each for each in missing_features(run.columns | passed) if each[0] not in run.gaps)
        return
    for feature in FEATURES:
        if feature.name not in run.gaps:
            yield feature.name, f"because {reason}"


def missing_features(columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """(feature, "because ...; log ...") for each feature that needs columns which are not among these."""
    for feature in FEATURES:
        absent = [name for name in feature.columns if name not in columns]
        if absent:
            names = " and ".join(absent)
            is_or_are = "is" if len(absent) == 1 else "are"
            yield feature.name, f"because {names} {is_or_are} not on record; log {feature.record}"
