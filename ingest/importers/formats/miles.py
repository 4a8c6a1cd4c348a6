"""miles: `.pt` files of --dump-details, the Parquet columns of its dashboard, and those of its policy-loss debugger."""

from ..table import FileKind, Format, columns
from .slime import ANY, SAMPLE, TRAINED

_TRAIN = FileKind(
    what="training columns of a rank",
    file=ANY,
    container="torch",
    marks=("^rollout_data.sample_indices", "^qkv_format"),
    rows="rollout_data",
    counted_by="response_lengths",
    side="train",
    columns=columns(f"""
        step = ^rollout_id !
        key.step = ^rollout_id
        key.index = sample_indices !
        sequence_ids = sample_indices | named(^rollout_id)
        {TRAINED}
        rewards = rewards
    """),
    lacks="samples of context-parallel ranks, which hold slices: they are rejected, because their lengths disagree",
)
_ROLLOUT = FileKind(
    what="samples of a rollout",
    file=ANY,
    container="torch",
    marks=("^rollout_id", "^metadata", "^samples.*.response_length"),
    rows="samples",
    side="rollout",
    columns=columns(f"""
        step = ^rollout_id !
        key.step = ^rollout_id
        key.index = index !
        sequence_ids = index | named(^rollout_id)
        {SAMPLE}
        extra.reward = reward | unless_number
        extra.weight_versions = weight_versions | names
    """),
)
_COLUMNS = FileKind(
    what="columns of the dashboard",
    file=r"rollout_(?P<step>\d+)\.parquet",
    container="parquet",
    marks=("sample_index", "rollout_log_probs"),
    side="rollout",
    columns=columns("""
        step = @step
        key.step = @step
        key.index = sample_index !
        sequence_ids = sample_index | named(@step)
        token_ids = tokens | last(response_length)
        prompt_ids = tokens | but_last(response_length)
        rollout_logprobs = rollout_log_probs
        mask = loss_mask | ones(rollout_log_probs) | nonzero
    """),
    lacks="the trainer's side",
)
_LOSS = FileKind(
    what="samples of one call of the loss",
    file=r"rank_(?P<rank>\d+)_call_(?P<step>\d+)\.pt",
    container="torch",
    marks=("^samples.*.train_log_probs", "^samples.*.local_loss_mask"),
    rows="samples",
    columns=columns("""
        step = @step
        sequence_ids = @row | named(@step, @rank)
        rollout_logprobs = rollout_log_probs
        old_logprobs = old_log_probs
        current_logprobs = train_log_probs !
        mask = local_loss_mask | nonzero
        loss_mask = local_loss_mask | nonzero
        advantages = advantages
    """),
    lacks="token ids; the step is the number of the call",
)
FORMATS = (
    Format(
        name="miles",
        title="miles rollout and train .pt",
        trainer="miles",
        parts=(_TRAIN, _ROLLOUT),
        join_on=("step", "index"),
        step_inside="rollout_id",
    ),
    Format(
        name="miles-columns",
        title="miles dashboard_columns Parquet",
        trainer="miles",
        parts=(_COLUMNS,),
        part_of="miles",
    ),
    Format(name="miles-loss", title="miles policy_loss_debug .pt", trainer="miles", parts=(_LOSS,)),
)
