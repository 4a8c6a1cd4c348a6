"""Messages about a SkyRL run, each sent once: absent policies with the reason, and values that need care."""

SYNC_VERSIONS = "the trainer's finished steps at the engine's last weight sync"
ASYNC_VERSIONS = (
    "the trainer's finished steps at the engine's last weight sync before the prompt was scheduled: the oldest weights of its "
    "tokens; weights may change within a sequence, and extra has the newest (rollout_version_newest)"
)
NO_VERSIONS = (
    "it is not known which weights sampled some sequences, so their lag is not recorded: no weight sync came before, or a "
    "generator that does not hold the trainer's inference_engine_client sampled them; attach(..., rollout_version=...) can "
    "supply it"
)
NO_ROLLOUT = (
    "the generator returns no rollout_logprobs, so neither mismatch nor total is recorded; SkyRL's own generator returns them "
    "with generator.sampling_params.logprobs=1 (and without a custom chat template), a custom generator must return them itself"
)
NO_OLD = (
    "SkyRL skips the policy's forward pass because trainer.algorithm.policy_loss_type={loss} reads no old log-probs, so mismatch "
    "and drift are not recorded; total is. trainer.algorithm.off_policy_correction.outlier_token_is_threshold_high=1e9, a bound "
    "that no weight reaches, makes SkyRL run the pass"
)
NO_CURRENT = "the workers return no log-probs per token with forward_backward, so total and drift are not recorded"
OUT_OF_ORDER = (
    "this SkyRL returns current log-probs out of order when trainer.max_tokens_per_microbatch is set, so they are not recorded; "
    "0.4.0 returns them in order, and so does trainer.max_tokens_per_microbatch=-1"
)
CLAMPED = (
    "{tokens} rollout log-probs are -9999, which SkyRL's servers fill in if the engine gives none or no finite one; they are "
    "recorded as NaN"
)
APPENDED_ENDS = (
    "with generator.use_conversation_multi_turn=false SkyRL appends an end-of-sequence token with rollout log-prob 0, even if "
    "the engine sampled one; the token is in the loss, and is recorded as not sampled"
)
ZERO_ENDS = (
    "{} of {} sequences end with an end-of-sequence token whose rollout log-prob is exactly 0; it is not known whether the "
    "generator appended it, so it counts as sampled"
)
