"""What is said of a SkyRL run, once each: which policy is absent and why, and what its records are not."""

SYNC_VERSIONS = "the trainer's finished steps at the engine's last weight sync"
ASYNC_VERSIONS = (
    "the trainer's finished steps at the engine's last weight sync before the prompt was scheduled: the oldest weights of its "
    "tokens; weights may change in the middle of a sequence, extra says up to which (rollout_version_newest)"
)
NO_ROLLOUT = (
    "the generator returns no rollout_logprobs, so neither mismatch nor total is recorded; SkyRL's own returns them with "
    "generator.sampling_params.logprobs=1 (and without a custom chat template), a custom one has to"
)
NO_OLD = (
    "SkyRL skips the policy's forward pass because trainer.algorithm.policy_loss_type={loss} reads no old log-probs, so mismatch "
    "and drift are not recorded; total is. With trainer.algorithm.off_policy_correction.outlier_token_is_threshold_high=1e9, "
    "which no weight reaches, it makes the pass"
)
NO_CURRENT = "the workers return no log-probs per token with forward_backward, so total and drift are not recorded"
OUT_OF_ORDER = (
    "this SkyRL returns current log-probs out of order when trainer.max_tokens_per_microbatch is set, so they are not recorded; "
    "0.4.0 returns them in order, and so does trainer.max_tokens_per_microbatch=-1"
)
CLAMPED = (
    "{tokens} rollout log-probs are -9999: the engine gave none, or no finite one, and SkyRL's servers put that in its place; "
    "recorded as not a number"
)
APPENDED_ENDS = (
    "with generator.use_conversation_multi_turn=false SkyRL appends an end-of-sequence token with rollout log-prob 0, where "
    "the engine sampled one and where it did not; it is in the loss, and is recorded as not sampled"
)
ZERO_ENDS = (
    "{} of {} sequences end with an end-of-sequence token whose rollout log-prob is exactly 0; whether the generator put it "
    "there cannot be told, so it counts as sampled"
)
