"""Agent-Lightning 1.0: events of its server, as its route /rollouts/ID/events answers. The server keeps them in memory alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..row import Unreadable
from ..table import FileKind, Format, columns
from ..turns import OF_TURNS, Turn, sequences

_CALL = "model_request"


def _rollouts(value: Any) -> Any:
    """The events of each attempt at a rollout, in their order. A file that holds something else is left as it is."""
    events = value if isinstance(value, list) else []
    if not any(isinstance(event, Mapping) and event.get("event_type") == _CALL for event in events):
        return value
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        one = event if isinstance(event, Mapping) else {}
        names = str(one.get("rollout_id")), str(one.get("attempt_id"))
        empty = {"rollout_id": names[0], "attempt_id": names[1], "events": []}
        rows.setdefault(names, empty)["events"].append(event)
    return {"rollouts": list(rows.values())}


def _attempt(row: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each sequence of an attempt; an Unreadable for each call without log-probs or token ids."""
    calls, reward = list[tuple[Turn, Any]](), None
    for place, event in enumerate(row["events"]):
        data = event.get("data") or {}
        if event.get("event_type") == "reward":
            reward = data.get("value")
        if event.get("event_type") != _CALL:
            continue
        turn = _turn(data)
        if turn.logprobs is None or not turn.token_ids:
            failed = (data.get("status") or "ok") != "ok"
            yield Unreadable(f"its call {place} {'failed' if failed else 'has no log-probs or no token ids'}")
        else:
            calls.append((turn, data.get("model_version") or (data.get("server") or {}).get("version")))
    versions = [version for _, version in calls]
    for one in sequences(turn for turn, _ in calls):
        yield {**one, "line": row, "reward": reward, "version": versions[one["place"]]}


def _line(event: Mapping[str, Any]) -> Iterator[Any]:
    """The call that a line holds; nothing of an event of another kind has tokens."""
    yield from _attempt({**event, "events": [event]})


def _turn(data: Mapping[str, Any]) -> Turn:
    """A call, whole or as the route gives it with format=triplet."""
    response = data.get("response")
    if not isinstance(response, Mapping):
        return Turn(data.get("prompt_token_ids"), data.get("response_token_ids"), data.get("response_log_probs"))
    choice = (response.get("choices") or [{}])[0]
    said = choice.get("logprobs") or {}
    listed = [each["logprob"] for each in said["content"]] if said.get("content") else said.get("token_logprobs")
    return Turn(response.get("prompt_token_ids") or choice.get("prompt_token_ids"), choice.get("token_ids"), listed)


_LIST = FileKind(
    what="events of rollouts, a list in one file",
    file=r"[^/]*\.json",
    container="json",
    marks=("^rollouts.*.events",),
    rows="rollouts",
    prepared=_rollouts,
    split=_attempt,
    side="rollout",
    columns=columns(f"""
        sequence_ids = place | named(line.rollout_id, line.attempt_id, @line)
        group_ids = line.rollout_id
        {OF_TURNS}
        rewards = reward
        rollout_versions = version
    """),
    lacks="the trainer's side and steps (--step gives one); later calls of a sequence count to the version of the first",
)
_LINES = replace(
    _LIST,
    what="events of rollouts, one in each line",
    file=r"[^/]*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("line.event_type", "logprobs"),
    rows="",
    prepared=None,
    split=_line,
)
FORMATS = (
    Format(name="agent-lightning", title="Agent-Lightning events", trainer="Agent-Lightning", parts=(_LIST, _LINES)),
)
