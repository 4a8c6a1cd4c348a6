"""prime-rl: the token export of its trainer (until 2026-08), and the annotated traces of verifiers that followed it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..table import FileKind, Format, columns

_EXPORT = FileKind(
    what="tokens of a rank and step",
    file=r"(?:step_(?P<step>\d+)/)?rank_(?P<rank>\d+)\.jsonl",
    container="json lines",
    marks=("inference_logprobs", "trainer_logprobs", "export_sequence_idx"),
    columns=columns("""
        step = step or @step !
        sequence_ids = export_sequence_idx | named(step, rank)
        rollout_logprobs = inference_logprobs | span(loss_mask)
        current_logprobs = trainer_logprobs | span(loss_mask) !
        mask = loss_mask | span(loss_mask)
        loss_mask = loss_mask | span(loss_mask)
        token_ids = token_ids | span(loss_mask)
        prompt_ids = token_ids | before(loss_mask)
        entropy = entropy | span(loss_mask)
        advantages = advantages | span(loss_mask)
        extra.env_name = env_name
    """),
    lacks="versions; the response is what lies between the first and the last token in the loss",
)


def _branches(line: Any) -> Iterator[Any]:
    """One row for each path from the first message to a last one: what a model saw and sampled, in order.

    Lists of a message that are shorter than its tokens hold values of the sampled tokens alone.
    """
    traces = line.get("traces") if isinstance(line, Mapping) else None
    for place, trace in enumerate(traces if isinstance(traces, list) else [line]):
        nodes = trace.get("nodes") if isinstance(trace, Mapping) else None
        if not isinstance(nodes, list):
            yield {}
            continue
        parents = {node.get("parent") for node in nodes if isinstance(node, Mapping)}
        for leaf in (index for index in range(len(nodes)) if index not in parents):
            yield {**_joined(_path(nodes, leaf)), "trace": trace, "line": line, "place": f"{place}-{leaf}"}


def _path(nodes: list[Any], leaf: int) -> list[Mapping[str, Any]]:
    path: list[Mapping[str, Any]] = []
    at: Any = leaf
    while isinstance(at, int) and 0 <= at < len(nodes) and len(path) <= len(nodes) and isinstance(nodes[at], Mapping):
        path.append(nodes[at])
        at = nodes[at].get("parent")
    return path[::-1]


_COMPACT = ("logprobs", "trainer_logprobs", "reference_logprobs", "entropies", "advantages")


def _joined(path: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The lists of all messages of a path, one after the other. A list that one sampled message lacks is absent."""
    sampled = [node for node in path if any(node.get("mask") or ())]
    columns: dict[str, Any] = {
        name: [x for node in path for x in node.get(name) or ()] for name in ("token_ids", "mask")
    }
    for name in _COMPACT:
        values: list[Any] = [node.get(name) for node in sampled]
        if odd := [value for value in values if value is not None and not isinstance(value, list)]:
            columns[name] = odd[0]  # of a form that no step takes: the row is rejected for it
        elif values and None not in values:
            columns[name] = [x for part in values for x in part]
    turns = [[turn] * sum(map(bool, node["mask"])) for turn, node in enumerate(sampled)]
    return columns | {"turns": [turn for part in turns for turn in part]}


_TRACES = FileKind(
    what="annotated traces of verifiers 0.4",
    file=r"(?:step_(?P<step>\d+)/(?:.*/)?)?traces\.jsonl",
    container="json lines",
    marks=("mask", "token_ids", "trace"),
    split=_branches,
    columns=columns("""
        step = @step or line.step or trace.step
        sequence_ids = place | named(@step, @line, trace.id)
        group_ids = trace.task.key or trace.task.hash
        rollout_logprobs = logprobs | spread_over(mask) | span(mask)
        current_logprobs = trainer_logprobs | spread_over(mask) | span(mask)
        reference_logprobs = reference_logprobs | spread_over(mask) | span(mask)
        entropy = entropies | spread_over(mask) | span(mask)
        advantages = advantages | spread_over(mask) | span(mask)
        mask = mask | span(mask)
        token_ids = token_ids | span(mask)
        prompt_ids = token_ids | before(mask)
        rewards = trace.reward
        finish_reasons = trace.stop_condition
    """),
    lacks="digits: verifiers writes 4 decimals",
)
FORMATS = (
    Format(name="prime-rl", title="prime-rl token export", trainer="prime_rl", parts=(_EXPORT,)),
    Format(
        name="verifiers",
        title="verifiers traces.jsonl",
        trainer="prime_rl",
        parts=(_TRACES,),
        resolution={"rollout": 5e-5, "current": 5e-5},
    ),
)
