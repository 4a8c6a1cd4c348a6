"""open-instruct: `<run>_rollouts_%06d.jsonl` of --save_traces, the sampler's side."""

from ..table import FileKind, Format, columns

_ROLLOUTS = FileKind(
    what="rollouts",
    file=r".*_rollouts_\d+\.jsonl",
    container="json lines",
    marks=("response_tokens", "logprobs", "prompt_tokens"),
    side="rollout",
    columns=columns("""
        step = step !
        sequence_ids = sample_idx | named(step)
        group_ids = prompt_idx | named(step)
        token_ids = response_tokens
        prompt_ids = prompt_tokens
        rollout_logprobs = logprobs !
        rewards = reward
        advantages = advantage
        finish_reasons = finish_reason
        extra.dataset = dataset
    """),
    lacks="the trainer's side and versions",
)
FORMATS = (
    Format(name="open-instruct", title="open-instruct rollouts JSONL", trainer="open_instruct", parts=(_ROLLOUTS,)),
)
