"""A stand-in of the Fireworks cookbook: signatures and call order of fw-ai/cookbook at 76821fa1 (2026-08-19), bodies our own.

Where each signature is from, below `training/`:

    utils/rl/{grpo,gspo,igpo,reinforce}.py    make_grpo_loss_fn, make_gspo_loss_fn, make_igpo_loss_fn, make_reinforce_loss_fn
    utils/rl/losses.py                        PromptGroup, combine_prompt_groups
    utils/rl/rollout/types.py                 RolloutSample, RolloutRun, Rollout, rollout_to_prompt_group
    utils/rl/async_rl/batch.py, coordinator.py    TrainingChunk, OptimizerBatch; AsyncRLCoordinator's run_blocking, publish,
                                              published_version
    utils/client.py                           ReconnectableClient
    utils/checkpoints.py, utils/logging.py    ResumeInfo, TrainingCheckpoints.resume; log_metrics
    recipes/rl_loop.py, async_rl_loop.py      the order of calls in `run_training` and `train_chunk`
    utils/rl/score_centering.py               build_score_centering_datums, make_score_centering_loss_fn, as at 3337e6ec; their
                                              calls as in recipes/async_rl_loop.py at 0ac47181

FiretitanTrainingClient and FiretitanServiceClient are those of fireworks-ai 1.2.30, fireworks/training/sdk/client.py; Datum
and TensorData those of tinker 0.38.0, tinker/types. The hosted trainer is a table of logits, moved by the gradients that the
client's loss leaves on the log-probs, as there. The engine is a rounded copy of it.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

import ratioscope
from standins.module_table import Table, importable

VOCABULARY = 11


@dataclass(frozen=True)
class TensorData:
    data: list[Any]
    dtype: str
    shape: list[int] | None = None


class ModelInput(list[int]):
    """A tinker.ModelInput of one text chunk."""

    @property
    def chunks(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(tokens=list(self))]


@dataclass(frozen=True)
class Datum:
    model_input: ModelInput
    loss_fn_inputs: dict[str, TensorData] = field(default_factory=dict)


@dataclass(frozen=True)
class TISConfig:
    cap: float = 5.0
    level: str = "token"
    icepop_threshold: float | None = None


@dataclass
class PromptGroup:
    data: list[Datum]
    advantages: list[float]
    ref_logprobs: list[list[float]] | None
    prompt_len: int
    rewards: list[float]
    ref_data: list[Datum] = field(default_factory=list)
    inf_logprobs: list[list[float]] = field(default_factory=list)
    raw_inf_logprobs: list[list[float]] = field(default_factory=list)
    completion_lens: list[int] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    run_metadata: list[dict[str, Any]] = field(default_factory=list)
    prompt_lens: list[int] | None = None


@dataclass
class RolloutSample:
    tokens: list[int]
    logprobs: list[float]
    loss_mask: list[int]
    reward: float
    prompt_model_input: Any = None
    routing_matrices: list[str] | None = None
    finish_reason: str = "stop"
    text: str = ""
    raw_logprobs: list[float] | None = None


@dataclass
class RolloutRun:
    segments: list[RolloutSample]
    run_id: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass
class Rollout:
    runs: list[RolloutRun]
    row_meta: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TrainingChunk:
    batch_id: int
    index: int
    planned_chunks: int
    target_groups: int
    groups: tuple[PromptGroup, ...]
    submit_versions: tuple[int, ...]
    source_tokens: tuple[Any, ...]


@dataclass
class OptimizerBatch:
    batch_id: int
    target_groups: int
    chunk_targets: tuple[int, ...]


@dataclass
class ResumeInfo:
    step: int = 0
    data_consumed: int = 0
    source_job_id: str | None = None


def make_grpo_loss_fn(
    advantages: list[float],
    ref_logprobs: list[list[float]],
    prompt_len: int | list[int],
    inf_logprobs: list[list[float]],
    old_policy_logprobs: list[list[float]],
    kl_beta: float = 0.001,
    eps_clip: float = 0.2,
    eps_clip_high: float | None = None,
    tis_config: TISConfig | None = None,
    raw_inf_logprobs: list[list[float]] | None = None,
) -> Any:
    high = eps_clip if eps_clip_high is None else eps_clip_high
    return _closure(
        "grpo",
        advantages,
        ref_logprobs,
        prompt_len,
        inf_logprobs,
        old_policy_logprobs,
        kl_beta,
        eps_clip,
        high,
        tis_config,
    )


def make_gspo_loss_fn(
    advantages: list[float],
    ref_logprobs: list[list[float]],
    inf_logprobs: list[list[float]],
    prompt_len: int | list[int],
    old_policy_logprobs: list[list[float]],
    gspo_config: Any = None,
    tis_config: TISConfig | None = None,
) -> Any:
    return _closure(
        "gspo", advantages, ref_logprobs, prompt_len, inf_logprobs, old_policy_logprobs, 0.0, 0.2, 0.2, tis_config
    )


def make_reinforce_loss_fn(
    advantages: list[float],
    ref_logprobs: list[list[float]],
    prompt_lens: int | list[int],
    inf_logprobs: list[list[float]],
    old_policy_logprobs: list[list[float]],
    kl_beta: float = 0.0,
    tis_config: TISConfig | None = None,
) -> Any:
    return _closure(
        "reinforce",
        advantages,
        ref_logprobs,
        prompt_lens,
        inf_logprobs,
        old_policy_logprobs,
        kl_beta,
        0.2,
        0.2,
        tis_config,
    )


def make_igpo_loss_fn(
    per_token_advantages: list[list[float]],
    ref_logprobs: list[list[float]],
    prompt_lens: list[int],
    inf_logprobs: list[list[float]],
    old_policy_logprobs: list[list[float]] | None = None,
    kl_beta: float = 0.001,
    eps_clip: float = 0.2,
) -> Any:
    return _closure(
        "igpo", per_token_advantages, ref_logprobs, prompt_lens, inf_logprobs, old_policy_logprobs, kl_beta, eps_clip,
        eps_clip, None,
    )  # fmt: skip


def _closure(
    loss: str,
    advantages: list[Any],
    references: list[list[float]],
    prompt_len: int | list[int],
    rollouts: list[list[float]],
    olds: list[list[float]] | None,
    kl_beta: float,
    eps_low: float,
    eps_high: float,
    tis: TISConfig | None,
) -> Any:
    """A clipped surrogate, summed over active tokens; what only the module name tells apart is all the same here."""

    def loss_fn(data: list[Datum], logprobs_list: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        total, tokens = torch.tensor(0.0, requires_grad=True), 0
        for index, current in enumerate(logprobs_list):
            plen = prompt_len if isinstance(prompt_len, int) else prompt_len[index]
            start = max(0, plen - 1)
            theta = current[start:]
            inputs = data[index].loss_fn_inputs
            mask = torch.tensor((inputs.get("weights") or inputs["loss_mask"]).data[start:], dtype=theta.dtype)
            if not (mask > 0.5).any():
                continue
            rollout = torch.tensor([0.0 if x is None else x for x in rollouts[index]][start : start + len(theta)])
            padded = theta.detach() if olds is None else torch.tensor(
                [*olds[index], *[0.0] * len(current)][start : len(current)]
            )  # fmt: skip
            weight = torch.exp(padded - rollout).clamp(0.0, 5.0 if tis is None else tis.cap)
            given = advantages[index]
            advantage = torch.tensor(given[start:] if isinstance(given, list) else [given] * len(theta))
            ratio = torch.exp(theta - padded)
            kept = ratio.clamp(1.0 - eps_low, 1.0 + eps_high)
            per_token = torch.maximum(-ratio * advantage, -kept * advantage) * weight
            if references and references[index] and kl_beta:
                gap = torch.tensor(references[index][start : start + len(theta)]) - theta
                per_token = per_token + kl_beta * (torch.exp(gap) - gap - 1.0)
            total = total + (per_token * mask).sum()
            tokens += int((mask > 0.5).sum())
        return total, {"active_tokens": float(tokens), "mean_loss": total.item() / max(tokens, 1)}

    loss_fn.__module__ = f"training.utils.rl.{loss}"
    return loss_fn


@dataclass(frozen=True)
class ScoreCenteringConfig:
    top_k: int = 5
    tail_mass_epsilon: float = 1e-6


def build_score_centering_datums(
    data: list[Datum],
    sampler_topk_token_ids: list[list[list[int]]],
    sampler_topk_logprobs: list[list[list[float]]],
    config: ScoreCenteringConfig,
) -> tuple[list[Datum], list[list[list[float]]]]:
    """New datums of 1 + k target tokens a place; a place outside the loss has ids 0 and log-probs -inf."""
    built, heads = [], []
    for datum, ids, logprobs in zip(data, sampler_topk_token_ids, sampler_topk_logprobs, strict=True):
        targets, weights = (datum.loss_fn_inputs[name].data for name in ("target_tokens", "weights"))
        shape, blank = [len(targets), config.top_k + 1], [-float("inf")] * config.top_k
        heads.append([list(own) if w > 0 else blank for own, w in zip(logprobs, weights, strict=True)])
        kept = [own if w > 0 else [0] * config.top_k for own, w in zip(ids, weights, strict=True)]
        inputs = {
            "target_tokens": np.column_stack((targets, kept)).ravel().tolist(),
            "weights": np.pad(np.array(weights, float)[:, None], ((0, 0), (0, config.top_k))).ravel().tolist(),
        }
        tensors = {name: TensorData(values, "float32", shape) for name, values in inputs.items()}
        built.append(Datum(datum.model_input, tensors))
    return built, heads


def make_score_centering_loss_fn(
    advantages: list[float], sampler_topk_logprobs: list[list[list[float]]], config: ScoreCenteringConfig
) -> Any:
    def loss_fn(data: list[Datum], logprobs_list: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        total = torch.tensor(0.0, requires_grad=True)
        for datum, own, advantage, heads in zip(data, logprobs_list, advantages, sampler_topk_logprobs, strict=True):
            table = own.reshape(len(heads), config.top_k + 1)
            weights = torch.tensor(datum.loss_fn_inputs["weights"].data).reshape(table.shape)[:, 0]
            residual = (torch.tensor(heads).exp() - table[:, 1:].exp()).detach()
            total = total - (advantage * (table[:, 0] - (residual * table[:, 1:]).sum(-1)) * weights).sum()
        return total, {"score_centering/active_positions": 1.0}

    return loss_fn


def combine_prompt_groups(groups: list[PromptGroup], *, include_raw: bool = False) -> tuple[Any, ...]:
    data = [datum for group in groups for datum in group.data]
    combined = (
        data,
        [advantage for group in groups for advantage in group.advantages],
        [row for group in groups for row in group.ref_logprobs or []],
        [plen for group in groups for plen in group.prompt_lens or [group.prompt_len] * len(group.data)],
        [row for group in groups for row in group.inf_logprobs],
    )
    if not include_raw:
        return combined
    return *combined, [row for group in groups for row in group.raw_inf_logprobs or [[] for _ in group.data]]


def rollout_to_prompt_group(
    rollout: Rollout,
    *,
    advantage_fn: Callable[[list[float]], list[float]] = lambda rewards: list(np.subtract(rewards, np.mean(rewards))),
    with_reference: bool = False,
    router_replay_completion_only: bool = False,
) -> PromptGroup | None:
    rewards = [run.segments[0].reward for run in rollout.runs]
    advantages = [float(advantage) for advantage in advantage_fn(rewards)]
    segments = [
        (part, advantage) for run, advantage in zip(rollout.runs, advantages, strict=True) for part in run.segments
    ]
    lens = [part.loss_mask.index(1) for part, _ in segments]
    return PromptGroup(
        data=[_datum(part, "weights") for part, _ in segments],
        ref_data=[_datum(part, "loss_mask") for part, _ in segments] if with_reference else [],
        advantages=[advantage for _, advantage in segments],
        ref_logprobs=None,
        prompt_len=lens[0],
        rewards=rewards,
        inf_logprobs=[part.logprobs[1:] for part, _ in segments],
        raw_inf_logprobs=[part.raw_logprobs[1:] if part.raw_logprobs else [] for part, _ in segments],
        truncated=[part.finish_reason == "length" for part, _ in segments],
        prompt_lens=lens,
    )


def _datum(part: RolloutSample, mask: str) -> Datum:
    size = [len(part.tokens) - 1]
    inputs = {
        "target_tokens": TensorData(part.tokens[1:], "int64", size),
        mask: TensorData(part.loss_mask[1:], "int64", size),
    }
    return Datum(ModelInput(part.tokens[:-1]), inputs)


class Service:
    """The hosted trainer and its engine: a table of next-token logits, and a rounded copy of it."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)
        self.logits = torch.randn(VOCABULARY, VOCABULARY, generator=self.generator)
        self.reference = self.logits.clone()
        self.gradients = torch.zeros_like(self.logits)
        self.saved = self.engine = self.logits

    def logprobs(self, datum: Datum, logits: torch.Tensor) -> torch.Tensor:
        rows = torch.log_softmax(logits, -1)[datum.model_input]
        return rows.gather(1, self.targets(datum)).reshape(datum.loss_fn_inputs["target_tokens"].shape or [-1])

    def targets(self, datum: Datum) -> torch.Tensor:
        """(T, target tokens a place)."""
        return torch.tensor(datum.loss_fn_inputs["target_tokens"].data).reshape(len(datum.model_input), -1)


