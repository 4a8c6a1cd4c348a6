"""NeMo-RL's own GRPO on a CPU: a checkout's training loops, rollouts, batches, advantages, policy, workers, loss and logs.

Needs a checkout of NVIDIA-NeMo/RL in a folder of SOURCES. tests/support/nemo_rl_places.py says what stands in for CUDA and for
packages. The engine is a copy of the model in bfloat16 that samples by itself; the environment rewards even words. The same
training runs in one process (`drive`), and in a driver and workers of a real Ray (test_ray_trainers.py).
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from support.nemo_rl_places import WEIGHTS

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY, PROMPTS, GENERATIONS, NEW_TOKENS, STEPS = 29, 2, 4, 6, 3
ROWS = PROMPTS * GENERATIONS
Module = Callable[[str], Any]

SETTINGS = {
    "grpo": {"num_prompts_per_step": PROMPTS, "num_generations_per_prompt": GENERATIONS, "max_num_steps": STEPS,
             "max_rollout_turns": 2, "val_period": 0, "overlong_filtering": True, "async_grpo": {"max_generation_failures": 0}},
    "checkpointing": {"enabled": False},
    "logger": {"wandb_enabled": False, "tensorboard_enabled": False, "mlflow_enabled": False, "swanlab_enabled": False,
               "monitor_gpus": False},
    "policy": {"train_global_batch_size": ROWS, "train_micro_batch_size": 2, "logprob_batch_size": 2, "precision": "float32",
               "max_total_sequence_length": 32, "sequence_packing": {"enabled": False}, "dtensor_cfg": {"_v2": False},
               "optimizer": {"kwargs": {"lr": 0.01, "foreach": False, "fused": False}},
               "dynamic_batching": {"sequence_length_round": 4}, "scheduler": None,
               "generation": {"max_new_tokens": NEW_TOKENS, "vllm_cfg": {"async_engine": False},
                              "colocated": {"enabled": False, "resources": {"gpus_per_node": 1, "num_nodes": 1}}}},
    "cluster": {"gpus_per_node": 1, "num_nodes": 1},
}  # fmt: skip
"""Laid over examples/configs/grpo_math_1B.yaml."""


def drive(
    run_dir: Path | None, folder: Path, module: Module, *, options: AttachOptions | None = None, **settings: Any
) -> dict[str, Any]:
    """A training in this process, recorded into run_dir or not; all that it held. settings: a section of the config -> values."""
    attachment = None if run_dir is None else ratioscope.attach("nemo_rl", run_dir, **(options or AttachOptions()))
    gc.freeze()  # NeMo-RL collects garbage nine times a run, which takes seconds with all modules in memory
    try:
        held = train(folder, module, **settings)
    finally:
        gc.unfreeze()
        finished = attachment is None or attachment.detach()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return {**held, "finished": finished, "refused": None if attachment is None else attachment.refused}


def train(folder: Path, module: Module, *, workers: int = 1, **settings: Any) -> dict[str, Any]:
    """A training by NeMo-RL's loop, with so many data-parallel workers."""
    folder.mkdir(parents=True)
    torch.manual_seed(7)
    random.seed()  # NeMo-RL draws its ports
    (folder / "weights").mkdir()
    (folder / "loss").mkdir()
    os.environ[WEIGHTS] = str(folder / "weights")
    grpo = module("algorithms.grpo")
    tokenizer = tokenizer_in(folder / "model")
    config = config_in(folder, module, settings)
    cluster = module("distributed.virtual_cluster").RayVirtualCluster([workers], num_gpus_per_node=workers)
    batches: list[Any] = []
    policy = _policy(module, config, batches)(cluster, config.policy, tokenizer)
    engine = engine_of(module, config, folder)
    logs: list[Any] = []
    logger = module("utils.logger").Logger(config.logger)
    told = SimpleNamespace(log_metrics=lambda metrics, step, prefix="", *_: logs.append((step, prefix, dict(metrics))))
    told.log_histogram = told.log_plot = lambda *_, **__: None
    logger.loggers.append(told)
    given = {
        "policy": policy, "policy_generation": engine, "val_dataloader": None, "tokenizer": tokenizer,
        "loss_fn": _loss(module, folder / "loss", config.loss_fn), "task_to_env": {"even": environment(module)},
        "val_task_to_env": None, "logger": logger, "grpo_save_state": grpo._initial_grpo_save_state(), "master_config": config,
        "checkpointer": module("utils.checkpoint").CheckpointManager(config.checkpointing),
    }  # fmt: skip
    loader = prompts(module, tokenizer)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    quick = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, 0.02))})
    with mock.patch.object(grpo, "time", quick):
        if config.grpo.async_grpo.enabled:
            grpo.async_grpo_train(dataloader=loader, **given, max_trajectory_age_steps=1)
        elif config.data_plane["enabled"]:
            module("algorithms.grpo_sync").grpo_train_sync(wrapped_dataloader=loader, **given)
        else:
            grpo.grpo_train(wrapped_dataloader=loader, **given)
    policy.shutdown()
    losses = [torch.load(path) for path in sorted((folder / "loss").glob("*.pt"))]
    return {
        "batches": batches or _by_step(module, losses), "logs": logs, "dumps": sorted(folder.glob("logs/train_data_step*.jsonl")),
        "losses": losses,
        "weights": [torch.load(path) for path in sorted((folder / "weights").glob("*.pt"), key=lambda path: int(path.stem))],
        "rng": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),  # type: ignore[index]
    }  # fmt: skip


