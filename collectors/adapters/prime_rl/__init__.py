"""prime-rl: the arguments of the trainer's token exporter, even if the exporter is disabled; facts from the orchestrator.

    setup_token_exporter(config, ...)      the trainer begins: the ranks with the same tokens
    TokenExporter.export, or the disabled  a micro-batch after its backward pass: all that the trainer has of it
    compute_loss                           the same without an exporter: pull request 3444 of 2026-08 takes it out
    TrainSink.process_batch                orchestrator: the traces of a step; rewards, groups, versions
    prepare_batch                          orchestrator: the rank and the micro-batch of each sample

Rows are packed: a micro-batch is one row of tokens, cut by sequence_lengths on the host, where the batch still is. A token's
log-prob has the index of the token itself. The first token of a sequence has no log-prob of its own; its value is a filler of
log(1/V), or belongs to the sequence before. Padding belongs to the last sequence. Context-parallel ranks have gathered copies; by
the exporter's rule the first of them exports. There is no old policy: a batch has one optimizer step, and its loss uses current
over rollout. The processes do not exchange ids of samples, but both know a sample's place (step, data-parallel rank, micro-batch,
sequence), so the place is the id.

It follows src/prime_rl/{trainer/rl/{train,token_export,loss}.py, trainer/batch.py, orchestrator/train_sink.py, monitors,
transports/rollouts/types.py} of PrimeIntellect-ai/prime-rl at 559b4477 (2026-08-21).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...adapter import installed
from ...foreign import Tensor
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .facts import Trace, facts_of, traces_of
from .rows import PackedSequences, packed_rows

MicroBatch = Any
_HEADS = {"rollout_topk_logprobs": "inference_mask_logprobs", "current_topk_logprobs": "trainer_mask_logprobs"}
"""Argument of `log` -> argument of the loss, from trainer/rl/loss.py of autumn 2026, a single file of an index: not run."""


@dataclass(frozen=True)
class Trained:
    """A micro-batch after its forward pass."""

    step: int
    micro_step: int
    """Its place in the step."""
    micro_batch: MicroBatch
    """On the host."""
    sequence_lengths: Sequence[int]
    """Tokens of each packed sequence."""
    output: Mapping[str, Tensor]
    """`logprobs` and, if known, `entropy`, one value per token."""
    heads: Mapping[str, Tensor] = field(default_factory=dict)
    """With score centering the log-probs of both sides at the ids of the sampling mask, (tokens, ids), by argument of `log`."""


@dataclass
class Losses:
    """The facts that are known when the loss is called, for trainers without a token exporter.

    The loss has no ids of tokens, no step and no entropy. The data loader has handed out the micro-batch before. The model's
    output is the dictionary into which the trainer puts entropy and log-probs, moved to their tokens, before it calls the loss.
    """

    has_exporter: bool = False
    """True if the trainer gives its micro-batches to a token exporter. They are recorded there."""
    dims: Any = None
    """The trainer's ranks and its world."""
    _step: int = 0
    _batches: Sequence[MicroBatch] = ()
    """The micro-batches of the step."""
    _done: int = 0
    """Number of micro-batches whose loss was called."""
    _output: dict[str, Tensor] = field(default_factory=dict)
    """The newest output of the model, until its loss is called."""

    def begin(self, step: int) -> None:
        """The step whose batch comes next."""
        self._step = step - 1

    def receive(self, batches: Sequence[MicroBatch]) -> None:
        """The micro-batches of the next step."""
        self._step, self._batches, self._done = self._step + 1, batches, 0

    def forwarded(self, output: dict[str, Tensor]) -> None:
        """Keeps the model's output until the loss is called, as the trainer does."""
        if not self.has_exporter and self._done < len(self._batches):
            self._output = output

    def computed(self, arguments: Mapping[str, Any]) -> Trained | None:
        """The micro-batch that the loss was called with; None where it is not known, or recorded elsewhere."""
        output, self._output = self._output, {}
        if self.has_exporter or self.dims is None or self._done >= len(self._batches):
            return None
        micro_step, self._done = self._done, self._done + 1
        cat = import_module("torch").cat
        logprobs = [part.detach() for part in arguments["trainer_logprobs"]]
        named = {"logprobs": cat(logprobs), "entropy": output.get("entropy")}
        given = {name: arguments.get(source) for name, source in _HEADS.items()}
        heads = {name: cat([part.detach() for part in parts]) for name, parts in given.items() if parts is not None}
        return Trained(
            self._step, micro_step, self._batches[micro_step], [len(part) for part in logprobs], named, heads
        )


