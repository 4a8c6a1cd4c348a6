"""What verl does not record, why, and which of its settings changes that; said once per run."""

NO_ROLLOUT = (
    "verl's batch has no rollout_log_probs, so neither mismatch nor total is recorded; they come with "
    "actor_rollout_ref.rollout.calculate_log_probs=True"
)
ZERO_ROLLOUT = (
    "every rollout_log_prob of the batch is 0.0: the agent loop returned none and verl filled them in, so that neither "
    "mismatch nor total is recorded; the agent loop has to return response_logprobs"
)
BYPASS = (
    "algorithm.rollout_correction.bypass_mode=True: verl computes no old log-probs and puts rollout_log_probs in their place, "
    "so there is no mismatch; total, current against rollout, is recorded by the workers. bypass_mode=False records old, too"
)
NO_OLD = "verl's batch has no old_log_probs, so that no mismatch is recorded"
NO_VERSIONS = (
    "no response carries min_global_steps and max_global_steps, the version of the weights that sampled it, so that staleness "
    "is unknown; the engine's server has to stamp global_steps on its responses, as verl's own do"
)
MASK_LOST = (
    "rows were changed between the rollout correction and the update, so that the mask before rejection is lost; mask is "
    "recorded as it is after rejection"
)
NO_CURRENT = (
    "the model returned no log_probs to the actor's loss (distillation without policy gradient), so that neither total nor "
    "drift is recorded; distillation.distillation_loss.use_policy_gradient=True computes them"
)
NO_STEP = (
    "a worker learns the step from the weight sync before it, and there was none since the collector was attached; it records "
    "current from the next sync on"
)
WORKERS_APART = (
    "the workers were started before the collector was attached, so that they do not record current log-probs: attach before "
    "the trainer's init, or start the job with RATIOSCOPE_RUN set"
)
