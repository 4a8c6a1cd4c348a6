"""tinker-cookbook's own training loops on a bigram model: its real functions, between a client and environments of ours.

What is ours stands where the service is: a training client that takes Datums and gives log-probs, and sampling clients that
sample with the weights they were made with. Everything between them is tinker-cookbook 0.6.1.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ratioscope

torch = pytest.importorskip("torch", reason="tinker-cookbook runs on torch")
tinker = pytest.importorskip("tinker", reason="the tinker package is not importable here")
train = pytest.importorskip("tinker_cookbook.rl.train", reason="the tinker-cookbook package is not importable here")
types = import_module("tinker_cookbook.rl.types")

VOCABULARY, GROUPS, SAMPLES = 11, 4, 2
ENGINE_NOISE = 0.02


class Done:
    """A result that is there already, however it is asked for."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        return self._value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from asyncio.sleep(0).__await__()
        return self._value


class SamplingClient:
    """Samples with the weights of one moment; log-probs differ a little from the trainer's, as an engine's do."""

    def __init__(self, logits: Any, noise: float) -> None:
        self._logprobs = logits.detach().clone().log_softmax(1)
        self._noise = noise

    def sample(self, last: int, count: int) -> tuple[list[int], list[float]]:
        tokens, logprobs = [], []
        for _ in range(count):
            token = int(torch.multinomial(self._logprobs[last].exp(), 1))
            tokens.append(token)
            logprobs.append(min(float(self._logprobs[last, token]) + self._noise * random.gauss(0, 1), -1e-6))
            last = token
        return tokens, logprobs


class TrainingClient:
    """A bigram model under importance sampling; keeps what it computed."""

    def __init__(self, noise: float) -> None:
        self.logits = torch.nn.Parameter(torch.linspace(-1, 1, VOCABULARY**2).reshape(VOCABULARY, VOCABULARY).clone())
        self.optimizer = torch.optim.SGD([self.logits], lr=0.5)
        self.noise = noise
        self.losses: list[float] = []
        self.gradients: list[list[float]] = []
        self.given: list[list[dict[str, list[float]]]] = []
        self.scored: list[list[list[float]]] = []

    def forward_backward(self, data: list[Any], loss_fn: str, loss_fn_config: Any = None) -> Done:
        outputs, loss = [], torch.zeros(())
        for datum in data:
            inputs = datum.loss_fn_inputs
            before = torch.tensor(datum.model_input.to_ints())
            target = inputs["target_tokens"].to_torch().long()
            logprobs = self.logits.log_softmax(1)[before, target]
            ratio = (logprobs - inputs["logprobs"].to_torch()).exp()
            loss = loss - (ratio * inputs["advantages"].to_torch()).sum()
            outputs.append({"logprobs": tinker.TensorData.from_torch(logprobs.detach())})
        loss.backward()
        self.losses.append(float(loss.detach()))
        self.given.append([{k: list(v.data) for k, v in d.loss_fn_inputs.items()} for d in data])
        self.scored.append([list(o["logprobs"].data) for o in outputs])
        return Done(SimpleNamespace(loss_fn_outputs=outputs))

    def optim_step(self, adam_params: Any) -> Done:
        assert self.logits.grad is not None
        self.gradients.append(self.logits.grad.reshape(-1).tolist())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Done(SimpleNamespace(metrics={}))

    def create_sampling_client(self, path: str, record_stability_info: bool = False) -> Done:
        return Done(SamplingClient(self.logits, self.noise))

    def save_weights_and_get_sampling_client(self, record_stability_info: bool = False) -> Done:
        return Done(SamplingClient(self.logits, self.noise))