class FiretitanTrainingClient:
    def __init__(self, service: Service, trace: dict[str, Any]) -> None:
        self.service, self.trace = service, trace

    def forward(self, data: list[Datum], logits: torch.Tensor) -> Any:
        outputs = [self.service.logprobs(datum, logits).tolist() for datum in data]
        return SimpleNamespace(loss_fn_outputs=[{"logprobs": TensorData(row, "float32")} for row in outputs])

    def forward_backward_custom(
        self,
        data: list[Datum],
        loss_fn: Callable[..., Any],
        *,
        loss_type_input: str = "logprobs",
        output: str = "logprobs",
        pooling: str = "mean",
        precomputed_forward: Any = None,
    ) -> Any:
        current = [self.service.logprobs(datum, self.service.logits).clone().requires_grad_(True) for datum in data]
        loss, metrics = loss_fn(data, current)
        loss.backward()
        for datum, row in zip(data, current, strict=True):
            gradient = torch.zeros_like(row) if row.grad is None else row.grad
            targets = self.service.targets(datum)
            sources = torch.tensor(datum.model_input)[:, None].expand_as(targets)
            self.service.gradients.index_put_((sources, targets), gradient.reshape(targets.shape), True)
            self.trace["gradients"].append(gradient.tolist())
        self.trace["losses"].append(loss.item())
        self.trace["current"].append([row.tolist() for row in current])
        return SimpleNamespace(metrics=metrics)

    def optim_step(
        self, adam_params: Any, grad_accumulation_normalization: Any = None, emit_grad_norm_metrics: Any = None
    ) -> Any:
        service = self.service
        service.logits = service.logits - adam_params.learning_rate * service.gradients
        service.gradients = torch.zeros_like(service.gradients)
        return SimpleNamespace(metrics={})