def config_in(folder: Path, module: Module, settings: dict[str, Any]) -> Any:
    """NeMo-RL's example config with SETTINGS and settings over it, as its own MasterConfig."""
    omegaconf: Any = importlib.import_module("omegaconf")
    own = module("utils.config")
    own.register_omegaconf_resolvers()
    example = Path(own.__file__).parents[2] / "examples/configs/grpo_math_1B.yaml"
    places = {"policy": {"model_name": str(folder / "model")}, "logger": {"log_dir": str(folder / "logs")}}
    config = omegaconf.OmegaConf.merge(own.load_config(example), SETTINGS, places, settings)
    plain = omegaconf.OmegaConf.to_container(config, resolve=True)
    if plain["policy"]["scheduler"] is None:
        del plain["policy"]["scheduler"]
    return module("algorithms.grpo").MasterConfig(**plain)


def tokenizer_in(folder: Path) -> Any:
    """A Qwen2 of one layer with a tokenizer of VOCABULARY words, saved in the folder."""
    tokenizers: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w1"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2", unk_token="w1")
    shape = transformers.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.4, tie_word_embeddings=False,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(shape).save_pretrained(folder)
    found.save_pretrained(folder)
    return found


def prompts(module: Module, tokenizer: Any) -> Any:
    """A data loader of prompts of three to five words, by torchdata's class and NeMo-RL's collation."""
    chance = random.Random(3)
    rows = []
    for index in range(16 * PROMPTS):
        ids = torch.tensor([chance.randrange(3, VOCABULARY) for _ in range(3 + index % 3)])
        message = {"role": "user", "content": tokenizer.decode(ids), "token_ids": ids}
        rows.append({"message_log": [message], "length": len(ids), "loss_multiplier": 1.0, "extra_env_info": {}, "idx": index,
                     "task_name": "even"})  # fmt: skip
    loader = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
    return loader(rows, batch_size=PROMPTS, collate_fn=module("data.collate_fn").rl_collate_fn)


def environment(module: Module) -> Any:
    """A Ray actor that rewards even words; the first answer with an even number of words gets a second turn."""
    answer, remote = module("environments.interfaces").EnvironmentReturn, importlib.import_module("ray").remote

    class Even:
        def step(self, logs: list[Any], metadata: list[Any]) -> Any:
            said = [log[-1]["content"].split() for log in logs]
            is_last = [len(words) % 2 == 1 or len(log) > 2 for words, log in zip(said, logs, strict=True)]
            rewards = [sum(int(word[1:]) % 2 == 0 for word in words) / NEW_TOKENS for words in said]
            told = [{"role": "environment", "content": "" if last else "w5 w6"} for last in is_last]
            return answer(told, metadata, [None] * len(logs), torch.tensor(rewards), torch.tensor(is_last), None)

    return remote(Even).remote()


def engine_of(module: Module, config: Any, folder: Path) -> Any:
    """The engine: a GenerationInterface whose actor has the model in bfloat16 and samples by a seed of prompt and weights."""
    interface = module("models.generation.interfaces").GenerationInterface
    batched, ray = module("distributed.batched_data_dict").BatchedDataDict, importlib.import_module("ray")
    actor = ray.remote(Sampler).remote(str(folder / "model"), str(folder / "weights"))

    class Engine(interface):  # type: ignore[misc, valid-type]
        cfg = config.policy["generation"]

        def generate(self, data: Any, greedy: bool) -> Any:
            return batched(ray.get(actor.sample.remote(data["input_ids"], data["input_lengths"])))

        async def generate_async(self, data: Any, greedy: bool) -> Any:
            for row in range(data.size):
                yield row, self.generate(data.slice(row, row + 1), greedy)

        def update_weights_from_collective(self) -> list[Any]:
            return [actor.update.remote()]

        def init_collective(self, *_: Any, **__: Any) -> list[Any]:
            return []

        def prepare_for_generation(self, *_: Any, **__: Any) -> bool:
            return True

        finish_generation = shutdown = invalidate_kv_cache = prepare_for_generation

        def clear_logger_metrics(self) -> None: ...

        def get_logger_metrics(self) -> dict[str, Any]:
            return {}

    return Engine()


