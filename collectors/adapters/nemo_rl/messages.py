"""Messages about columns that the NeMo-RL adapter cannot record, with the setting that records them."""

ABSENT_OLD = (
    "NeMo-RL skips prev_logprobs (loss_fn.force_on_policy_ratio without grpo.seq_logprob_error_threshold) and fills in zeros: "
    "old is not recorded, total is; loss_fn.force_on_policy_ratio: false records old"
)
ABSENT_REFERENCE = (
    "NeMo-RL skips reference_policy_logprobs; grpo.skip_reference_policy_logprobs_calculation: false records them"
)
ABSENT_VERSIONS = (
    "it is not known which weights sampled, so lag is not recorded: asynchronous training tells it in the replay buffer's "
    "process, which `ratioscope run` records too, synchronous training with a refit before the rollout"
)
ABSENT_STEP = (
    "current is not recorded: the driver did not send the step; record its process as well, as `ratioscope run` does"
)
FILTERED = (
    "with top_p or top_k NeMo-RL sets prev_logprobs and current to 0.0 at tokens that its own filter excludes: the large "
    "positive log-ratio there does not come from a mismatch of the engines"
)
VERSIONS = {
    "sync": "steps done at the last refit of the generation before the rollout",
    "async": "weight_version of the prompt group at the start of its rollout; with in_flight_weight_updates later tokens may "
    "have newer weights",
}
