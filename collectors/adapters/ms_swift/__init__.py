"""ms-swift's GRPO trainers: every micro-batch of the transformers trainer and of the Megatron trainer, where the loss gets it.

    GRPOTrainer._fast_infer, async_generate_rollout, _prefetch    which weights sampled
    score_completions                   rewards of this rank's samples
    collate_to_grpo_micro_batch         samples -> GRPOBatch; the hook notes the facts of each row beside it
    get_chunked_inputs                  a part of a GRPOBatch
    _compute_loss_and_metrics, loss_func    the loss of a micro-batch, which is recorded here
    _get_per_token_logps_and_entropies  current log-probs and entropies, within the loss
    _get_rollout_is_correction, _apply_rollout_importance_sampling, _compute_off_policy_sequence_mask    what the loss leaves out
    compute_liger_loss                  a fused loss, which has no current log-probs: rollout and old are recorded

Facts are noted on the samples themselves, because ranks exchange samples: dynamic sampling deals them out anew, and sequence
parallelism gathers those of its group, which all hold the same micro-batches then; the first of them records.

The class inherits TRL's GRPOTrainer and replaces its methods: a batch is a list of micro-batches, and the loss takes a GRPOBatch.
The Ray entry points compute the loss in workers that know neither samples nor steps, and are not recorded.

It follows swift/rlhf_trainers/{grpo_trainer,rollout_mixin,utils}.py, swift/rl_core/data.py and
swift/megatron/trainers/grpo_trainer.py of ms-swift 4.6.0.
"""

from ...watching.hooks import Hook
from .recorder import SwiftRecorder

_HF, _MEGATRON = "swift.rlhf_trainers.grpo_trainer", "swift.megatron.trainers.grpo_trainer"


def _of_losses(name: str, after: str) -> tuple[Hook, ...]:
    return (
        Hook(_HF, f"GRPOTrainer.{name}", after=after, needed=False),
        Hook(_MEGATRON, f"MegatronGRPOTrainer.{name}", after=after, needed=False),
    )


HOOKS = (
    Hook(_HF, "GRPOTrainer._generate_and_score_completions", before="making_begins", after="making_ends"),
    Hook(_MEGATRON, "MegatronGRPOTrainer._generate_and_score_completions", before="making_begins", after="making_ends"),
    Hook(_HF, "GRPOTrainer._fast_infer", before="inference_begins", after="inference_ends", needed=False),
    Hook(_HF, "GRPOTrainer.async_generate_rollout", before="launched", needed=False),
    Hook(_HF, "GRPOTrainer._prefetch", after="launched", needed=False),
    Hook("swift.rl_core.grpo_algorithm", "score_completions", after="rewarded", needed=False),
    Hook("swift.rlhf_trainers.utils", "collate_to_grpo_micro_batch", after="collated"),
    Hook(_HF, "GRPOTrainer.get_chunked_inputs", after="chunked", needed=False),
    Hook(_HF, "GRPOTrainer._compute_loss_and_metrics", before="loss_begins", after="loss_ends"),
    Hook(_MEGATRON, "MegatronGRPOTrainer.loss_func", before="loss_begins", after="megatron_loss_ends"),
    Hook(_HF, "GRPOTrainer._get_per_token_logps_and_entropies", after="scored"),
    Hook(_HF, "GRPOTrainer.compute_liger_loss", before="loss_begins", after="fused_loss_ends", needed=False),
    *_of_losses("_apply_rollout_importance_sampling", "weighted"),
    *_of_losses("_compute_off_policy_sequence_mask", "sequences_masked"),
)

recorder = SwiftRecorder
