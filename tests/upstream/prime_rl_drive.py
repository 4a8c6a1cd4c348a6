"""prime-rl's own modules on a CPU: all of train(), its loss, exporter, loader and monitors; the orchestrator's train sink.

Needs a checkout of PrimeIntellect-ai/prime-rl in a folder of SOURCES. Stood in for: the configuration's classes, verifiers'
traces, the model with its optimizer, scheduler and checkpoints (a bigram table), the parallel dimensions (one rank), the process
group (gloo), CUDA (the host), and the weight broadcast, which here samples the rollouts of the next step. From there on
samples, micro-batches and their files are prime-rl's: GRPO's advantages, TrainSink, trace_to_samples, prepare_batch, the file
transport and its loader.

Not run: BatchPacker.__init__, which asks the hub for the model's configuration (orchestrator/packing.py:18), and the
orchestrator's own loop, which asks for engines (orchestrator/orchestrator.py:326).
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
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

VOCABULARY, SEQ_LEN, TEMPERATURE, GROUP = 11, 28, 0.8, 2
ABSENT = (
    "prime_rl.configs", "prime_rl.utils.config", "prime_rl.utils.client", "prime_rl.utils.cp", "prime_rl._compat",
    "prime_rl.utils.act_offloading", "prime_rl.utils.metrics_server", "prime_rl.utils.heartbeat", "prime_rl.utils.process",
    "prime_rl.trainer.model", "prime_rl.trainer.models", "prime_rl.trainer.lora", "prime_rl.trainer.perf",
    "prime_rl.trainer.ckpt", "prime_rl.trainer.optim", "prime_rl.trainer.scheduler", "prime_rl.trainer.parallel_dims",
    "prime_rl.transports.weights", "prime_rl.transports.rollouts.zmq", "prime_rl.orchestrator.envs",
    "prime_rl.monitors.prime", "prime_rl.monitors.wandb", "verifiers", "torchtitan", "ring_flash_attn", "beartype", "wandb",
)  # fmt: skip
Module = Callable[[str], Any]


class Settings(SimpleNamespace):
    """A configuration. A setting that is not set is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


class LossConfig(SimpleNamespace):
    """A loss's configuration; pydantic's have the same method."""

    def model_dump(self) -> dict[str, Any]:
        return vars(self)


class Bigram(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3)))
        self.config = SimpleNamespace(vocab_size=VOCABULARY)


class WithoutExporter(SourceFileLoader):
    """train.py without its token exporter, as pull request 3444 leaves it: the lines that name the exporter are cut."""

    def get_data(self, path: str) -> bytes:
        lines = Path(path).read_text().splitlines(keepends=True)
        first = next(i for i, line in enumerate(lines) if "token_exporter.export(" in line)
        last = next(i for i in range(first, len(lines)) if lines[i].strip() == ")")
        del lines[first : last + 1]
        kept = (line.replace("token_exporter.mark_stable()", "pass") for line in lines)
        return "".join(line for line in kept if "token_export" not in line or "enable_token_export" in line).encode()

    def get_code(self, fullname: str) -> Any:
        return compile(self.get_data(self.path), self.path, "exec")


