"""What the NeMo-RL adapter says of what it cannot record, in that trainer's words."""

ABSENT_OLD = (
    "prev_logprobs are skipped (loss_fn.force_on_policy_ratio without grpo.seq_logprob_error_threshold) and zeros stand in "
    "for them: old is not recorded, total is; loss_fn.force_on_policy_ratio: false records it"
)
ABSENT_REFERENCE = (
    "reference_policy_logprobs are skipped; grpo.skip_reference_policy_logprobs_calculation: false records them"
)
ABSENT_VERSIONS = (
    "weight versions of the prompt groups are unknown: the process of the replay buffer has to be recorded as well, which "
    "`ratioscope run` does"
)
ABSENT_STEP = (
    "current is not recorded: the driver did not tell the step; record its process as well, as `ratioscope run` does"
)
FILTERED = (
    "with top_p or top_k NeMo-RL sets prev_logprobs and current to 0.0 at tokens that its own filter excludes: a large "
    "positive log-ratio there is no mismatch of the engines"
)
VERSIONS = {
    "sync": "steps done when the step was sampled; generation is refitted before each rollout",
    "async": "weight_version of the prompt group, when its rollout began; with in_flight_weight_updates it may end with newer",
}
