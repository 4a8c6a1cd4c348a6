"""open-instruct's own modules on a CPU: DataPreparationActor's loop, its packing and traces, and PolicyTrainerRayProcess.step().

Needs a checkout of allenai/open-instruct in a folder of SOURCES. Stood in for: Ray (its remote functions are called here), vLLM,
OLMo-core's base class of loaders, the constants of dataset_transformation, DeepSpeed's engine (a bigram table with SGD), and the
engine that answers prompts. Every prompt of step n was sampled at the version before.

Not run: PolicyTrainerRayProcess.from_pretrained, which starts DeepSpeed on a GPU (grpo_fast.py:284); OLMo-core's train module,
which derives from olmo_core's (olmo_core_train_modules.py); sequence parallelism, whose ranks come from DeepSpeed's groups.
"""

from __future__ import annotations

import importlib
import queue
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY, PAD, PROMPTS, SAMPLES, TEMPERATURE = 13, 0, 4, 2, 0.9
ABSENT = (
    "ray", "vllm", "deepspeed", "olmo_core", "beaker", "backoff", "peft", "wandb", "open_instruct.vllm_utils",
    "open_instruct.environments", "open_instruct.rubrics", "open_instruct.ground_truth_utils", "open_instruct.launch_utils",
    "open_instruct.dataset_transformation", "open_instruct.actor_manager", "open_instruct.olmo_core_utils",
)  # fmt: skip
Module = Callable[[str], Any]


class Names(type):
    """A class that has every name."""

    def __getattr__(cls, name: str) -> str:
        return name


class Tools:
    """The statistics of tools, of which there are none."""

    def __init__(self, tool_names: list[str]) -> None:
        self.add_rollout, self.compute_metrics = (lambda stats: None), dict


class Loader:
    """OLMo-core's DataLoaderBase, as far as open-instruct's loaders use it."""

    def __init__(self, **given: Any) -> None:
        vars(self).update({f"_{name}" if name == "work_dir" else name: value for name, value in given.items()})
        self.batches_processed = 0

    def __iter__(self) -> Iterator[Any]:
        yield from self._iter_batches()  # type: ignore[attr-defined]


class Engine(torch.nn.Module):
    """DeepSpeed's engine around a bigram table."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))
        )
        self.gradients: list[torch.Tensor] = []

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.table[input_ids])

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        pass

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        assert self.table.grad is not None
        self.gradients.append(self.table.grad.clone())
        with torch.no_grad():
            self.table.sub_(0.1 * self.table.grad)
        self.table.grad = None

    def get_global_grad_norm(self) -> float:
        return float(self.gradients[-1].norm())


class Answers(queue.Queue):  # type: ignore[type-arg]
    """The queue of prompts; each is answered at once into the queue of results."""

    def __init__(self, module: Module, results: Any, table: torch.Tensor, settings: dict[str, Any]) -> None:
        super().__init__()
        self._types, self._results, self._settings = module("data_types"), results, settings
        self._logprobs = (((table * 16).round() / 16) / TEMPERATURE).log_softmax(1)
        self._count = 0
        self.answered: list[Any] = []

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        number, self._count = self._count, self._count + 1
        draw = random.Random(number)
        drawn = [self._response(list(item.prompt), draw, 3 + (number + i) % 5) for i in range(SAMPLES)]
        none = {
            "num_calls": 0,
            "timeouts": 0,
            "tool_errors": "",
            "tool_outputs": "",
            "tool_runtimes": 0.0,
            "tool_calleds": False,
        }
        result = self._types.GenerationResult(
            responses=[tokens for tokens, _, _ in drawn],
            masks=[mask for _, mask, _ in drawn],
            logprobs=[logprobs for _, _, logprobs in drawn],
            finish_reasons=["stop" if (number + i) % 3 else "length" for i in range(SAMPLES)],
            request_info=self._types.RequestInfo(
                **{name: [value] * SAMPLES for name, value in none.items()}, tool_call_stats=[[]] * SAMPLES,
                rollout_states=[{}] * SAMPLES,
            ),
            index=item.index, prompt_id=item.prompt_id, start_time=0.0,
            token_statistics=self._types.TokenStatistics(4, 8, 1.0),
            reward_scores=[float(i == number % 2) for i in range(SAMPLES)], reward_metrics={},
            model_step=max(0, number // PROMPTS - 1),
        )  # fmt: skip
        self.answered.append(result)
        self._results.put(result)

    def _response(
        self, prompt: list[int], draw: random.Random, length: int
    ) -> tuple[list[int], list[int], list[float]]:
        """Sampled tokens, with a tool's two after the second in every long response; vLLM's log-prob may be NaN."""
        tokens, mask, logprobs, last = list[int](), list[int](), list[float](), prompt[-1]
        for place in range(length):
            is_tool = length > 5 and place in (2, 3)
            token = 2 if is_tool else 1 + draw.randrange(VOCABULARY - 1)
            scored = float(self._logprobs[last, token])
            logprobs.append(0.0 if is_tool else float("nan") if self._settings.get("nan") and place == 4 else scored)
            tokens.append(token)
            mask.append(int(not is_tool))
            last = token
        return tokens, mask, logprobs


class Tokenizer:
    pad_token_id, eos_token_id = PAD, 1

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return ["".join(chr(97 + int(i)) for i in row) for row in rows]

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + int(i)) for i in ([ids] if isinstance(ids, int) else ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(97 + i) for i in ids]


@contextmanager
def importable() -> Iterator[Module]:
    """open-instruct's modules, by their names within it; afterwards everything is as before."""
    with on_path("open_instruct"), hollow(ABSENT, "open_instruct") as imports:
        handle = type("ActorHandle", (), {})
        imports.put("ray", remote=_remote, get=lambda value: value, actor=SimpleNamespace(ActorHandle=handle))
        imports.put("ray.util", queue=queue)
        imports.put("open_instruct.environments.tools.utils", EnvStatistics=Tools)
        imports.put("backoff", on_exception=lambda *_, **__: lambda function: function)
        imports.put("olmo_core.data.data_loader", DataLoaderBase=Loader)
        imports.put("olmo_core.nn.attention", AttentionBackendName=Names("AttentionBackendName", (), {}))
        keys = {
            "INPUT_IDS_PROMPT": "input_ids_prompt",
            "GROUND_TRUTHS": "ground_truth",
            "VERIFIER_SOURCE": "dataset",
            "RAW_PROMPT": "prompt",
        }
        names = {f"{name}_KEY": key for name, key in keys.items()} | {
            "TOOLS_COLUMN_KEY": "tools",
            "ENV_CONFIG_KEY": "env_config",
        }
        imports.put("open_instruct.dataset_transformation", **names)
        store = importlib.import_module("torch.distributed").HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield lambda name: importlib.import_module(f"open_instruct.{name}")
        finally:
            torch.distributed.destroy_process_group()