@contextmanager
def importable(*, exporter: bool) -> Iterator[Module]:
    """prime-rl's modules, by their names within it; afterwards everything is as before."""
    with on_path("prime_rl") as folder, hollow(ABSENT, "prime_rl") as imports:
        put, same = imports.put, _same
        for name in ("DefaultLossConfig", "IPOLossConfig", "CustomLossConfig"):
            put("prime_rl.configs.trainer", **{name: type(name, (LossConfig,), {})})
        put("beartype", beartype=same)
        put("verifiers.v1", Episode=list)  # of which the annotations ask for parameters
        put("torch", compile=lambda function=None, **_: function or same, tensor=_on_host(torch.tensor))
        imports.put_on(torch.Tensor, to=_on_host(torch.Tensor.to))
        for name in ("reset_peak_memory_stats", "empty_cache", "set_device"):
            put("torch.cuda", **{name: lambda *_: None})
        put("torch.cuda", max_memory_reserved=lambda: 0)
        put("prime_rl.trainer.model", forward=_forward, is_tt_moe_model=lambda model: False)
        put("prime_rl.trainer.model", setup_model=lambda *_: Bigram())
        put("prime_rl.trainer.optim", setup_optimizer=_optimizer)
        put("prime_rl.trainer.scheduler", setup_scheduler=lambda *_: SimpleNamespace(step=lambda: None))
        put("prime_rl.trainer.ckpt", Progress=_Progress, setup_ckpt_manager=lambda *_, **__: None)
        put("prime_rl.trainer.perf", get_perf_counter=lambda *_: Meter())
        put(
            "prime_rl.trainer.parallel_dims", get_parallel_dims=lambda config: OneRank(), resolve_ep=lambda config: None
        )
        put("prime_rl.utils.act_offloading", maybe_activation_offloading=lambda config: mock.MagicMock())
        put("prime_rl.transports.weights", setup_weight_broadcast=lambda *_: Broadcast())
        if not exporter:
            name = "prime_rl.trainer.rl.train"
            loader = WithoutExporter(name, str(folder / "prime_rl/trainer/rl/train.py"))
            spec = spec_from_loader(name, loader)
            assert spec is not None
            sys.modules[name] = module = module_from_spec(spec)
            loader.exec_module(module)
        yield lambda name: importlib.import_module(f"prime_rl.{name}")


def _same(given: Any) -> Any:
    return given


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the host in the place of CUDA."""

    def on_host(*given: Any, **named: Any) -> Any:
        places = {name: "cpu" if value == "cuda" else value for name, value in named.items()}
        return function(*("cpu" if isinstance(one, str) and one == "cuda" else one for one in given), **places)

    return on_host


def _forward(model: Bigram, input_ids: torch.Tensor, *_: Any, **__: Any) -> dict[str, Any]:
    output: dict[str, Any] = {"logits": model.table[input_ids], "logprobs": None}
    Broadcast.outputs.append(output)
    return output


def _optimizer(_: Any, named: list[tuple[str, Any]], *__: Any, **___: Any) -> tuple[Any, None]:
    return torch.optim.SGD([parameter for _, parameter in named], lr=0.3), None


@dataclass
class _Progress:
    step: int = 1
    total_tokens: int = 0
    total_samples: int = 0


class Meter:
    def get_step_tokens_per_second(self, *_: Any) -> float:
        return 1.0

    def get_step_mfu(self, *_: Any) -> float:
        return 1.0


class OneRank:
    """ParallelDims of one rank."""

    cp_enabled, cp, ep_enabled, fsdp_gradient_divide_factor = False, 1, False, 1.0

    def get_mesh(self, name: str) -> Any:
        return SimpleNamespace(size=lambda: 1, get_group=lambda: None)


class Broadcast:
    """The weight broadcast. Whoever receives the weights samples with them, and sends the next step's micro-batches."""

    orchestrator: Any = None
    outputs: list[dict[str, Any]] = []
    weights: list[torch.Tensor] = []

    def broadcast_weights(self, model: Bigram, step: int) -> None:
        Broadcast.weights.append(model.table.detach().clone())
        asyncio.run(Broadcast.orchestrator.make(model.table.detach(), step + 1))

    def maybe_clean(self, *_: Any) -> None:
        pass


