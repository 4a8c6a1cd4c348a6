"""Which views of a run need which columns, so that a view that is not there says why and how to record it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """columns: it needs all of them. record: the arguments of Collector.log that give them."""

    name: str
    columns: tuple[str, ...]
    record: str


VIEWS = (
    View("mismatch", ("rollout_logprobs", "old_logprobs"), "rollout_logprobs and old_logprobs"),
    View("total", ("rollout_logprobs", "current_logprobs"), "rollout_logprobs and current_logprobs"),
    View("drift", ("old_logprobs", "current_logprobs"), "old_logprobs and current_logprobs"),
    View("staleness", ("trainer_version", "rollout_version_min"), "trainer_version and rollout_versions"),
    View("token texts", ("token_texts",), "token_texts"),
    View("token classes", ("token_texts",), "token_texts"),
    View("surprisal gap", ("entropy",), "entropy"),
    View("by engine replica", ("replica",), "replica"),
    View("by turn", ("turn",), "turns"),
    View("by prompt group", ("group_id",), "group_ids"),
    View("by reward", ("reward",), "rewards"),
    View("by advantage", ("advantages",), "advantages"),
    View("by finish reason", ("finish_reason",), "finish_reasons"),
    View("corrections on the loss mask", ("loss_mask",), "loss_mask"),
)


def missing_views(columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """(view, "because ...; log ...") for every view that these recorded columns do not give."""
    for view in VIEWS:
        absent = [name for name in view.columns if name not in columns]
        if absent:
            names = " and ".join(absent)
            yield view.name, f"because {names} {'is' if len(absent) == 1 else 'are'} not on record; log {view.record}"