class Sampler:
    """Samples rows one by one, so that a row depends on nothing but its prompt, its weights and how often it was asked for."""

    def __init__(self, model: str, weights: str) -> None:
        transformers: Any = importlib.import_module("transformers")
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model).bfloat16().eval()
        self._weights, self._updates = Path(weights), 0
        self._asked: dict[tuple[int, ...], int] = {}

    def update(self) -> bool:
        place = self._weights / f"{self._updates}.pt"
        deadline = time.monotonic() + 600
        while not place.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._model.load_state_dict(torch.load(place))
        self._updates += 1
        return True

    def sample(self, ids: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = [self._sampled(row[:length].tolist()) for row, length in zip(ids, lengths.tolist(), strict=True)]
        whole = torch.tensor([len(tokens) for tokens, _ in rows])
        return {
            "output_ids": torch.nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens, _ in rows], batch_first=True),
            "logprobs": torch.nn.utils.rnn.pad_sequence([torch.tensor(values) for _, values in rows], batch_first=True),
            "generation_lengths": whole - lengths, "unpadded_sequence_lengths": whole, "truncated": whole - lengths == NEW_TOKENS,
        }  # fmt: skip

    @torch.no_grad()
    def _sampled(self, tokens: list[int]) -> tuple[list[int], list[float]]:
        asked = self._asked[tuple(tokens)] = self._asked.get(tuple(tokens), 0) + 1
        digest = hashlib.sha256(repr((tokens, asked, self._updates)).encode()).digest()
        chance = torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))
        found = [0.0] * len(tokens)
        for _ in range(1 + int(torch.randint(NEW_TOKENS, (1,), generator=chance))):
            scores = torch.log_softmax(self._model(torch.tensor([tokens])).logits[0, -1].float(), -1)
            token = int(torch.multinomial(scores.exp(), 1, generator=chance))
            tokens, found = [*tokens, token], [*found, float(scores[token])]
            if token == 2:
                break
        return tokens, found


def _by_step(module: Module, losses: list[dict[str, Any]]) -> list[Any]:
    """The batch of each step, from the arguments of the loss: with the data plane the driver has no batch."""
    calls = len(losses) // STEPS
    together = module("distributed.batched_data_dict").BatchedDataDict.from_batches
    return [dict(together([call["data"] for call in losses[n * calls : (n + 1) * calls]])) for n in range(STEPS)]


def _policy(module: Module, config: Any, batches: list[Any]) -> Any:
    """NeMo-RL's Policy, which keeps a copy of each batch that it trains on, and sends its weights once more at the end."""
    ray = importlib.import_module("ray")
    has_plane = config.data_plane["enabled"]
    own = module("models.policy.tq_policy").TQPolicy if has_plane else module("models.policy.lm_policy").Policy
    plane = {"dp_cfg": config.data_plane} if has_plane else {}

    class Held(own):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, **plane)

        def train(self, data: Any, *given: Any, **named: Any) -> Any:
            batches.append({key: value.clone() for key, value in data.items() if isinstance(value, torch.Tensor)})
            return super().train(data, *given, **named)

        def shutdown(self) -> Any:
            if ray.is_initialized() and self.worker_group.workers:
                ray.get(self.broadcast_weights_for_collective())
            return super().shutdown()

    return Held


def _loss(module: Module, folder: Path, config: Any) -> Any:
    """NeMo-RL's loss, which also writes its arguments to the folder, in whichever process it is called."""
    own = module("algorithms.loss.loss_functions").ClippedPGLossFn

    class Held(own):  # type: ignore[misc, valid-type]
        def __call__(self, next_token_logprobs: Any, data: Any, *given: Any, **named: Any) -> Any:
            kept = {key: value.clone() for key, value in data.items() if isinstance(value, torch.Tensor)}
            number = len(list(folder.glob(f"{os.getpid()}-*.pt")))
            found = super().__call__(next_token_logprobs, data, *given, **named)
            torch.save(
                {
                    "current": next_token_logprobs.detach().clone(),
                    "data": kept,
                    "loss": found[0].detach(),
                    "logged": found[1],
                },
                folder / f"{os.getpid()}-{number:04}.pt",
            )
            return found

    return Held(config)