class FiretitanServiceClient:
    def __init__(self, service: Service) -> None:
        self.service = service

    def hotload_sampler_snapshot(self, model_path: str) -> None:
        self.service.engine = self.service.saved


class ReconnectableClient:
    def __init__(self, client: FiretitanTrainingClient, *, base_only: bool = False) -> None:
        self._client, self._base_only = client, base_only

    def forward(self, data: Any, loss_fn: Any) -> Any:
        service = self._client.service
        return self._client.forward(data, service.reference if self._base_only else service.logits)

    def forward_backward_custom(
        self, data: Any, loss_fn: Any, *, output: str = "logprobs", pooling: str = "mean"
    ) -> Any:
        return self._client.forward_backward_custom(data, loss_fn)

    def optim_step(self, params: Any, grad_accumulation_normalization: Any = None) -> Any:
        return self._client.optim_step(params, grad_accumulation_normalization)

    def save_weights_for_sampler(self, name: str, checkpoint_type: str | None = None) -> Any:
        self._client.service.saved = (self._client.service.logits * 8).round() / 8
        return SimpleNamespace(path=name)


class TrainingCheckpoints:
    def __init__(self, step: int) -> None:
        self._step = step

    def resume(
        self,
        *,
        init_from_checkpoint: str | None = None,
        warm_start_from_adapter: str | None = None,
        restore_optimizer: bool = True,
    ) -> ResumeInfo | None:
        return ResumeInfo(self._step) if self._step else None