class Kept(train.ml_log.Logger):  # type: ignore[misc,name-defined]
    """A logger behind tinker-cookbook's own that keeps what it is given, without clocks."""

    def __init__(self) -> None:
        self.rows: list[tuple[int | None, dict[str, Any]]] = []
        self.settle: Callable[[], object] = int

    def log_hparams(self, config: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.rows.append((step, {name: value for name, value in metrics.items() if not name.startswith("time/")}))
        self.settle()


class Tokenizer:
    """Token n is the letter n."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + int(i)) for i in ([ids] if isinstance(ids, int) else ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(97 + i) for i in ids]


class Dataset:
    """Every batch holds the same prompts."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def get_batch(self, index: int) -> list[Any]:
        return [SimpleNamespace(prompt=[g, g + 1], logging_tags=lambda: ["test"]) for g in range(GROUPS)]


def trajectory(client: SamplingClient, prompt: list[int], sample: int) -> Any:
    """Two turns. Of sample 1 the second turn begins anew, which makes a second datum, and is left out as a parse error."""
    sampled_tokens = import_module("tinker_cookbook.completers").TokensWithLogprobs
    first, first_logprobs = client.sample(prompt[-1], 3)
    second_prompt = [*prompt, *first, 5] if sample == 0 else [9, 8]
    second, second_logprobs = client.sample(second_prompt[-1], 2)
    reward = float(sum(first) + sum(second)) / 10
    turns = [
        types.Transition(tinker.ModelInput.from_ints(prompt), sampled_tokens(first, first_logprobs), 0.0, False),
        types.Transition(
            tinker.ModelInput.from_ints(second_prompt),
            sampled_tokens(second, second_logprobs),
            reward,
            True,
            metrics={types.PARSE_ERROR_MASKED_METRIC_KEY: float(sample)},
        ),
    ]
    return types.Trajectory(turns, tinker.ModelInput.from_ints([]), stop_reason="length" if sample else "stop")


async def sampled_group(client: SamplingClient, builder: Any, **_: Any) -> Any:
    """A group of trajectories of one prompt, as tinker-cookbook's rollouts return it."""
    await asyncio.sleep(0)
    made = [trajectory(client, builder.prompt, sample) for sample in range(SAMPLES)]
    return types.TrajectoryGroup(made, [0.25] * SAMPLES, [{} for _ in made])


@contextmanager
def service() -> Iterator[None]:
    """Our rollouts and checkpoints in the place of the service's."""

    async def checkpoint(**_: Any) -> dict[str, str]:
        return {"sampler_path": "weights"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "do_group_rollout_and_filter_constant_reward", sampled_group)
        patch.setattr(train.checkpoint_utils, "save_checkpoint_async", checkpoint)
        yield


def configuration(log_path: Path, mode: str, substeps: int) -> Any:
    """mode: sync, stream (minibatches as they come) or async."""
    stream = train.StreamMinibatchConfig(groups_per_batch=GROUPS, num_minibatches=2)
    return train.Config(
        learning_rate=0.5,
        dataset_builder=None,
        model_name="bigram",
        recipe_name="test",
        max_tokens=5,
        log_path=str(log_path),
        num_substeps=substeps,
        num_groups_to_log=0,
        rollout_json_export=False,
        eval_every=0,
        async_config=train.AsyncConfig(max_steps_off_policy=2, groups_per_batch=GROUPS, loss_fn="importance_sampling")
        if mode == "async"
        else None,
        stream_minibatch_config=stream if mode == "stream" else None,
    )


def drive(
    run_dir: Path | None, *, mode: str = "sync", substeps: int = 2, batches: int = 3, **options: Any
) -> dict[str, Any]:
    """Trains a few iterations, recorded into run_dir if there is one; everything that the training computed or was given.

    options: of `ratioscope.attach`.
    """
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    client, logger, log_path = TrainingClient(ENGINE_NOISE), Kept(), Path("/nonexistent")
    manager = SimpleNamespace(should_save_periodic=lambda step: False, maybe_save_rolling_async=_nothing)
    loops = {
        "sync": train.do_sync_training,
        "stream": train.do_sync_training_with_stream_minibatch,
        "async": train.do_async_training,
    }
    config = configuration(log_path, mode, substeps)
    before = config.__dict__.copy() if hasattr(config, "__dict__") else None
    attached = None if run_dir is None else ratioscope.attach("tinker-cookbook", run_dir, **options)
    if attached is not None and options.get("scalars"):
        logger.settle = lambda: attached.collector.flush(30)  # so that what is ready is no matter of speed
    try:
        with service():
            asyncio.run(
                loops[mode](
                    start_batch=0,
                    end_batch=batches,
                    num_batches=batches,
                    config=config,
                    training_client=client,
                    kl_reference_client=None,
                    evaluators=[],
                    dataset=Dataset(batches),
                    ml_logger=train.ml_log.MultiplexLogger([logger]),
                    tokenizer=Tokenizer(),
                    checkpoint_mgr=manager,
                )
            )
    finally:
        if attached is not None:
            assert attached.detach(60)
    return {
        "losses": client.losses,
        "gradients": client.gradients,
        "weights": client.logits.detach().reshape(-1).tolist(),
        "batch": client.given,
        "scored": client.scored,
        "logs": logger.rows,
        "config_unchanged": before == (config.__dict__ if before is not None else None),
        "rng": (random.random(), float(np.random.rand()), float(torch.rand(()))),
    }


async def _nothing(**_: Any) -> None:
    return None
