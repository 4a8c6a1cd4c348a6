"""slime: the `.pt` files of --save-debug-rollout-data and --save-debug-train-data, joined by the place in the rollout."""

from dataclasses import replace

from ..table import FileKind, Format, columns

ANY = r"(?![^/]*eval)[^/]*\.pt"
"""The user chooses the names; the number of the rollout lies inside. miles is a fork of slime and has the same names."""
SAMPLE = """
        group_ids = group_index
        token_ids = tokens | last(response_length)
        prompt_ids = tokens | but_last(response_length)
        rollout_logprobs = rollout_log_probs
        mask = loss_mask | ones(rollout_log_probs) | nonzero
        rollout_version_min = weight_versions | lowest
        rollout_version_max = weight_versions | highest
        rewards = reward | if_number
        finish_reasons = status
        prompt_texts = prompt
    """
_ROLLOUT = FileKind(
    what="samples of a rollout",
    file=ANY,
    container="torch",
    marks=("^rollout_id", "^samples.*.response_length"),
    rows="samples",
    side="rollout",
    columns=columns(f"""
        step = ^rollout_id !
        key.step = ^rollout_id
        key.position = @row
        sequence_ids = index or @row | named(^rollout_id)
        {SAMPLE}
        prompt_tokens = prefix_cache_info.total_prompt_tokens
        cached_tokens = prefix_cache_info.cached_tokens
        extra.remove_sample = remove_sample
        extra.reward = reward | unless_number
        extra.weight_versions = weight_versions | names
    """),
    lacks="weights per token: versions are those of the calls to the engine",
)
TRAINED = """
        token_ids = tokens | last(response_lengths)
        prompt_ids = tokens | but_last(response_lengths)
        rollout_logprobs = rollout_log_probs
        old_logprobs = log_probs
        reference_logprobs = ref_log_probs
        entropy = entropy
        mask = loss_masks | nonzero
        loss_mask = loss_masks | nonzero
        advantages = advantages
    """
_TRAIN = FileKind(
    what="training samples, form 2 (from 2026-08)",
    file=ANY,
    container="torch",
    marks=("^format_version", "^samples.*.rollout_position"),
    rows="samples",
    side="train",
    columns=columns(f"""
        step = ^rollout_id !
        key.step = ^rollout_id
        key.position = rollout_position !
        sequence_ids = sample_index | named(^rollout_id)
        {TRAINED}
        rewards = local_raw_reward or rewards
        extra.trained_reward = rewards
    """),
    lacks="log-probs of each optimizer step; `log_probs` is the first training forward where the old pass was skipped",
)
_TRAIN_OLD = replace(
    _TRAIN,
    what="training samples, form 1 (one file for each rank)",
    marks=("^rollout_data.response_lengths", "^rollout_data.partition"),
    rows="rollout_data",
    counted_by="response_lengths",
    columns=columns(f"""
        step = ^rollout_id !
        key.step = ^rollout_id
        key.position = partition !
        sequence_ids = sample_indices | named(^rollout_id)
        {TRAINED}
        rewards = local_raw_reward or rewards
        extra.trained_reward = rewards
    """),
    lacks="samples of context-parallel ranks, which hold slices: they are rejected, because their lengths disagree",
)
_EVALUATION = FileKind(
    what="samples of an evaluation",
    file=r"[^/]*eval[^/]*\.pt",
    container="torch",
    marks=("^rollout_id", "^samples"),
    columns=(),
    refused="it holds samples of an evaluation, which no step trains on; to import them alone:"
    " ratioscope import FILE --from slime",
)
FORMATS = (
    Format(
        name="slime",
        title="slime rollout and train .pt, forms 1 and 2",
        trainer="slime",
        parts=(_TRAIN, _TRAIN_OLD, _ROLLOUT),
        join_on=("step", "position"),
        step_inside="rollout_id",
    ),
    Format(name="slime-evaluation", title="slime evaluation .pt", trainer="slime", parts=(_EVALUATION,)),
)
