"""TRL's real GRPOTrainer or RLOOTrainer on a tiny model, with or without a collector: what it did, to the last bit.

The rollouts come from a bfloat16 copy of the model, so the mismatch is real; the engine's weights are copied at every
sampling. Everything is made in memory: no network, no files but the trainer's own folder.
"""

from __future__ import annotations

import importlib
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:  # a script that is recorded without a line of code does not know of us
    from ratioscope.collectors.attach import Attachment
    from ratioscope.collectors.watching.recording import AttachOptions

# Any: their annotations describe every model and processor there is
datasets: Any = importlib.import_module("datasets")
transformers: Any = importlib.import_module("transformers")
trl: Any = importlib.import_module("trl")
Mixin: Any = object

WORDS = ("<pad>", "<eos>", "<unk>", *"0123456789+-*=()", "plus", "minus", "equals", "so", "the", "answer", "is")
PROMPTS = ("1+2=", "3-1=", "the answer is", "2*2=")
MAX_NEW = 12
_TIMES = re.compile("time|per_second")


@dataclass
class TrainingTrace:
    """What a run did. batches: per call of the loss, what the trainer held: every key of its batch, and the loss's own.

    sensitivities: per call of the loss, its gradient with respect to each current log-prob. gathered: per sampling, what the
    trainer keeps of the rows of all ranks, in its order. sampled: completion -> log-probs that the engine told of it.
    """

    log_history: list[dict[str, Any]]
    losses: list[torch.Tensor]
    gradients: list[dict[str, torch.Tensor]]
    parameters: dict[str, torch.Tensor]
    random_state: tuple[Any, Any, torch.Tensor]
    settings: dict[str, Any]
    batches: list[dict[str, Any]]
    rewards: dict[tuple[int, ...], float]
    sensitivities: list[torch.Tensor]
    gathered: list[dict[str, Any]]
    sampled: dict[tuple[int, ...], list[float]]
    attachment: Attachment | None


def train(
    run_dir: Path | None,
    *,
    steps: int = 3,
    vllm_stub: bool = False,
    rollout: bool = True,
    env_mask: bool = False,
    rloo: bool = False,
    callback: Any = None,
    options: AttachOptions | None = None,
    **settings: Any,
) -> TrainingTrace:
    """Trains, with a collector writing to `run_dir` or, if that is None, without.

    vllm_stub: takes TRL's path for vLLM, with our sampling in its place. rollout: a rollout_func samples and tells log-probs,
    else transformers samples and tells none. env_mask: some tokens of it come from an environment. rloo: RLOOTrainer, which
    knows no rollout_func. callback: given to the trainer. settings: those of its config.
    """
    with TemporaryDirectory() as output_dir:
        trainer = make_trainer(output_dir, max_steps=steps, rollout=rollout, env_mask=env_mask, rloo=rloo, **settings)
        if vllm_stub:
            trainer.use_vllm, trainer.vllm_mode, trainer._last_loaded_step = True, "colocate", -1
            trainer.vllm_generation = Engine(trainer)
        if callback is not None:
            trainer.add_callback(callback)
        attachment = attached(trainer, run_dir, options)
        trainer.train()
        if attachment is not None:
            attachment.detach()
    return TrainingTrace(
        log_history=[{k: v for k, v in entry.items() if not _TIMES.search(k)} for entry in trainer.state.log_history],
        losses=trainer.losses,
        gradients=trainer.gradients,
        parameters={name: p.detach().clone() for name, p in trainer.model.named_parameters()},
        random_state=(random.getstate(), np.random.get_state(), torch.get_rng_state()),
        settings={k: v for k, v in trainer.args.to_dict().items() if "dir" not in k},
        batches=trainer.batches,
        rewards=trainer.rewards,
        sensitivities=[logprobs.grad for logprobs in trainer.scored],
        gathered=trainer.gathered,
        sampled=trainer.vllm_generation.sampled if vllm_stub else {},
        attachment=attachment,
    )


def attached(trainer: Any, run_dir: Path | None, options: AttachOptions | None = None) -> Attachment | None:
    """A collector on the trainer, unless there is no run_dir."""
    if run_dir is None:
        return None
    from ratioscope import attach

    return attach(trainer, run_dir, **(options or {}))


class Watched(Mixin):  # type: ignore[misc]
    """Keeps copies of what the trainer held. Mixed into a subclass, so that it knows nothing of wrappers on the object."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.losses: list[torch.Tensor] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.batches: list[dict[str, Any]] = []
        self.rewards: dict[tuple[int, ...], float] = {}
        self.gathered: list[dict[str, Any]] = []
        self.scored: list[torch.Tensor] = []
        self._scores: Any = None
        super().__init__(*arguments, **named)

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        self._scores = super()._get_per_token_logps_and_entropies(*arguments, **named)
        return self._scores

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)
        held = {"prompt": self._logs["prompt"], "advantage": self._logs["advantages"], **self._logs["rewards"]}
        self.gathered.append({name: list(values) for name, values in held.items()})
        return batch

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        tensors = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor) and not k.startswith("ratioscope")}
        held = {k: v.detach().clone() for k, v in tensors.items()}
        held |= {"current": self._scores[0].detach().clone(), "entropy": self._scores[1].detach().clone()}
        self.batches.append({**held, "global_step": self.state.global_step, "training": self.model.training})
        self.losses.append(loss.detach().clone())
        if self.model.training:
            self._scores[0].retain_grad()
            self.scored.append(self._scores[0])
        return loss


class WatchedTrainer(Watched, trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer, watched."""