class AsyncRLCoordinator:
    """run_blocking, publish and published_version; what produces batches is `_Recipe.batches`."""

    def __init__(self, global_step: int) -> None:
        self._version, self._executor = global_step, ThreadPoolExecutor(1)

    @property
    def published_version(self) -> int:
        return self._version

    async def run_blocking(
        self, operation: str, function: Callable[..., Any], *args: Any, optimizer_batch: Any = None, **kwargs: Any
    ) -> Any:
        return await asyncio.wrap_future(self._executor.submit(function, *args, **kwargs))

    def publish(self, batch: OptimizerBatch) -> Any:
        before, self._version = self._version, batch.batch_id
        return SimpleNamespace(trained_against_version=before, resolved_rows=0, step_time=0.0)


LOGGED: list[dict[str, Any]] = []
"""Global, because log_metrics is a function."""


def log_metrics(metrics: dict[str, Any], *, step: int, metrics_file: str | None = None) -> None:
    LOGGED.append({**metrics, "step": step})


RECIPE = "training.recipes.rl_loop"
TABLE: Table = {
    "training.utils.rl.grpo": {"make_grpo_loss_fn": make_grpo_loss_fn},
    "training.utils.rl.gspo": {"make_gspo_loss_fn": make_gspo_loss_fn},
    "training.utils.rl.igpo": {"make_igpo_loss_fn": make_igpo_loss_fn},
    "training.utils.rl.reinforce": {"make_reinforce_loss_fn": make_reinforce_loss_fn},
    "training.utils.rl.score_centering": {
        "build_score_centering_datums": build_score_centering_datums,
        "make_score_centering_loss_fn": make_score_centering_loss_fn,
    },
    "training.utils.rl.losses": {"combine_prompt_groups": combine_prompt_groups, "PromptGroup": PromptGroup},
    "training.utils.rl.rollout.types": {"rollout_to_prompt_group": rollout_to_prompt_group},
    "training.utils.rl.async_rl.coordinator": {"AsyncRLCoordinator": AsyncRLCoordinator},
    "training.utils.client": {"ReconnectableClient": ReconnectableClient},
    "training.utils.checkpoints": {"TrainingCheckpoints": TrainingCheckpoints},
    "training.utils.logging": {"log_metrics": log_metrics},
    "fireworks.training.sdk.client": {
        "FiretitanTrainingClient": FiretitanTrainingClient,
        "FiretitanServiceClient": FiretitanServiceClient,
    },
}


