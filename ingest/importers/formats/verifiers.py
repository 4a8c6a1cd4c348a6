"""verifiers: traces of rollouts, and what prime-rl's trainer learns of them.

A run folder of prime-rl since 2026-09 has one stream of episodes and annotations of their traces: the step that shipped a trace,
its advantages, and the trainer's log-probs and entropies. Source: PrimeIntellect-ai/prime-rl, pull requests 3444 and 3465;
verifiers 0.4.0, v1/episode.py, v1/trace.py and v1/graph.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..row import SetAside, inside
from ..table import FileKind, Format, columns

_COMPACT = ("logprobs", "trainer_logprobs", "reference_logprobs", "entropies", "advantages")
"""Lists of a message with values of its sampled tokens alone."""
_ANNOTATED = ("trainer_logprobs", "entropies", "advantages")
"""Values of annotations that are columns of the Record: one for each token of a branch, null where there is none."""


def _samples(line: Any) -> Iterator[Any]:
    """One row for each path from the first message to a last one: what a model saw and sampled, in order."""
    traces = line.get("traces") if isinstance(line, Mapping) else None
    if inside(line, "run.work.type") == "eval":
        yield SetAside("episodes of an evaluation")
    elif traces == [] and isinstance(line.get("task"), Mapping):
        yield SetAside("episodes that ended without a rollout")
    else:
        for place, trace in enumerate(traces if isinstance(traces, list) else [line]):
            if inside(trace, "agent.trainable") is False:
                yield SetAside("rollouts of an agent that is not trained")
            else:
                yield from _branches(line, place, trace)


def _branches(line: Any, place: int, trace: Any) -> Iterator[Any]:
    nodes = trace.get("nodes") if isinstance(trace, Mapping) else None
    if not isinstance(nodes, list):
        yield {}
        return
    is_known = isinstance(trace.get("agent"), Mapping)  # any log may have nodes; these fields are a rollout's
    parents = {node.get("parent") for node in nodes if isinstance(node, Mapping)}
    leaves = [index for index in range(len(nodes)) if index not in parents]
    info, learned = _learned(trace)
    facts = {"trace": trace, "line": line, "info": info or None, "reward": _reward(trace), **_version(info)}
    for branch, leaf in enumerate(leaves):
        path = _path(nodes, leaf)
        row = _joined([nodes[at] for at in path])
        if is_known and not any(row["mask"]):
            yield SetAside("branches without a sampled token")
            continue
        yield from _annotate(row, learned.get(branch, {}))
        yield {**row, **facts, **_prompts(trace, path), "place": f"{place}-{leaf}"}
    if is_known and not leaves:
        yield SetAside("branches without a sampled token")
    if weighted := sum(1 for node in nodes if isinstance(node, Mapping) and node.get("loss_weights")):
        yield SetAside("messages with loss_weights, which no column takes", weighted)


def _path(nodes: list[Any], leaf: int) -> list[int]:
    path: list[int] = []
    at: Any = leaf
    while isinstance(at, int) and 0 <= at < len(nodes) and len(path) <= len(nodes) and isinstance(nodes[at], Mapping):
        path.append(at)
        at = nodes[at].get("parent")
    return path[::-1]


def _joined(path: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The lists of all messages of a path, one after the other. A list that one sampled message lacks is absent.

    A token belongs to the turn that sampled it, or that saw it first.
    """
    sampled = [node for node in path if any(node.get("mask") or ())]
    lists: dict[str, Any] = {name: [x for node in path for x in node.get(name) or ()] for name in ("token_ids", "mask")}
    for name in _COMPACT:
        values: list[Any] = [node.get(name) for node in sampled]
        if odd := [value for value in values if value is not None and not isinstance(value, list)]:
            lists[name] = odd[0]  # of a form that no step takes: the row is rejected for it
        elif values and None not in values:
            lists[name] = [x for part in values for x in part]
    turns, turn = list[int](), 0
    for node in path:
        turns += [turn] * len(node.get("mask") or ())
        turn += any(node.get("mask") or ())
    return lists | {"turns": turns}


def _learned(trace: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Any, dict[str, Any]]]:
    """The facts of a trace with those of its annotations; and branch -> name -> values. The newest win."""
    info = _merged({}, trace.get("info") or {})
    values: dict[Any, dict[str, Any]] = {}
    for annotation in trace.get("annotations") or ():
        info = _merged(info, annotation.get("info") or {})
        for branch in annotation.get("branches") or ():
            values.setdefault(branch.get("index"), {}).update(branch)
    return info, values


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


