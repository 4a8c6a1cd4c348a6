"""Which views of a run need which columns, so that a view that is not there says why and how to record it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """columns: it needs all of them. record: the arguments of Collector.log that give them."""

    name: str
    columns: tuple[str, ...]
    record: str


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


def missing_features(columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """(view, "because ...; log ...") for every view that these recorded columns do not give."""
    for view in FEATURES:
        absent = [name for name in view.columns if name not in columns]
        if absent:
            names = " and ".join(absent)
            yield view.name, f"because {names} {'is' if len(absent) == 1 else 'are'} not on record; log {view.record}"