@contextmanager
def cookbook() -> Iterator[ModuleType]:
    """The cookbook importable and imported; what a recipe takes from it by name, in a module of its own package."""
    with importable({**TABLE, RECIPE: {}}):
        module = import_module(RECIPE)
        for path, values in TABLE.items():
            for name in values:
                setattr(module, name, getattr(import_module(path), name))
        yield module


class _Recipe:
    """Trains for `steps` steps of two groups of two runs. Names are looked up in the recipe's module at each call."""

    def __init__(self, names: Any, trace: dict[str, Any], options: dict[str, Any]) -> None:
        self.names, self.trace, self.options = names, trace, options
        self.service = Service()
        self.sdk = names.FiretitanServiceClient(self.service)
        client = names.FiretitanTrainingClient(self.service, trace)
        self.policy = names.ReconnectableClient(client)
        self.reference = names.ReconnectableClient(client, base_only=True)
        self.draws = np.random.default_rng(5)
        self.engines: dict[tuple[int, ...], torch.Tensor] = {}
        info = names.TrainingCheckpoints(options["resume"]).resume()
        self.step = info.step if info else 0
        names.log_metrics({"train/step": self.step}, step=self.step)
        self.sync()

    def sync(self) -> None:
        saved = self.policy.save_weights_for_sampler(f"step-{self.step}")
        self.sdk.hotload_sampler_snapshot(saved.path)

    def group(self) -> Any:
        """Two runs of one prompt. The second has two segments, the first a tool's token in its middle."""
        prompt = self.draws.integers(0, VOCABULARY, 3).tolist()
        runs = []
        for number, mask in enumerate(([0, 0, 0, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1])):
            parts = [self.sample(prompt, mask, reward=float(number)) for _ in range(number + 1)]
            runs.append(RolloutRun(parts, run_id=f"run-{number}"))
        return self.names.rollout_to_prompt_group(Rollout(runs), with_reference=self.options["kl_beta"] > 0)

    def sample(self, prompt: list[int], mask: list[int], reward: float) -> RolloutSample:
        tokens = [*prompt, *self.draws.integers(0, VOCABULARY, len(mask) - len(prompt)).tolist()]
        datum = Datum(ModelInput(tokens[:-1]), {"target_tokens": TensorData(tokens[1:], "int64")})
        warm = self.service.logprobs(datum, self.service.engine / self.options["temperature"]).tolist()
        self.engines[tuple(tokens[:-1])] = self.service.engine
        raw = self.service.logprobs(datum, self.service.engine).tolist()
        pick = [m > 0 for m in mask]
        logprobs = [x if p else 0.0 for x, p in zip([0.0, *warm], pick, strict=True)]
        raws = [x if p else 0.0 for x, p in zip([0.0, *raw], pick, strict=True)]
        reason = "length" if reward else "stop"
        return RolloutSample(
            tokens, logprobs, mask, reward, finish_reason=reason, raw_logprobs=raws if self.options["raw"] else None
        )

    def train(self, groups: list[Any]) -> None:
        options, names = self.options, self.names
        if options["kl_beta"]:
            for group in groups:
                outputs = self.reference.forward(group.ref_data, "cross_entropy").loss_fn_outputs
                group.ref_logprobs = [output["logprobs"].data for output in outputs]
        data, advantages, references, lens, rollout, raw = names.combine_prompt_groups(groups, include_raw=True)
        if options["anchor"] == "old_policy":
            outputs = self.policy.forward(data, "cross_entropy").loss_fn_outputs
            old = [output["logprobs"].data[: options["old_tokens"]] for output in outputs]
        else:
            old = rollout
        for name, value in (
            ("data", data), ("advantages", advantages), ("reference", references), ("lens", lens), ("rollout", rollout),
            ("raw", raw), ("old", old),
        ):  # fmt: skip
            self.trace[name].append(value)
        if options["top_k"]:
            self.policy.forward_backward_custom(*self.centered(data, advantages))
        else:
            loss = options["loss"](names, advantages, references, lens, rollout, old, raw)
            self.policy.forward_backward_custom(data, loss)

    def centered(self, data: list[Datum], advantages: list[float]) -> tuple[list[Datum], Any]:
        """Datums and closure of score centering; the sampler's likeliest tokens are those of its raw model."""
        config = ScoreCenteringConfig(self.options["top_k"])
        logits = [self.engines[tuple(datum.model_input)][datum.model_input] for datum in data]
        heads = [torch.log_softmax(own, -1).topk(config.top_k) for own in logits]
        ids, logprobs = ([getattr(head, name).tolist() for head in heads] for name in ("indices", "values"))
        sources = data if self.options["known"] else [Datum(own.model_input, own.loss_fn_inputs) for own in data]
        data, aligned = self.names.build_score_centering_datums(sources, ids, logprobs, config)
        self.trace["ids"].append(ids)
        self.trace["heads"].append(aligned)
        return data, self.names.make_score_centering_loss_fn(
            advantages=advantages, sampler_topk_logprobs=aligned, config=config
        )

    def update(self, *, step: int | None = None) -> None:
        self.policy.optim_step(SimpleNamespace(learning_rate=0.5))
        self.step = self.step + 1 if step is None else step

    def log(self) -> None:
        metrics = {"train/step": self.step, "train/mean_loss": self.trace["losses"][-1]}
        self.names.log_metrics(metrics, step=self.step)

    def run_sync(self) -> None:
        for _ in range(self.options["steps"]):
            self.train([self.group() for _ in range(2)])
            self.update()
            self.sync()
            self.log()

    async def run_async(self) -> None:
        """A batch of two chunks, the first of groups that were submitted a version earlier."""
        coordinator = self.names.AsyncRLCoordinator(self.step)
        waiting = (coordinator.published_version, self.group())
        for _ in range(self.options["steps"]):
            batch = OptimizerBatch(coordinator.published_version + 1, 2, (1, 1))
            late, waiting = waiting, (coordinator.published_version, self.group())
            fresh = (coordinator.published_version, self.group())
            for index, (version, group) in enumerate((late, fresh)):
                chunk = TrainingChunk(batch.batch_id, index, 2, 1, (group,), (version,), (index,))
                work = coordinator.run_blocking
                await work("train_chunk", lambda chunk: self.train(list(chunk.groups)), chunk, optimizer_batch=batch)
            step = batch.batch_id
            await coordinator.run_blocking("optimizer", lambda s: self.update(step=s), step, optimizer_batch=batch)
            await coordinator.run_blocking("weight_sync", lambda _: self.sync(), step, optimizer_batch=batch)
            coordinator.publish(batch)
            self.log()