def _remote(*given: Any, **_: Any) -> Any:
    """`ray.remote`, which here changes nothing."""
    return given[0] if given else lambda owner: owner


def drive(
    run_dir: Path | None, traces: Path, *, steps: int = 3, options: AttachOptions | None = None, **settings: Any
) -> dict[str, Any]:
    """Trains a bigram table with open-instruct's own code, recorded into run_dir or not; all that it computed and was given.

    traces: where open-instruct saves its rollouts. settings: of GRPOExperimentConfig and StreamingDataLoaderConfig, and nan.
    """
    with importable() as module:
        data, fast = module("data_loader"), module("grpo_fast")
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(5)
        attachment = (
            None if run_dir is None else ratioscope.attach("open_instruct", run_dir, **(options or AttachOptions()))
        )
        args, streaming = _settings(module, traces, steps, settings)
        results: Any = queue.Queue()
        model = Engine(3)
        answers = Answers(module, results, model.table.detach().clone(), settings)
        actor = _data_actor(data, streaming, results, answers, steps, traces)
        with mock.patch.object(data.ray, "get_actor", lambda name: actor, create=True):
            trainer = _trainer(module, fast, args, streaming, model, steps)
            logs, calls, batches = [], list[dict[str, Any]](), list[Any]()
            trainer.dataloader = _kept(trainer.dataloader, batches)
            with _spied(module("grpo_utils"), calls, batches):
                for _ in range(steps):
                    logs.append(trainer.step())
        actor._prep_future.result()
        module("rl_utils")._rollout_executor.shutdown(wait=True)
        finished = attachment is None or attachment.detach(60)
    return {
        "logs": [({k: v for k, v in scalars.items() if not k.startswith("time/")}, arrays) for scalars, arrays in logs],
        "calls": calls,
        "batches": batches,
        "answered": answers.answered,
        "gradients": model.gradients,
        "table": model.table.detach(),
        "finished": finished,
        "refused": None if attachment is None else attachment.refused,
        "rng": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),  # type: ignore[index]
    }


