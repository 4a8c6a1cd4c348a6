"""tinker-cookbook: the rows of its capture as JSON lines, the sampler's side with the version of the policy."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..table import FileKind, Format, columns


def _samples(line: Any) -> Iterator[Any]:
    """One row for each sample of a line."""
    listed = line.get("samples") if isinstance(line, Mapping) else None
    for place, one in enumerate(listed if isinstance(listed, list) else []):
        yield {**(one if isinstance(one, Mapping) else {}), "line": line, "place": place}


_CAPTURE = FileKind(
    what="samples of the capture",
    file=r".*\.jsonl",
    container="json lines",
    marks=("line.samples", "tokens", "logprobs"),
    split=_samples,
    side="rollout",
    columns=columns("""
        step = line.iteration or line.step
        sequence_ids = place | named(line.iteration, line.group_idx, line.traj_idx, @line)
        group_ids = line.group_idx | named(line.iteration)
        token_ids = tokens
        prompt_ids = line.prompt_tokens | lists
        rollout_logprobs = logprobs !
        rollout_versions = line.policy_version
        finish_reasons = stop_reason
    """),
    lacks="the trainer's side",
)
_DATABASE = FileKind(
    what="sampled sequences of capture.sqlite",
    file=r".*\.(?:sqlite|sqlite3|db)",
    container="sqlite wire_rows",
    marks=("sampled_tokens", "logprobs"),
    side="rollout",
    columns=columns("""
        step = iteration
        sequence_ids = sample_idx | named(run_attempt, iteration, group_idx, traj_idx, seq_id)
        group_ids = group_idx | named(iteration)
        token_ids = sampled_tokens | lists
        prompt_ids = prompt_tokens | lists
        rollout_logprobs = logprobs | lists !
        rollout_versions = policy_version
        extra.split = split
        extra.purpose = purpose
    """),
    lacks="the trainer's side; rows that a journal beside the file holds",
)
FORMATS = (
    Format(
        name="tinker",
        title="tinker-cookbook capture, SQLite or JSONL",
        trainer="tinker_cookbook",
        parts=(_DATABASE, _CAPTURE),
    ),
)
