"""TRL: the completions Parquet. It holds log-probs only where a reward function added them with log_extra."""

from ..table import FileKind, Format, columns

_COMPLETIONS = FileKind(
    what="completions with log-probs that log_extra added",
    file=r"completions_(?P<step>\d+)\.parquet",
    container="parquet",
    marks=("completion", "rollout_logprobs or sampling_per_token_logps or logprobs"),
    columns=columns("""
        step = step or @step
        sequence_ids = @row | named(@step)
        rollout_logprobs = rollout_logprobs or sampling_per_token_logps or logprobs | lists !
        old_logprobs = old_logprobs or old_per_token_logps | lists
        current_logprobs = current_logprobs or per_token_logps | lists
        token_ids = completion_ids or token_ids | lists
        prompt_ids = prompt_ids | lists
        mask = completion_mask or tool_mask | lists | nonzero
        rewards = reward
        advantages = advantage
        prompt_texts = prompt
        extra.completion = completion
    """),
    lacks="whatever log_extra was not given; only the last generation batch of a step",
)
_TEXTS = FileKind(
    what="completions as text",
    file=r"completions_(?P<step>\d+)\.parquet",
    container="parquet",
    marks=("completion", "advantage"),
    columns=(),
    refused="it holds texts and rewards, no log-probs: give log_extra the columns completion_ids and rollout_logprobs in a reward"
    " function, or name the columns that hold them: --map rollout_logprobs=COLUMN",
)
FORMATS = (Format(name="trl", title="TRL completions Parquet", trainer="trl", parts=(_COMPLETIONS, _TEXTS)),)