@dataclass(eq=False)
class Node:
    """A message of verifiers' graph: values of sampled tokens alone, except token_ids and mask."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    advantages: list[float] | None = None
    reference_logprobs: list[float] | None = None
    loss_weights: dict[str, list[float]] | None = None

    @property
    def sampled(self) -> bool:
        return any(self.mask)


@dataclass
class Branch:
    """A path through the messages."""

    nodes: list[Node]
    multi_modal_data: None = None
    routed_experts: None = None

    @property
    def token_ids(self) -> list[int]:
        return [token for node in self.nodes for token in node.token_ids]

    def _spread(self, name: str) -> list[float] | None:
        if all(getattr(node, name) is None for node in self.nodes):
            return None
        values = []
        for node in self.nodes:
            own = iter(getattr(node, name) or [0.0] * sum(node.mask))
            values += [next(own) if sampled else 0.0 for sampled in node.mask]
        return values

    logprobs = property(lambda branch: branch._spread("logprobs"))
    advantages = property(lambda branch: branch._spread("advantages"))
    reference_logprobs = property(lambda branch: branch._spread("reference_logprobs"))


@dataclass
class Trace:
    id: str
    branches: list[Branch]
    reward: float
    stop_condition: str
    has_error: bool = False
    agent: Any = field(default_factory=lambda: SimpleNamespace(trainable=True))
    task: Any = field(default_factory=lambda: SimpleNamespace(data=SimpleNamespace(idx=0)))

    @property
    def nodes(self) -> list[Node]:
        return list({id(node): node for branch in self.branches for node in branch.nodes}.values())

    @property
    def num_total_tokens(self) -> int:
        return sum(len(node.token_ids) for node in self.nodes)


@dataclass
class Episode:
    id: str
    traces: list[Trace]
    group: Any
    run: Any
    env: Any
    ok: bool = True

    def model_copy(self, update: dict[str, Any]) -> Episode:
        return Episode(**{**vars(self), **update})


class Orchestrator:
    """The steps of prime-rl's orchestrator between an engine's episodes and the trainer's files."""

    def __init__(self, module: Module, output_dir: Path, settings: dict[str, Any]) -> None:
        self._vf, self._settings = importlib.import_module("verifiers.v1"), settings
        algorithm = module("orchestrator.algo.grpo").GRPOAlgorithm(SimpleNamespace(length_penalty=None), None)
        algorithm.action_loss_type = "rl"
        env = SimpleNamespace(
            algorithm=algorithm, sampling_args={"temperature": TEMPERATURE}, config=SimpleNamespace(group_size=GROUP)
        )
        self.progress = module("orchestrator.types").Progress()
        train = SimpleNamespace(filter_zero_advantages=settings.get("filter_zero_advantages", False))
        self._sink = module("orchestrator.train_sink").TrainSink(
            SimpleNamespace(train=train, max_off_policy_steps=8, seq_len=SEQ_LEN), tokenizer=None, progress=self.progress,
            train_envs=SimpleNamespace(get=lambda name: env), mm_token_type_ids_mapping=None, batch_size=6,
            token_batch_size=None,
        )  # fmt: skip
        packing = module("orchestrator.packing").BatchPacker
        self._packer = object.__new__(packing)
        vars(self._packer).update(seq_len=SEQ_LEN, num_train_workers=1, pad_to_multiple_of=5)
        self._packer.bin_cost = module("trainer.batch").build_bin_cost(None)
        self._sender = module("transports.rollouts.filesystem").FileSystemMicroBatchSender(output_dir, 1, 1)
        self.sent: list[Any] = []
        self.episodes: list[Episode] = []

    async def make(self, table: torch.Tensor, step: int) -> None:
        self.progress.step = step
        for episode in self._sampled(table, step):
            self.episodes.append(episode)
            if (batch := await self._sink.add(episode)) is not None:
                grid = self._packer.pack(batch.samples)
                self.sent.append(grid[0])
                await self._sender.send(grid)

    def _sampled(self, table: torch.Tensor, step: int) -> Iterator[Episode]:
        """Single turns and turns with a tool's tokens between; the second branch of a trace shares its first turn."""
        version = max(0, step - 1 - self._settings.get("lag", 0))
        logprobs = (((table * 16).round() / 16) / TEMPERATURE).log_softmax(1)
        for number in range(6):
            draw = random.Random(f"{step}-{number}")
            first = self._turn(logprobs, draw, [1, 2 + number], 3 + number)
            branches = [Branch(first)]
            if number % 2:
                tool = Node([4, 4], [False, False], [])
                branches = [Branch([*first, tool, *self._turn(logprobs, draw, [], 3, last=4)])]
            if number == 3:
                last = first[-1].token_ids[-1]
                branches.append(Branch([*first, *self._turn(logprobs, draw, [], 2, last=last)]))
            work, run = self._vf.TrainWorkInfo(), self._vf.TrainRunInfo()
            work.policy = SimpleNamespace(start=version, end=min(version + number % 2, step - 1))
            run.work = work
            trace = Trace(f"{step}-trace-{number}", branches, draw.random(), "stop" if number % 2 else "max_turns")
            group = SimpleNamespace(id=f"{step}-group-{number // GROUP}")
            yield Episode(f"{step}-{number}", [trace], group, run, SimpleNamespace(name=f"env{number // GROUP % 2}"))

    def _turn(
        self, logprobs: torch.Tensor, draw: random.Random, prompt: list[int], length: int, *, last: int = 0
    ) -> list[Node]:
        tokens = [draw.randrange(VOCABULARY) for _ in range(length)]
        before = [prompt[-1] if prompt else last, *tokens[:-1]]
        scores = [float(logprobs[one, token]) for one, token in zip(before, tokens, strict=True)]
        node = Node(tokens, [True] * length, scores)
        if self._settings.get("reference"):
            node.reference_logprobs = [score - 0.1 * draw.random() for score in scores]
            node.loss_weights = {"ref_kl": [0.5] * length, "rl": [1.0] * (length - 1) + [0.0]}
        if self._settings.get("observed"):  # cross entropy beside it, as ECHO's
            node.loss_weights = {"rl": [1.0, *[0.0] * (length - 1)], "ce": [0.0, *[0.3] * (length - 1)]}
        return [*([Node(prompt, [False] * len(prompt), [])] if prompt else []), node]


