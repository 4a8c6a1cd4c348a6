"""The Fireworks cookbook's own recipes on a CPU: rl_loop.main and async_rl_loop.main, from samples to the metrics that they log.

Needs a checkout of fw-ai/cookbook in a folder of SOURCES, and the versions of fireworks-ai, tinker and tinker-cookbook that its
lock file names; `make test-upstream` keeps them in a folder of their own, because the SDK changes tinker when it is imported.
Stood in for: the service behind the SDK's clients (a bigram table that answers `forward`, `forward_backward` and `optim_step`,
and an engine that samples from a rounded copy of the table at a temperature), the tokenizer with its renderer, and W&B. The SDK's
`forward_backward_custom` and `hotload_sampler_snapshot` are real.

Not run: igpo_loop.main, which scores answers with httpx.post at the service (utils/rl/igpo.py:72). Its loss is run, as are the
other six, in the place of GRPO.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

PACKAGES = ("training", "fireworks", "tinker", "tinker_cookbook")
"""The cookbook and what it is imported with, in their own versions."""
VOCABULARY, TEMPERATURE = 13, 0.9
Module = Callable[[str], Any]
"""A module of the cookbook by its name within it."""
CLOCKS = ("perf/", "async/", "producer/", "version/")
"""Beginnings of the metrics that depend on the speed of the machine."""


class Weights:
    """What the service holds: the table that is trained, the one that was saved last, and the one in the engine."""

    def __init__(self, *, is_engine_frozen: bool) -> None:
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3)))
        self.reference = self.table.detach().clone()
        self.saved = self.engine = _rounded(self.table)
        self.is_engine_frozen = is_engine_frozen
        self.gradients: list[torch.Tensor] = []

    def hotload_saved_snapshot(self, path: str) -> bool:
        """What the SDK's deployment does; with an asynchronous recipe the engine would sample as the clock has it."""
        if not self.is_engine_frozen:
            self.engine = self.saved
        return True


def _rounded(table: torch.Tensor) -> torch.Tensor:
    return (table.detach() * 16).round() / 16


def _scores(datum: Any, table: torch.Tensor) -> torch.Tensor:
    target = torch.tensor(list(datum.loss_fn_inputs["target_tokens"].data))
    return torch.log_softmax(table[datum.model_input.to_ints()], -1).gather(1, target[:, None])[:, 0]