def _spied(loss: Any, calls: list[dict[str, Any]], batches: list[Any]) -> Any:
    """Keeps what the rho correction and the loss are given, and the entropy; no call is changed."""
    computed, corrected, forward = loss.compute_grpo_loss, loss.compute_rho_correction, loss.forward_for_logprobs
    entropies: list[Any] = []

    def spied_forward(*given: Any, **named: Any) -> Any:
        result = forward(*given, **named)
        entropies.append(result[1])
        return result

    def spied_correction(old: Any, rollout: Any, mask: Any, advantages: Any, config: Any) -> Any:
        result = corrected(old, rollout, mask, advantages, config)
        weights = result.weights.detach().clone()
        calls.append({"step": len(batches), "old": old.detach().clone(), "weights": weights, "entropy": entropies[-1]})
        return result

    def spied_loss(**given: Any) -> Any:
        current, reference = given["new_logprobs"].detach().clone(), given["ref_logprobs"]
        calls[-1] |= {"current": current, "reference": None if reference is None else reference.clone()}
        return computed(**given)

    return mock.patch.multiple(
        loss, compute_grpo_loss=spied_loss, compute_rho_correction=spied_correction, forward_for_logprobs=spied_forward
    )


def _kept(loader: Any, batches: list[Any]) -> Iterator[Any]:
    """The loader's batches, kept before the trainer has them."""
    for given in loader:
        batches.append(given["batch"])
        yield given


def _settings(module: Module, traces: Path, steps: int, settings: dict[str, Any]) -> tuple[Any, Any]:
    own = module("grpo_utils").GRPOExperimentConfig
    args = SimpleNamespace(**{f.name: f.default for f in fields(own)})
    streaming = module("data_loader").StreamingDataLoaderConfig(
        max_prompt_token_length=4, response_length=8, pack_length=24, async_steps=2, temperature=TEMPERATURE,
        num_samples_per_prompt_rollout=SAMPLES, num_unique_prompts_rollout=PROMPTS, verification_reward=1.0,
        save_traces=True, rollouts_save_path=str(traces),
    )  # fmt: skip
    vars(args).update(world_size=1, num_training_steps=steps, record_entropy=True, num_epochs=1)
    for name, value in settings.items():
        setattr(streaming if hasattr(streaming, name) else args, name, value)
    return args, streaming


def _data_actor(data: Any, streaming: Any, results: Any, answers: Answers, steps: int, folder: Path) -> Any:
    prompts = [[1 + i, 2 + i, 3 + i][: 2 + i % 2] for i in range(5)]
    dataset = importlib.import_module("datasets").Dataset.from_list([
        {"index": i, "input_ids_prompt": prompt, "ground_truth": [1], "dataset": "math", "prompt": f"prompt {i}"}
        for i, prompt in enumerate(prompts)
    ])  # fmt: skip
    actor = data.DataPreparationActor(
        dataset=dataset, inference_results_Q=results, param_prompt_Q=answers, tokenizer=Tokenizer(), config=streaming,
        generation_config=SimpleNamespace(n=SAMPLES), num_training_steps=steps, seed=7, per_device_train_batch_size=1,
        global_batch_size=PROMPTS, dp_world_size=1, max_possible_score=1.0, actor_manager=None, model_dims=None,
        verbose=False, work_dir=str(folder), tool_names=[], run_name="run", model_name="bigram",
        base_env_config=importlib.import_module("open_instruct.data_types").EnvConfig(),
    )  # fmt: skip
    get_data = actor.get_data
    actor.get_data = SimpleNamespace(remote=lambda **given: get_data(**given))
    return actor


def _trainer(module: Module, fast: Any, args: Any, streaming: Any, model: Engine, steps: int) -> Any:
    """A PolicyTrainerRayProcess whose from_pretrained, which starts DeepSpeed, is stood in for."""
    trainer = object.__new__(fast.PolicyTrainerRayProcess)
    trainer.args, trainer.streaming_config, trainer.model, trainer.ref_policy = args, streaming, model, Engine(3)
    trainer.device, trainer.rank, trainer.splitter = torch.device("cpu"), 0, None
    trainer.pad_token_id, trainer.num_mini_batches = PAD, args.num_mini_batches
    trainer.local_metrics = module("utils").MetricsTracker(max_metrics=512, device="cpu")
    trainer.scheduler = SimpleNamespace(get_last_lr=lambda: [0.1])
    loader = streaming.build_dataloader(
        tokenizer=Tokenizer(),
        dp_rank=0,
        fs_local_rank=0,
        num_training_steps=steps,
        work_dir="/nonexistent",
        dp_world_size=1,
    )
    trainer.dataloader = iter(loader)
    return trainer