def grpo(names: Any, advantages: Any, references: Any, lens: Any, rollout: Any, old: Any, raw: Any) -> Any:
    """The call of recipes/rl_loop.py."""
    return names.make_grpo_loss_fn(
        advantages=advantages,
        ref_logprobs=references,
        prompt_len=lens,
        inf_logprobs=rollout,
        old_policy_logprobs=old,
        kl_beta=0.01 if references else 0.0,
        eps_clip=0.2,
        eps_clip_high=None,
        tis_config=TISConfig(cap=3.0),
        raw_inf_logprobs=raw,
    )


def igpo(names: Any, advantages: Any, references: Any, lens: Any, rollout: Any, old: Any, raw: Any) -> Any:
    """The call of recipes/igpo_loop.py, but for old log-probs, which the factory may go without."""
    per_token = [
        [advantage * (i + 1) for i in range(len(row))] for advantage, row in zip(advantages, rollout, strict=True)
    ]
    return names.make_igpo_loss_fn(
        per_token_advantages=per_token, ref_logprobs=references, prompt_lens=lens, inf_logprobs=rollout
    )


def drive(run_dir: Path | None, **options: Any) -> dict[str, Any]:
    """All that a small training computed, recorded into `run_dir` or not at all.

    options: recipe ("sync" or "async"), steps, anchor ("old_policy" or "rollout"), kl_beta, raw, resume (a step), loss (as
    `grpo`), old_tokens (cuts the lists of old log-probs), attach (options of `ratioscope.attach`), temperature, top_k (score
    centering if not 0) and known (False: the data of score centering are of no group).
    """
    chosen = {
        "recipe": "sync", "steps": 2, "anchor": "old_policy", "kl_beta": 0.0, "raw": True, "resume": 0, "loss": grpo,
        "old_tokens": None, "attach": {}, "temperature": 0.9, "top_k": 0, "known": True, **options,
    }  # fmt: skip
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    LOGGED.clear()
    names = ("data", "advantages", "reference", "lens", "rollout", "raw", "old", "current", "losses", "gradients")
    trace: dict[str, Any] = {name: [] for name in (*names, "ids", "heads")}
    with ExitStack() as stack:
        module = stack.enter_context(cookbook())
        attachment = None
        if run_dir is not None:
            attachment = ratioscope.attach("fireworks", run_dir, **chosen["attach"])
            stack.callback(attachment.detach)
        recipe = _Recipe(module, trace, chosen)
        if chosen["recipe"] == "sync":
            recipe.run_sync()
        else:
            asyncio.run(recipe.run_async())
        trace |= {"weights": recipe.service.logits, "logs": list(LOGGED), "attachment": attachment}
        trace["rng"] = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    return trace