class Done:
    """An answer of the service that is there already."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self, timeout: float | None = None) -> Any:
        return self._answer

    async def result_async(self, timeout: float | None = None) -> Any:
        return self._answer


def _outputs(rows: list[torch.Tensor]) -> Done:
    """A ForwardBackwardOutput."""
    data = importlib.import_module("tinker").TensorData
    made = [{"logprobs": data(data=row.tolist(), dtype="float32", shape=[len(row)])} for row in rows]
    return Done(SimpleNamespace(loss_fn_outputs=made, metrics={}))


class Holder:
    """The SDK's connection: it runs what is submitted, each on an event loop of its own."""

    def run_coroutine_threadsafe(self, work: Any) -> Any:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(asyncio.run(work))
            except BaseException as error:  # it belongs to the one who waits for the result
                future.set_exception(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
        thread.start()
        thread.join()
        return future


class Trained:
    """What the SDK's training client would send to the service happens here. It keeps what the recipe's loss held."""

    weights: Weights
    is_reference: bool
    held: list[dict[str, Any]]

    def forward(self, data: Any, loss_fn: Any, loss_fn_config: Any = None) -> Any:
        table = self.weights.reference if self.is_reference else self.weights.table.detach()
        return _outputs([_scores(datum, table) for datum in data])

    def forward_backward(self, data: Any, loss_fn: Any, loss_fn_config: Any = None) -> Any:
        rows = [_scores(datum, self.weights.table) for datum in data]
        weights = [torch.tensor(list(datum.loss_fn_inputs["weights"].data)) for datum in data]
        torch.stack([-(row * weight).sum() for row, weight in zip(rows, weights, strict=True)]).sum().backward()  # type: ignore[no-untyped-call]
        return _outputs([row.detach() for row in rows])

    def forward_backward_custom(self, data: Any, loss_fn: Any, **named: Any) -> Any:
        own = inspect.unwrap(loss_fn)
        held = {**inspect.getclosurevars(own).nonlocals, "data": data, "module": own.__module__}

        def seen(data: Any, logprobs: Any) -> Any:
            result = loss_fn(data, logprobs)
            self.held.append({**held, "current": [row.tolist() for row in logprobs], "loss": result[0].item()})
            return result

        return super().forward_backward_custom(data, seen, **named)  # type: ignore[misc]

    def save_weights_for_sampler(self, name: str, ttl_seconds: Any = None, *, checkpoint_type: Any = None) -> Any:
        self.weights.saved = _rounded(self.weights.table)
        return Done(SimpleNamespace(path=name))


def _optim_step(client: Any, adam_params: Any, grad_accumulation_normalization: Any = None) -> Any:
    """FiretitanTrainingClient.optim_step, by gradient descent."""
    table = client.weights.table
    client.weights.gradients.append(table.grad.clone())
    with torch.no_grad():
        table -= adam_params.learning_rate * table.grad
    table.grad = None
    return Done(SimpleNamespace(metrics={"grad_norm": float(client.weights.gradients[-1].norm())}))


def training_client(weights: Weights, *, is_reference: bool = False) -> Any:
    own = importlib.import_module("fireworks.training.sdk.client").FiretitanTrainingClient
    made: Any = type("TrainingClient", (Trained, own), {})
    client = made(Holder(), 0, "run-1:train:0")
    client.weights, client.is_reference, client.held = weights, is_reference, []
    return client


def service_client(weights: Weights) -> Any:
    own = importlib.import_module("fireworks.training.sdk.client").FiretitanServiceClient
    service: Any = object.__new__(type("ServiceClient", (Provisioned, own), {}))
    service.client, service.weights = training_client(weights), weights
    service._sampler_backend, service._managed_config, service._managed_handle = weights, None, None
    return service


class Provisioned:
    """The SDK's service client, provisioned by nobody. Its hot load is the SDK's own."""

    client: Any
    weights: Weights

    trainer_job_id = reference_client_job_id = reference_trainer_job_id = deployment_id = "job"
    max_context_length, run_name = 64, None

    def create_training_client(self, *given: Any, **named: Any) -> Any:
        return self.client

    def create_reference_client(self, **named: Any) -> Any:
        return training_client(self.weights, is_reference=True)

    def create_deployment_sampler(self, **named: Any) -> Any:
        return Sampler(self.weights)

    def list_checkpoints(self, job_id: str, *, page_size: int = 200) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        pass


class Sampler:
    """The SDK's deployment sampler: raw log-probs of the engine's table, and those at the temperature."""

    model, base_url = "bigram", "http://nowhere.invalid"

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    async def sample_with_prompt_tokens(self, prompt: list[int], *, n: int, **_: Any) -> list[Any]:
        await asyncio.sleep(0)
        return [self.completion(prompt, random.Random(f"{prompt}{index}"), 2 + index) for index in range(n)]

    def completion(self, prompt: list[int], draw: random.Random, length: int) -> Any:
        tokens, raw, sampled = list(prompt), list[float](), list[float]()
        for _ in range(length):
            row = self._weights.engine[tokens[-1]]
            tokens.append(draw.randrange(VOCABULARY))
            raw.append(float(torch.log_softmax(row, -1)[tokens[-1]]))
            sampled.append(float(torch.log_softmax(row / TEMPERATURE, -1)[tokens[-1]]))
        reason = "length" if length % 2 else "stop"
        completion = importlib.import_module("fireworks.training.sdk.sampling").SampledCompletion
        return completion(
            "".join(chr(97 + token) for token in tokens[len(prompt) :]), tokens, len(prompt), reason, length,
            inference_logprobs=raw, sampling_logprobs=sampled,
        )  # fmt: skip


class Renderer:
    """A message's text is its tokens, as letters."""

    def build_generation_prompt(self, messages: Any) -> Any:
        return importlib.import_module("tinker").ModelInput.from_ints(
            [ord(letter) - 97 for letter in messages[-1]["content"]]
        )

    def get_stop_sequences(self) -> list[str]:
        return []

    def parse_response(self, tokens: list[int]) -> Any:
        text = f"<answer>{len(tokens) % 2}</answer>"
        return {"role": "assistant", "content": text}, True


class Tokenizer:
    """Token n is the letter n."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + int(i)) for i in ([ids] if isinstance(ids, int) else ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(97 + i) for i in ids]


ROWS = [{"id": i, "messages": [{"role": "user", "content": "abcdefg"[i : i + 3]}], "ground_truth": "<answer>1</answer>"}
        for i in range(4)]  # fmt: skip


def run_of(rollouts: Any, sampler: Sampler, row: Any, index: int) -> Any:
    """A run as agents make them: run 1 has two segments, and the segments of run 2 have a tool's tokens in their middle."""
    prompt = [ord(letter) - 97 for letter in row["messages"][0]["content"]]
    draw = random.Random(f"{prompt}{index}")
    segments = []
    for _ in range(2 if index == 1 else 1):
        first = sampler.completion(prompt, draw, 3)
        parts = [(first, len(prompt))]
        tools = [1, 2] if index == 2 else []
        if tools:
            parts.append(
                (sampler.completion([*first.full_tokens, *tools], draw, 2), len(first.full_tokens) + len(tools))
            )
        mask = [0] * len(prompt) + [1] * 3 + [0] * len(tools) + [1] * (2 if tools else 0)
        sampled, raw = [[0.0] * len(prompt), [0.0] * len(prompt)]
        for place, (part, _) in enumerate(parts):
            gap = [0.0] * len(tools) if place else []
            sampled, raw = sampled + gap + part.sampling_logprobs, raw + gap + part.inference_logprobs
        segments.append(rollouts.RolloutSample(
            parts[-1][0].full_tokens, sampled, mask, float(index % 3), finish_reason="stop", raw_logprobs=raw,
        ))  # fmt: skip
    return rollouts.RolloutRun(segments, run_id=f"run-{index}")


@contextmanager
def importable() -> Iterator[Module]:
    """The cookbook's modules, by their names within it; afterwards everything is as before."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    environment = mock.patch.dict(os.environ, FIREWORKS_API_KEY="none")
    with on_path("fireworks"), mock.patch.object(sys, "path", [_locked_packages(), *sys.path]), environment:
        with hollow((), *PACKAGES) as imports:
            sdk = importlib.import_module("fireworks.training.sdk.client")
            imports.put_on(sdk.FiretitanTrainingClient, optim_step=_optim_step)
            imports.put("training.utils.tokenizers", load_tokenizer=lambda *_: Tokenizer())
            for name in ("tinker", "training"):  # tinker warns, with a stack, of each of the recipe's own calls
                logging.getLogger(name).setLevel(logging.CRITICAL)
            yield lambda name: importlib.import_module(f"training.{name}")
        for each, handler in handlers.items():  # the recipes set their own
            signal.signal(each, handler)


def _locked_packages() -> str:
    """The folder of the versions that the cookbook's lock file names; skips the test if there is none."""
    for entry in sys.path:
        if (folder := Path(entry) / "cookbook" / "fireworks").is_dir():
            return str(folder.parent)
    return pytest.skip("no folder cookbook with fireworks-ai 1.2.9 on the path: make test-upstream installs it")


def drive(
    module: Module,
    run_dir: Path | None,
    *,
    recipe: str = "rl_loop",
    loss: str = "grpo",
    options: AttachOptions | None = None,
    agents: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Trains a bigram table with a recipe of the cookbook, recorded into run_dir or not; all that it computed.

    module: from `importable`. loss: the middle of a factory's name, put in the place of GRPO as a comment in the recipe tells a
    fork to do it. agents: whether the synchronous recipe's prompt groups come from a function of the user's, as the asynchronous
    one's always do.
    """
    loop = module(f"recipes.{recipe}")
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    logs: list[dict[str, Any]] = []
    weights = Weights(is_engine_frozen=recipe == "async_rl_loop")
    service = service_client(weights)
    attachment = None if run_dir is None else ratioscope.attach("fireworks", run_dir, **(options or AttachOptions()))
    with (
        ExitStack() as stack,
        mock.patch.object(module("utils.logging"), "wandb_log", lambda record, **_: logs.append(dict(record))),
        mock.patch.object(loop, "build_service_client", lambda **_: service),
        mock.patch.object(loop, "build_renderer", lambda *_: Renderer(), create=True),
    ):
        if loss != "grpo":
            stack.enter_context(mock.patch.object(loop, "make_grpo_loss_fn", _factory(module, loss)))
        loop.main(_config(module, loop, settings), rows=ROWS, **_rollouts(module, recipe, service, agents=agents))
    finished = attachment is None or attachment.detach(60)
    return {
        "held": service.client.held,
        "logs": [_unclocked(row) for row in logs],
        "gradients": weights.gradients,
        "table": weights.table.detach(),
        "finished": finished,
        "refused": None if attachment is None else attachment.refused,
        "rng": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),  # type: ignore[index]
    }


def _factory(module: Module, loss: str) -> Callable[..., Any]:
    """A factory that takes the arguments of GRPO's and calls the one of another loss."""
    home = module(f"utils.rl.{'is_loss' if loss == 'is' else loss}")

    def make(**given: Any) -> Any:
        factory = getattr(home, f"make_{loss}_loss_fn")
        if loss == "igpo":
            given["per_token_advantages"] = [
                [advantage * (1 + place) for place in range(len(row))]
                for advantage, row in zip(given["advantages"], given["inf_logprobs"], strict=True)
            ]
        given["prompt_lens"] = given["prompt_len"]
        return factory(**{name: given[name] for name in inspect.signature(factory).parameters if name in given})

    return make


def _unclocked(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(CLOCKS) and "time" not in name}


def _config(module: Module, loop: Any, settings: dict[str, Any]) -> Any:
    tis = {"tis": module("utils.rl.tis").TISConfig(**settings.pop("tis"))} if "tis" in settings else {}
    defaults = dict(
        log_path="/nonexistent", epochs=2, prompt_groups_per_step=2, completions_per_prompt=3, learning_rate=0.5,
        router_replay=False, save_final_checkpoint=False, shuffle=False,
        deployment=module("utils").DeployConfig(tokenizer_model="letters"), wandb=module("utils").WandBConfig(),
    )  # fmt: skip
    return loop.Config(**{**defaults, **settings, **tis})


def _rollouts(module: Module, recipe: str, service: Any, *, agents: bool) -> dict[str, Any]:
    """The function of the user's that makes rollouts, as each recipe takes it."""
    rollouts, sampler = module("utils.rl.rollout"), Sampler(service.weights)
    if recipe == "async_rl_loop":

        async def one_run(row: Any, *, rollout_idx: int) -> Any:
            await asyncio.sleep(0)
            return run_of(rollouts, sampler, row, rollout_idx)

        return {"rollout_fn_factory": lambda setup: one_run}

    async def one_group(row: Any, *, cursor_index: int) -> Any:
        await asyncio.sleep(0)
        runs = [run_of(rollouts, sampler, row, index) for index in range(3)]
        return rollouts.rollout_to_prompt_group(rollouts.Rollout(runs), with_reference=True)

    return {"sample_prompt_fn": one_group} if agents else {}