_EXPORT = "prime_rl.trainer.rl.token_export"
_BROADCASTS = {
    "nccl": "NCCLWeightBroadcast.broadcast_weights",
    "filesystem": "FileSystemWeightBroadcast.broadcast_weights",
    "nixl": "NIXLWeightBroadcast.broadcast_weights",
}
HOOKS = (
    Hook(_EXPORT, "setup_token_exporter", before="trainer_begins", needed=False),
    Hook(_EXPORT, "TokenExporter.export", before="micro_batch_done", needed=False),
    Hook(_EXPORT, "DisabledTokenExporter.export", before="micro_batch_done", needed=False),
    Hook("prime_rl.trainer.parallel_dims", "get_parallel_dims", after="ranks_known", needed=False),
    Hook("prime_rl.trainer.rl.data", "DataLoader.__init__", before="loader_made", needed=False),
    Hook("prime_rl.trainer.rl.data", "DataLoader.get_batch", after="batch_received", needed=False),
    Hook("prime_rl.trainer.model", "forward", after="forward_done", needed=False),
    Hook("prime_rl.trainer.rl.loss", "setup_rl_loss_fn", before="loss_chosen", needed=False),
    Hook("prime_rl.trainer.rl.loss", "compute_loss", after="loss_computed"),
    Hook("prime_rl.orchestrator.train_sink", "TrainSink.process_batch", before="batch_waits", after="batch_cut"),
    Hook("prime_rl.trainer.batch", "prepare_batch", after="batch_packed"),
    Hook("prime_rl.monitors", "log", swap="with_scalars", needed=False),
    *(
        Hook(f"prime_rl.transports.weights.{name}", method, after="weights_sent", needed=False)
        for name, method in _BROADCASTS.items()
    ),
)
NO_OLD = (
    "prime-rl computes no old log-probs: a batch has one optimizer step, and its loss uses current over rollout, so total is "
    "recorded (prime-rl's mismatch_kl); total contains numerics and staleness, which slices by lag separate"
)
VERSIONS = "the orchestrator: the policy version at the start of a rollout; extra has the version at its end"
_EXPORT_ARGUMENTS = ("step", "micro_step", "micro_batch", "model_output", "sequence_lengths", "loss_config")