def drive(
    run_dir: Path | None,
    output_dir: Path,
    *,
    steps: int = 3,
    loss: tuple[str, dict[str, Any]] = ("DefaultLossConfig", {}),
    export: bool = False,
    exporter: bool = True,
    options: AttachOptions | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Trains a bigram table with prime-rl's own code, recorded into run_dir or not; all that it computed and was given.

    loss: its configuration's class and values. export: enable_token_export. exporter: False takes the exporter out of the source.
    """
    with importable(exporter=exporter) as module:
        train = module("trainer.rl.train")
        for name in ("orchestrator.train_sink", "orchestrator.algo.grpo"):  # what they import may draw
            module(name)
        attachment = None if run_dir is None else ratioscope.attach("prime_rl", run_dir, **(options or AttachOptions()))
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(5)
        Broadcast.outputs, Broadcast.weights = [], []
        Broadcast.orchestrator = orchestrator = Orchestrator(module, output_dir, settings)
        torch.distributed.init_process_group(
            "gloo", store=importlib.import_module("torch.distributed").HashStore(), rank=0, world_size=1
        )
        with mock.patch.object(train, "setup_torch_distributed", lambda **_: None):
            train.train(_config(module, output_dir, steps, loss, export=export))
        finished = attachment is None or attachment.detach(60)
        module("monitors").MONITORS.clear()
    return {
        "outputs": [
            {name: output[name].detach()[0] for name in ("logprobs", "entropy")} for output in Broadcast.outputs
        ],
        "weights": Broadcast.weights,
        "sent": orchestrator.sent,
        "episodes": orchestrator.episodes,
        "finished": finished,
        "refused": None if attachment is None else attachment.refused,
        "rng": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),  # type: ignore[index]
    }


def _config(
    module: Module, output_dir: Path, steps: int, loss: tuple[str, dict[str, Any]], *, export: bool
) -> Settings:
    defaults = {
        "dppo_mask_low": 0.2,
        "dppo_mask_high": 0.2,
        "ipo_threshold": 0.1,
        "adv_tau": 1.0,
        "kl_tau": 1e-3,
        "kwargs": {},
    }
    chosen = getattr(module("configs.trainer"), loss[0])(**{**defaults, **loss[1]})
    return Settings(
        output_dir=output_dir, max_steps=steps, loss=chosen, enable_token_export=export, matmul_precision="highest",
        dist_timeout_seconds=60, log=Settings(level="critical", json_logging=False), data=Settings(),
        model=Settings(seq_len=SEQ_LEN, name="bigram"), optim=Settings(lr=0.3), scheduler=Settings(type="constant"),
        monitors=Settings(file=SimpleNamespace(path="metrics.jsonl")), weight_broadcast=Settings(type="filesystem"),
        rollout_transport=_filesystem(module),
    )  # fmt: skip


def _filesystem(module: Module) -> Any:
    transport = module("configs.shared").TransportConfig()
    transport.type = "filesystem"
    return transport


def reinforce(inputs: Any) -> Any:
    """A custom loss of a user's."""
    loss = -(inputs.loss_mask * inputs.advantages * inputs.trainer_logprobs).sum()
    return importlib.import_module("prime_rl.trainer.rl.loss").LossOutputs(loss=loss, metrics={})
