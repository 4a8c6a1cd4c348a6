"""The trainers that can be recorded, one row each. `attach`, `ratioscope attach`, the docs and the tests read this table.

Importing this file loads no adapter (adapter.py).
"""

from .adapter import SERVICE, Adapter

_RUN = "ratioscope run --out {run} -- <your training command>"
_BY_FLAGS = (
    f"{_RUN}\n\n"
    "or RATIOSCOPE_RUN={run} and RATIOSCOPE_LAUNCH=$(date +%s) among the env_vars of Ray's runtime environment, and\n"
    "  --custom-megatron-init-path ratioscope.collectors.adapters.{name}.megatron_init \\\n"
    "  --custom-rollout-log-function-path ratioscope.collectors.adapters.{name}.rollout_log"
)
_OF_SLIME = (
    "rollout, old, current, reference, entropy, masks before and after rejection, versions per call, groups, rewards, "
    "advantages, turns, cached tokens; context-parallel slices with positions"
)
_OWN_ROLLOUT = "a rollout function of your own passes `log_probs` to `sample.append_response_tokens`"

ADAPTERS: tuple[Adapter, ...] = (
    Adapter(
        name="verl",
        title="verl",
        package="verl",
        classes=("verl.trainer.ppo:PPOTrainer", "verl.trainer.ppo:RayPPOTrainer"),
        distribution="verl",
        tested=("0.9.1",),
        against="package",
        rollout_setting=(
            "version 0.9 or later, else `actor_rollout_ref.rollout.calculate_log_probs=True`; an agent loop of your own returns "
            "`response_logprobs`"
        ),
        lines="RATIOSCOPE_RUN={run} python -m verl.trainer.main_ppo <your arguments>",
        no_self_noise="",
        records="rollout, old, current, reference, entropy, both masks, versions, groups, rewards, advantages; bypass too",
    ),
    Adapter(
        name="slime",
        title="slime",
        package="slime",
        tested=("2026-08-21",),
        against="source",
        rollout_setting=_OWN_ROLLOUT,
        lines=_BY_FLAGS.format(run="{run}", name="slime"),
        no_self_noise="",
        records=f"{_OF_SLIME}; by later source the likeliest tokens of both sides, with score centering",
    ),
    Adapter(
        name="miles",
        title="miles",
        package="miles",
        tested=("2026-08-21",),
        against="source",
        rollout_setting=_OWN_ROLLOUT,
        lines=_BY_FLAGS.format(run="{run}", name="miles"),
        records=f"{_OF_SLIME}; checksums of the engines' weights. "
        "Tokens of a sequence that remove_sample takes out count nowhere: miles sends its trainer no mask of them",
    ),
    Adapter(
        name="skyrl",
        title="SkyRL",
        package="skyrl",
        classes=("skyrl.train:RayPPOTrainer", "skyrl.train:FullyAsyncRayPPOTrainer"),
        distribution="skyrl",
        tested=("0.4.0",),
        against="package",
        rollout_setting=(
            "`generator.sampling_params.logprobs` is not null, and there is no custom chat template; a generator of your own "
            "returns them"
        ),
        lines="ratioscope run --out {run} -- python -m skyrl.train.entrypoints.main_base <your arguments>",
        no_self_noise="",
        records="rollout, old, current, reference, masks, versions, groups, rewards, advantages, stop reasons; in the driver;"
        " from 0.5.0 on the sampler's likeliest tokens where score centering has them, by its source",
    ),
    Adapter(
        name="nemo_rl",
        title="NeMo-RL",
        package="nemo_rl",
        tested=("2026-08-22",),
        against="source",
        lines="ratioscope run --out {run} -- python examples/run_grpo.py ...  # ratioscope in the workers' environments, too",
        no_self_noise="",
        records="rollout, old, current, reference, masks, versions, groups, rewards, advantages",
        unreached="the Megatron worker (models/policy/workers/megatron_policy_worker.py:29 imports megatron.bridge, which needs "
        "CUDA); SingleController (only that worker has train_microbatch, line 1372); PPO's loop (its critic is built of "
        "nemo_automodel: models/value/workers/dtensor_value_worker_v2.py:23)",
    ),
    Adapter(
        name="megatron_rl",
        title="Megatron-RL",
        package="megatron.rl",
        tested=("2026-08-22",),
        against="source",
        rollout_setting="`--rl-use-sequence-packing` is off",
        lines="ratioscope run --out {run} -- <your torchrun command>",
        records="rollout and old without sequence packing, with the policy's and the KV cache's version of each token of a "
        "single turn, mask, groups, rewards, advantages; log-probs that the engine did not tell are missing; no current",
    ),
    Adapter(
        name="fireworks",
        title="Fireworks cookbook",
        package="training",
        tested=("2026-08-19",),
        against="source",
        lines="ratioscope run --out {run} -- python -m training.recipes.async_rl_loop  # or your recipe",
        no_self_noise=SERVICE,
        records="rollout, raw (in extra), old, current, reference, masks, versions, groups, rewards, advantages; by later source "
        "the likeliest tokens of both sides, with score centering",
    ),
    Adapter(
        name="areal",
        title="AReaL",
        package="areal",
        classes=(
            "areal.trainer:PPOTrainer",
            "areal.trainer:PPOActor",
            "areal.trainer:PPOActorController",
            "areal.trainer:PPOActorControllerV2",
            "areal.engine:FSDPPPOActor",
            "areal.engine:MegatronPPOActor",
            "areal.experimental:ArchonPPOActor",
        ),  # fmt: skip
        distribution="areal",
        tested=("1.0.4",),
        against="package",
        lines=_RUN,
        records="rollout, old, current, reference, entropy, masks, versions per token, turns, groups, rewards, advantages",
    ),
    Adapter(
        name="torchtitan_rl",
        title="torchtitan RL",
        package="torchtitan.experiments.rl",
        distribution="torchtitan",
        tested=("0.3.0", "2026-08-21"),
        against="source",
        lines="ratioscope run --out {run} -- python -m torchtitan.experiments.rl.train <your arguments>",
        records="rollout, current, entropy, both masks with the reason, versions, groups, advantages; no old, which it does not "
        "compute, and no rewards, which stay with its controller",
    ),
    Adapter(
        name="art",
        title="ART",
        package="art",
        distribution="openpipe-art",
        tested=("0.5.18", "0.5.23"),
        against="source",
        rollout_setting="`allow_training_without_logprobs` is not set: then ART leaves out choices without them",
        lines='ratioscope run --out {run} -- python <your script>  # or ratioscope.attach("art", "{run}") in it',
        no_self_noise="its loss function is called with packed rows of shared prompts, which no other batch can repeat; "
        "`ratioscope rescore --floor` measures the floor afterwards",
        records="with the unsloth back end: rollout, old (only with precalculate_logprobs), current, reference, entropy, both "
        "masks, groups within a packed row, advantages; log-probs that the sampler did not tell are missing, and counted; "
        "neither versions nor rewards; its Megatron and Tinker back ends are not recorded",
    ),
    Adapter(
        name="xtuner",
        title="xtuner",
        package="xtuner",
        distribution="xtuner",
        tested=("2026-08-21",),
        against="source",
        lines="ratioscope run --out {run} -- python xtuner/v1/train/cli/rl.py --config <your configuration>",
        records="rollout, old, current, reference, both masks, advantages, pack index and position; no current of tokens that "
        "its rollout correction rejects; its controller packs sequences without their names, so neither groups, rewards nor "
        "rollout versions; nothing with sequence parallelism (sp_size > 1)",
        unreached="the worker's start with its FSDP engine (v1/rl/trainer/worker.py:225 sets an accelerator, which a CPU is not; "
        "so a pack is not split over ranks either, line 622)",
    ),
    Adapter(
        name="ms_swift",
        title="ms-swift",
        package="swift",
        classes=("swift.rlhf_trainers:GRPOTrainer", "swift.megatron:MegatronGRPOTrainer"),
        distribution="ms-swift",
        tested=("4.6.0",),
        against="source",
        rollout_by_default=False,
        rollout_setting="`use_vllm: true` with `rollout_importance_sampling_mode`, or `log_rollout_offpolicy_metrics: true`",
        lines="ratioscope run --out {run} -- swift rlhf --rlhf_type grpo <your arguments>",
        records="rollout (only with use_vllm), old, current, reference, entropy, both masks with reasons, turns, versions, "
        "groups, rewards, advantages; with use_liger_kernel neither current nor entropy, so mismatch alone; of ranks that split "
        "sequences (sequence_parallel_size) the first; its Ray entry points are not recorded",
    ),
    Adapter(
        name="unsloth",
        title="unsloth",
        package="unsloth",
        classes=(
            "UnslothGRPOTrainer:UnslothGRPOTrainer",
            "UnslothRLOOTrainer:UnslothRLOOTrainer",
            "unsloth_cache_UnslothGRPOTrainer:UnslothGRPOTrainer",
            "unsloth_cache_UnslothRLOOTrainer:UnslothRLOOTrainer",
        ),
        distribution="unsloth",
        tested=("2026.10.9",),
        against="package",
        rollout_by_default=False,
        rollout_setting="`use_vllm=True`, or a `rollout_func` that returns them; RLOO with vLLM alone",
        lines='import ratioscope\n\nratioscope.attach(trainer, "{run}")  # before trainer.train()',
        no_self_noise="its forward decides by what earlier forwards found which path a later one takes, so a second one may "
        "change training; `ratioscope rescore --floor` measures the floor afterwards",
        records="GRPO: rollout (with vLLM or a rollout_func), old, current, reference, masks with the reasons of its "
        "corrections, turns, versions, groups, rewards, advantages; neither entropies nor the off-policy mask, which stay in its "
        "compiled loss; RLOO: as TRL's",
    ),
    Adapter(
        name="trl",
        title="TRL",
        package="trl",
        classes=("trl:GRPOTrainer", "trl:RLOOTrainer", "trl:AsyncGRPOTrainer"),
        distribution="trl",
        tested=("1.16.0",),
        against="package",
        rollout_by_default=False,
        rollout_setting="`use_vllm=True`, or a `rollout_func` that returns them; RLOO with vLLM alone; AsyncGRPO has them",
        lines='import ratioscope\n\nratioscope.attach(trainer, "{run}")  # before trainer.train()',
        no_self_noise="",
        records="GRPO: rollout, old, current, reference, entropy, masks, turns, versions, groups, rewards, advantages; RLOO: the "
        "same, rollout with vLLM only; AsyncGRPO: rollout, current (it has no old), entropy, masks, turns, versions, groups, "
        "rewards, advantages; Axolotl's plain GRPO trainer too, its asynchronous ones are refused with the reason",
    ),
    Adapter(
        name="prime_rl",
        title="prime-rl",
        package="prime_rl",
        tested=("2026-08-21",),
        against="source",
        lines=_RUN,
        records="rollout, current, entropy, reference, both masks, advantages; from the orchestrator versions, groups, rewards; "
        "by later source both sides at the ids of the sampling mask, with score centering; it has no old policy",
    ),
    Adapter(
        name="openrlhf",
        title="OpenRLHF",
        package="openrlhf",
        distribution="openrlhf",
        tested=("0.11.2",),
        against="package",
        rollout_by_default=False,
        rollout_setting="`--algo.advantage.is_correction_level token`; before 0.11.2 `--algo.advantage.is_correction_enable`",
        lines=_RUN,
        records="rollout (only with --algo.advantage.is_correction_level), old, current, reference, entropy, mask, versions "
        "(synchronous), groups, rewards, advantages",
    ),
    Adapter(
        name="molt",
        title="MOLT",
        package="molt",
        distribution="molt-rl",
        tested=("0.2.1",),
        against="package",
        rollout_by_default=False,
        rollout_setting="`--algo.advantage.is_correction_level token`, or `--algo.advantage.score_centering_top_k`",
        lines=_RUN,
        records="rollout (only with --algo.advantage.is_correction_level or score centering), old, current, reference, entropy, "
        "mask, groups, rewards, advantages; with score centering the likeliest tokens of both sides; no versions, which it does "
        "not note",
    ),
    Adapter(
        name="open_instruct",
        title="open-instruct",
        package="open_instruct",
        tested=("2026-08-20",),
        against="source",
        lines=_RUN,
        records="rollout, old, current, reference, entropy, both masks, advantages; from the data preparation versions, groups, "
        "rewards",
    ),
    Adapter(
        name="roll",
        title="ROLL",
        package="roll",
        tested=("2026-08-19",),
        against="source",
        rollout_setting="`actor_infer.generating_args.logprobs` is not null",
        lines=_RUN,
        records="rollout, old, current, reference, entropy, both masks, turns, versions "
        "(synchronous), groups, rewards, advantages",
    ),
    Adapter(
        name="tinker_cookbook",
        title="tinker-cookbook",
        package="tinker_cookbook",
        distribution="tinker-cookbook",
        tested=("0.6.1",),
        against="package",
        rollout_setting="a `TokenCompleter` of your own returns `maybe_logprobs`",
        lines=_RUN,
        no_self_noise=SERVICE,
        records="rollout, current, both masks, turns, versions, groups, rewards, advantages; it has no old policy",
    ),
)


def adapter_named(name: str) -> Adapter | None:
    """The adapter of this name, in which - and _ are the same; None if there is none."""
    return next((a for a in ADAPTERS if a.name == name.lower().replace("-", "_")), None)