class PrimeRecorder:
    """Watches the trainer or the orchestrator, depending on its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._writes, self._data_rank, self._rank = True, 0, 0
        self._is_trainer, self._is_resumed = False, False
        self._config: dict[str, Any] = {}
        self._losses = Losses()
        self._waiting: dict[str, Trace] = {}
        self._cut: tuple[int, dict[int, Trace], int] | None = None

    def trainer_begins(self, call: Call) -> None:
        config, dims, world = (call.arguments[name] for name in ("config", "parallel_dims", "world"))
        self._take_place(dims, world)
        self._is_resumed = getattr(config, "resume", None) is not None
        exporters = [getattr(sys.modules[_EXPORT], name, None) for name in ("TokenExporter", "DisabledTokenExporter")]
        self._losses.has_exporter = all(hasattr(exporter, "export") for exporter in exporters)
        self._config = {name: getattr(config, name, None) for name in ("loss", "max_steps", "enable_router_replay")}
        if (model := getattr(getattr(config, "model", None), "name", None)) is not None:
            self._config["model"] = model

    def micro_batch_done(self, call: Call) -> None:
        if not self._writes:
            return
        given = dict(zip(_EXPORT_ARGUMENTS, call.arguments.get("args", ()), strict=False))
        given |= call.arguments.get("kwargs", {}) | {n: v for n, v in call.arguments.items() if n in _EXPORT_ARGUMENTS}
        step, micro_step = int(given["step"]), int(given["micro_step"])
        self._record(Trained(step, micro_step, given["micro_batch"], given["sequence_lengths"], given["model_output"]))

    def ranks_known(self, call: Call) -> None:
        world = import_module("prime_rl.trainer.world").get_world()
        self._losses.dims = call.result, world

    def loader_made(self, call: Call) -> None:
        self._losses.begin(int(call.arguments["start_step"]))

    def batch_received(self, call: Call) -> None:
        self._losses.receive(call.result)

    def forward_done(self, call: Call) -> None:
        self._losses.forwarded(call.result)

    def loss_chosen(self, call: Call) -> None:
        self._config.setdefault("loss", call.arguments["loss_config"])

    def loss_computed(self, call: Call) -> None:
        """Records a micro-batch, unless the trainer has an exporter, which is given more of it."""
        trained = self._losses.computed(call.arguments)
        if trained is None:
            return
        if not self._is_trainer:
            self._take_place(*self._losses.dims)
            self._is_resumed = trained.step > 1
        if self._writes:
            self._record(trained)

    def _take_place(self, dims: Any, world: Any) -> None:
        """Notes the rank of this trainer. The first of its context-parallel ranks writes: they hold the same tokens."""
        self._writes = not (dims.cp_enabled and dims.world_mesh["cp"].get_local_rank() != 0)
        self._rank, self._is_trainer = int(world.rank), True
        self._data_rank = self._rank // (world.world_size // dims.get_mesh("dp").size())

    def _record(self, trained: Trained) -> None:
        step, micro_batch = trained.step, trained.micro_batch
        packed = PackedSequences.of_tensors(micro_batch, trained.sequence_lengths)
        self._describe(step)
        self._recording.say_once("no_old_logprobs", step, NO_OLD)
        prefix = f"{step}-{self._data_rank}-{trained.micro_step}"
        if rows := packed_rows(packed, micro_batch, trained.output, prefix, trained.heads):
            self._recording.log(step=step, minibatch=0, trainer_version=[step - 1] * len(rows["sequence_ids"]), **rows)

    def batch_waits(self, call: Call) -> None:
        self._waiting = traces_of(call.target)

    def batch_cut(self, call: Call) -> None:
        """Notes the samples that process_batch chose. It forgets their traces, so `batch_waits` looked them up before."""
        waiting, self._waiting = self._waiting, {}
        chosen = {id(sample) for sample in call.result.samples}
        known = {id(sample): trace for trace in waiting.values() for sample in trace.samples if id(sample) in chosen}
        self._cut = (int(call.target.progress.step), known, int(call.target.config.seq_len))

    def batch_packed(self, call: Call) -> None:
        cut, self._cut = self._cut, None
        if cut is None:
            return
        step, known, seq_len = cut
        if rows := facts_of(call.arguments["rollouts"], known, call.result, prefix=str(step), seq_len=seq_len):
            self._describe(step)
            self._recording.log(step=step, minibatch=0, **rows)  # the trainer writes the other columns of these rows
            self._recording.collector.flush(0)

    def weights_sent(self, call: Call) -> None:
        if self._recording.has_collector and self._rank == 0:
            version = int(call.arguments["step"])
            self._recording.event("weight_sync", version, f"the engines are sent policy v{version}")

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        metrics, step = call.arguments["data"], int(call.arguments["step"])
        is_trainers = self._is_trainer and self._recording.has_collector and isinstance(metrics, dict)
        if not is_trainers:  # the orchestrator calls this function too
            return None
        self._recording.collector.flush(0)
        added = self._recording.scalars(step, metrics)
        return {"data": {**metrics, **added}} if added else None

    def _describe(self, step: int) -> None:
        if self._recording.has_collector:
            return
        self._recording.describe(trainer=installed("prime-rl"), config=self._config, rank=self._rank, versions=VERSIONS)
        if self._is_resumed and self._rank == 0:
            self._recording.event("resume", step, f"training goes on with step {step}")


recorder = PrimeRecorder