def _annotate(row: dict[str, Any], learned: Mapping[str, Any]) -> Iterator[SetAside]:
    """Puts the values of annotations into a row, as its other lists are; tells what no column takes.

    ValueError for another number of values than the branch has tokens. A stream may end early: the trainer cuts long branches.
    """
    mask = row["mask"]
    for name, values in learned.items():
        if name in _ANNOTATED and values:
            if not isinstance(values, list) or len(values) > len(mask):
                raise ValueError(f"its annotation {name} is no list of at most {len(mask)} values, one for each token")
            row[name] = [value for value, sampled in zip(_filled(values, len(mask)), mask, strict=True) if sampled]
        elif name != "index" and values is not None:
            yield SetAside(f"annotations {name[:40]!r} of branches, which no column takes")
    scored = _filled(learned.get("trainer_logprobs") or [], len(mask))
    if any(value is not None for value in scored):
        row["scored"] = [bool(sampled) and value is not None for value, sampled in zip(scored, mask, strict=True)]
        if unscored := sum(map(bool, mask)) - sum(row["scored"]):
            yield SetAside(
                "sampled tokens without a log-prob of the trainer (not in its loss, cut, or no number)", unscored
            )
    elif "trainer_logprobs" in learned:
        row.pop("trainer_logprobs", None)


def _filled(values: Sequence[Any], count: int) -> list[Any]:
    return [*values, *[None] * (count - len(values))]


def _version(info: Mapping[str, Any]) -> dict[str, int]:
    """The weights that a batch trains on: those of the step before it."""
    step = inside(info, "ship.step")
    return {"trainer_version": step - 1} if isinstance(step, int) and step > 0 else {}


def _reward(trace: Mapping[str, Any]) -> float | None:
    """The sum of a trace's rewards, each times its weight."""
    rewards = trace.get("rewards")
    parts = [part for part in rewards.values() if isinstance(part, Mapping)] if isinstance(rewards, Mapping) else []
    return float(sum(float(part["score"]) * float(part.get("weight", 1)) for part in parts)) if parts else None


def _prompts(trace: Mapping[str, Any], path: Sequence[int]) -> dict[str, int]:
    """Tokens of the prompts of all calls, and those of them from a cache; {} where a call of the path did not count them."""
    calls = [call for call in trace.get("calls") or () if isinstance(call, Mapping) and call.get("node") in path]
    usages = [call["usage"] for call in calls if isinstance(call.get("usage"), Mapping)]
    if not usages or len(usages) < sum(1 for at in path if any(trace["nodes"][at].get("mask") or ())):
        return {}
    cached = [usage.get("cached_input_tokens") for usage in usages]
    total = sum(usage["prompt_tokens"] + (part or 0) for usage, part in zip(usages, cached, strict=True))
    return {"prompt_tokens": total} | ({} if None in cached else {"cached_tokens": sum(cached)})


_TRACES = FileKind(
    what="annotated traces of verifiers 0.4, and the stream of prime-rl's run folder (monitors/file/traces)",
    file=r"(?:step_(?P<step>\d+)/(?:.*/)?)?traces\.jsonl|(?:stream/)?\d{5}\.jsonl",
    container="json lines",
    marks=("mask", "token_ids", "trace"),
    split=_samples,
    grows=True,
    annotated="traces",
    columns=columns("""
        step = info.ship.step or @step or line.run.work.step or line.step or trace.step
        generation_step = line.run.work.step
        sequence_ids = place | named(@step, @line, trace.id)
        group_ids = line.group.id or trace.task.key or trace.task.hash
        rollout_logprobs = logprobs | spread_over(mask) | span(mask)
        current_logprobs = trainer_logprobs | spread_over(mask) | span(mask)
        reference_logprobs = reference_logprobs | spread_over(mask) | span(mask)
        entropy = entropies | spread_over(mask) | span(mask)
        advantages = advantages | spread_over(mask) | span(mask)
        mask = scored or mask | span(mask)
        loss_mask = scored | span(mask)
        token_ids = token_ids | span(mask)
        turns = turns | span(mask)
        prompt_ids = token_ids | before(mask)
        rollout_version_min = line.run.work.policy.start
        rollout_version_max = line.run.work.policy.end
        trainer_version = trainer_version
        rewards = trace.reward or reward
        finish_reasons = trace.stop_condition
        prompt_tokens = prompt_tokens
        cached_tokens = cached_tokens
        extra.environment = line.env.name or line.env.id
        extra.agent = trace.agent.name
        extra.info = info
    """),
    lacks="digits: verifiers writes 4 decimals; of a trace that no annotation ships, the step that trained on it: its step is the"
    " one that asked for it",
)
_ANNOTATIONS = FileKind(
    what="annotations of traces (annotations/<producer>): the step that shipped a trace, and values of its branches",
    file=r"annotations/[\w-]+(?:/\d+)?\.jsonl",
    container="json lines",
    marks=("trace_id", "branches or info"),
    grows=True,
    annotates="trace_id",
    columns=(),
)
FORMATS = (
    Format(
        name="verifiers",
        title="verifiers traces.jsonl, and prime-rl's run folder",
        trainer="prime_rl",
        parts=(_TRACES, _ANNOTATIONS),
        resolution={"rollout": 5e-5, "current": 5e-5},
    ),
)
