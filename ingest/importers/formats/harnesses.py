"""Harnesses that run agents: rollouts of NeMo-Gym, trajectories of Harbor (ATIF), logs of Inspect: the sampler's side alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..table import ONLY_IF_NAMED, FileKind, Format, columns
from ..turns import OF_TURNS, Turn, sequences


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _gym_rollout(line: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each sequence of a rollout: the items of the response that the policy sampled, in order."""
    items = _mappings((line.get("response") or {}).get("output"))
    calls = [item for item in items if "generation_log_probs" in item]
    turns = (
        Turn(item.get("prompt_token_ids"), item.get("generation_token_ids"), item["generation_log_probs"])
        for item in calls
    )
    for one in sequences(turns):
        yield {**one, "line": line}


_GYM = FileKind(
    what="rollouts with token ids",
    file=r".*\.jsonl",
    container="json lines",
    marks=("line.response.output", "logprobs"),
    split=_gym_rollout,
    side="rollout",
    columns=columns(f"""
        step = line.step
        sequence_ids = place | named(@source, @line, line._ng_task_index, line._ng_rollout_index)
        group_ids = line._ng_task_index
        {OF_TURNS}
        rewards = line.reward
        finish_reasons = line.response.incomplete_details.reason or line.response.status
    """),
    lacks="the trainer's side, versions, and steps",
)


def _trajectory(document: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each sequence of a trajectory: the steps of the agent that carry log-probs, in order."""
    metrics = [step.get("metrics") for step in _mappings(document.get("steps")) if step.get("source") == "agent"]
    calls = [each for each in _mappings(metrics) if each.get("logprobs") is not None]
    turns = (Turn(each.get("prompt_token_ids"), each.get("completion_token_ids"), each["logprobs"]) for each in calls)
    for one in sequences(turns):
        yield {**one, "line": document}


def _trial(document: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each sequence of a trial: each part of its agent's rollout holds lists, one entry for each call."""
    for part, detail in enumerate(_mappings((document.get("agent_result") or {}).get("rollout_details"))):
        sampled = detail.get("logprobs") or []
        prompts, completions = (
            detail.get(name) or [None] * len(sampled) for name in ("prompt_token_ids", "completion_token_ids")
        )
        for one in sequences(map(Turn, prompts, completions, sampled)):
            yield {**one, "line": document, "part": part}


_TRAJECTORY = FileKind(
    what="trajectories (ATIF)",
    file=r"(?:.*[._-])?trajectory[^/]*\.json",
    container="json object",
    marks=("line.schema_version", "logprobs"),
    split=_trajectory,
    side="rollout",
    columns=columns(f"""
        sequence_ids = place | named(line.session_id)
        {OF_TURNS}
        extra.agent = line.agent.name
        extra.model = line.agent.model_name
    """),
    lacks="the trainer's side, versions and steps; rewards, which result.json holds",
)
_TRIAL = FileKind(
    what="trials with rollout details, if --from names it: trajectory.json holds the same tokens",
    file=ONLY_IF_NAMED,
    container="json object",
    marks=("line.trial_name", "logprobs"),
    split=_trial,
    side="rollout",
    columns=columns(f"""
        sequence_ids = place | named(line.trial_name, part)
        group_ids = line.task_name
        {OF_TURNS}
        rewards = line.verifier_result.rewards.reward
    """),
    lacks="the trainer's side, versions and steps",
)


def _outputs(sample: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each choice with log-probs: of the calls that the log holds, or of the final output where it holds none."""
    calls = [event.get("output") for event in _mappings(sample.get("events")) if event.get("event") == "model"]
    for outputs in (calls, [sample.get("output")]):
        choices = [choice for output in _mappings(outputs) for choice in _mappings(output.get("choices"))]
        choices = [choice for choice in choices if (choice.get("logprobs") or {}).get("content")]
        for place, choice in enumerate(choices):
            yield {"choice": choice, "sample": sample, "place": place}
        if choices:
            return


_INSPECT = FileKind(
    what="samples of an evaluation, by the text of each token",
    file=r".*\.eval",
    container="inspect",
    marks=("choice.logprobs.content",),
    split=_outputs,
    side="rollout",
    columns=columns("""
        sequence_ids = place | named(@file, sample.id, sample.epoch)
        group_ids = sample.id
        rollout_logprobs = choice.logprobs.content | numbers_of(logprob) !
        finish_reasons = choice.stop_reason
        token_texts = choice.logprobs.content | token_texts
        extra.texts = choice.logprobs.content | pick(token)
        extra.scores = sample.scores
    """),
    lacks="token ids, the trainer's side, and steps: join it with a file that holds them (--rollout, --train, --on)",
)
FORMATS = (
    Format(name="nemo-gym", title="NeMo-Gym rollouts", trainer="NeMo-Gym", parts=(_GYM,)),
    Format(name="harbor", title="Harbor trajectory.json (ATIF)", trainer="Harbor", parts=(_TRAJECTORY,)),
    Format(name="harbor-result", title="Harbor result.json", trainer="Harbor", parts=(_TRIAL,)),
    Format(name="inspect", title="Inspect .eval", trainer="Inspect", parts=(_INSPECT,)),
)