class WatchedRlooTrainer(Watched, trl.RLOOTrainer):  # type: ignore[misc]
    """TRL's RLOOTrainer, watched."""


class KeepGradients(transformers.TrainerCallback):  # type: ignore[misc]
    """Copies the gradients each optimizer step uses."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        parameters = self._trainer.model.named_parameters()
        self._trainer.gradients.append({name: p.grad.detach().clone() for name, p in parameters if p.grad is not None})


def make_trainer(
    output_dir: str, *, rollout: bool = True, env_mask: bool = False, rloo: bool = False, **settings: Any
) -> Any:
    """A trainer on four prompts, with two micro-batches of four completions per step."""
    torch.set_num_threads(1)  # with more, threads of such tiny operations mostly wait for each other
    torch.manual_seed(0)
    defaults: dict[str, Any] = dict(
        output_dir=output_dir, use_cpu=True, max_steps=3, per_device_train_batch_size=4, num_generations=4,
        gradient_accumulation_steps=2, max_completion_length=MAX_NEW, temperature=0.9, learning_rate=5e-3, beta=0.0,
        logging_steps=1, report_to=[], save_strategy="no", dataloader_pin_memory=False, disable_tqdm=True, seed=3,
        bf16=False, gradient_checkpointing=False,
    )  # fmt: skip
    kept: list[Any] = []

    def digits(completion_ids: list[list[int]], **_: Any) -> list[float]:
        scores = [sum(3 <= token <= 12 for token in ids) / MAX_NEW for ids in completion_ids]
        kept[0].rewards.update({tuple(ids): score for ids, score in zip(completion_ids, scores, strict=True)})
        return scores

    made, config = (WatchedRlooTrainer, trl.RLOOConfig) if rloo else (WatchedTrainer, trl.GRPOConfig)
    trainer = made(
        model=saved_model(output_dir) if settings.get("beta") else tiny_model(),
        reward_funcs=digits,
        args=config(**{**defaults, **settings}),
        train_dataset=datasets.Dataset.from_dict({"prompt": list(PROMPTS)}),
        eval_dataset=datasets.Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=tiny_tokenizer(),
        **({"rollout_func": Rollout(env_mask)} if rollout and not rloo else {}),
    )
    kept.append(trainer)
    trainer.add_callback(KeepGradients(trainer))
    return trainer


def tiny_tokenizer() -> Any:
    """A tokenizer of WORDS."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def tiny_model() -> Any:
    """Two layers, with weights large enough that bfloat16 shows."""
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        initializer_range=0.3,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).float()


def saved_model(folder: str) -> str:
    """The model's path: TRL loads the reference model from where the model came from."""
    tiny_model().save_pretrained(folder)
    return folder


class Rollout:
    """A rollout_func: samples from a bfloat16 copy of the trainer's weights, with a generator of its own."""

    def __init__(self, env_mask: bool) -> None:
        self._env_mask = env_mask
        self._generator = torch.Generator().manual_seed(11 + int(os.environ.get("RANK", "0")))
        with torch.random.fork_rng():
            self._engine = tiny_model().to(torch.bfloat16).eval()

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        prompt_ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        sampled = self.sampled(prompt_ids, trainer)
        result = {
            "prompt_ids": prompt_ids,
            "completion_ids": [ids for ids, _ in sampled],
            "logprobs": [p for _, p in sampled],
        }
        if self._env_mask:  # the third and fourth token come from an environment, which tells no log-probs
            masks = [[0 if position in (2, 3) else 1 for position in range(len(ids))] for ids, _ in sampled]
            for logprobs, mask in zip(result["logprobs"], masks, strict=True):
                logprobs[:] = [p if m else 0.0 for p, m in zip(logprobs, mask, strict=True)]
            result["env_mask"] = masks
        return result

    def sampled(self, prompt_ids: Sequence[list[int]], trainer: Any) -> list[tuple[list[int], list[float]]]:
        """Of each prompt a completion and its log-probs, with the weights the trainer has now."""
        self._engine.load_state_dict(trainer.model.state_dict())
        return [self._sample(ids, trainer.temperature) for ids in prompt_ids]

    @torch.no_grad()
    def _sample(self, prompt: list[int], temperature: float) -> tuple[list[int], list[float]]:
        ids, logprobs = list(prompt), list[float]()
        while len(logprobs) < MAX_NEW and (not logprobs or ids[-1] != 1):
            logits = self._engine(torch.tensor([ids])).logits[0, -1].float() / temperature
            distribution = torch.log_softmax(logits, -1)
            token = int(torch.multinomial(distribution.exp(), 1, generator=self._generator))
            ids.append(token)
            logprobs.append(float(distribution[token]))
        return ids[len(prompt) :], logprobs


class Engine:
    """Stands where TRL keeps vLLM, and answers as it does. With a rollout_func, TRL only syncs weights to it."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._rollout = trainer, Rollout(env_mask=False)
        self.sampled: dict[tuple[int, ...], list[float]] = {}

    def sync_weights(self) -> None:
        pass

    def generate(self, prompts: Sequence[list[int]], **_: Any) -> Any:
        found = self._rollout.sampled(prompts, self._trainer)
        self.sampled |= {tuple(ids): logprobs for ids, logprobs in found}
        return prompts, [ids for ids, _ in found], [[[p] for p in logprobs] for _, logprobs in found], None
