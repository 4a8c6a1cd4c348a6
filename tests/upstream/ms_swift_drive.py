"""ms-swift's own GRPOTrainer on a CPU: its samples, collation, advantages, log-probs, corrections and losses are its source's.

Stood in for: its base classes of TRL and transformers, its template (chat templates need a tokenizer's files), its engine, and
packages that are not installed. The trainer's object is made without its `__init__`, which prepares models.

python -m upstream.ms_swift_drive FOLDER RUN RANK SETTINGS    one of two ranks over Gloo, with the gathers of accelerate
"""

from __future__ import annotations

import json
import logging
import random
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import torch
from support.adapter_properties import seed
from support.hollow import Imports, hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

# Any: mypy would read all of transformers for it
SELECTIVE_LOG_SOFTMAX: Any = import_module("trl.trainer.utils").selective_log_softmax
VOCABULARY, PAD = 13, 0
ABSENT = (
    "modelscope", "dacite", "msgspec", "peft", "json_repair", "attrdict", "trl", "megatron", "mcore_bridge",
    "swift.dataset", "swift.rewards", "swift.template", "swift.trainers", "swift.infer_engine", "swift.rollout",
    "swift.sequence_parallel", "swift.tuners", "swift.model", "swift.rlhf_trainers.vllm_client",
    "swift.rlhf_trainers.rlhf_mixin", "swift.rlhf_trainers.arguments",
)  # fmt: skip
ARGUMENTS = {
    "num_generations": 2, "num_iterations": 1, "steps_per_generation": 2, "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2, "generation_batch_size": 4, "output_dir": "", "report_to": [], "log_entropy": True,
    "top_entropy_quantile": 1.0, "overlong_filter": False, "loss_type": "grpo", "beta": 0.0, "epsilon": 0.2,
    "epsilon_high": None, "delta": None, "advantage_estimator": "grpo", "scale_rewards": "group", "kl_in_reward": False,
    "importance_sampling_level": "token", "rollout_importance_sampling_mode": None,
    "rollout_importance_sampling_threshold": 2.0, "log_rollout_offpolicy_metrics": True, "dataset_shuffle": False,
    "off_policy_sequence_mask_delta": None, "dynamic_sample": False, "max_resample_times": 3, "tau_pos": 1.0, "tau_neg": 1.0,
    "real_tau": 1.0, "fipo_decay_rate": 32.0, "fipo_clip_range": 0.2, "fipo_clip_high_only": False,
    "fipo_safety_threshold": None, "advantage_reweight": None, "rlsd_lambda": 0.5, "rlsd_reweight_clip_range": 0.2,
    "rlsd_lambda_warmup_steps": 0, "rlsd_lambda_decay_steps": 0, "rlsd_negative_only": False, "sdar_loss_coef": 0.0,
    "sdar_gate_beta": 1.0, "log_completions": False, "wandb_log_unique_prompts": False, "num_completions_to_print": 0,
    "gradient_checkpointing_kwargs": None, "max_completion_length": 8, "temperature": 1.0, "use_vllm": True,
    "async_generate": False, "sleep_level": 0, "max_turns": None, "use_gym_env": False, "use_liger_kernel": False,
    "padding_free": False,
}  # fmt: skip


@contextmanager
def importable(megatron: Any = None, *, splits: bool = False) -> Iterator[Any]:
    """The module of the trainer; afterwards every module is as before.

    megatron: what stands in for Megatron's `mpu`. splits: whether ms-swift's own sequence parallelism is there.
    """
    absent = tuple(name for name in ABSENT if not (splits and name == "swift.sequence_parallel"))
    with on_path("ms_swift"), hollow((*absent, "swift.dataloader"), "swift") as imports:
        _trl(imports)
        imports.put("modelscope.utils.logger", get_logger=lambda *_: _with_handler("modelscope"))
        imports.put("swift.rlhf_trainers.rlhf_mixin", RLHFTrainerMixin=type("RLHFTrainerMixin", (), {}))
        imports.put("swift.trainers", SwiftMixin=type("SwiftMixin", (), {}), disable_gradient_checkpointing=_nothing)
        imports.put("swift.infer_engine.protocol", RolloutOutput=Output)
        imports.put("swift.dataset", RowPreprocessor=SimpleNamespace(rows_to_batched=_columns))
        imports.put("swift.dataset.preprocessor.core", _pair_keys=["messages", "images"])
        if not splits:
            imports.put("swift.sequence_parallel", sequence_parallel=SimpleNamespace(world_size=1, extra_kwargs={}))
        imports.put("swift.tuners.lora", LoraConfig=dict)
        imports.put("swift.template", StdTemplateInputs=SimpleNamespace, TemplateInputs=SimpleNamespace(from_dict=dict))
        imports.put("megatron.core", mpu=megatron)
        yield import_module("swift.rlhf_trainers.grpo_trainer")


def _trl(imports: Imports) -> None:
    base = type("GRPOTrainer", (), {"__module__": "trl.trainer.grpo_trainer", "__init__": _no, "log": _no})
    imports.put("trl.import_utils", _is_package_available=lambda *_, **__: (False, None))
    imports.put("trl", GRPOTrainer=base)
    imports.put("trl.trainer.grpo_trainer", nanmax=_nan(torch.max), nanmin=_nan(torch.min))
    imports.put("trl.trainer.utils", selective_log_softmax=SELECTIVE_LOG_SOFTMAX, entropy_from_logits=_entropy)


def _with_handler(name: str) -> logging.Logger:
    found = logging.getLogger(name)
    if not found.handlers:
        found.addHandler(logging.NullHandler())
    return found


def _no(self: Any, *given: Any, **named: Any) -> None:
    raise NotImplementedError


def _nan(of: Any) -> Any:
    return lambda values: of(values[~values.isnan()])


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    logs = torch.log_softmax(logits, -1)
    return -(logs.exp() * logs).sum(-1)


@contextmanager
def _nothing(*given: Any, **named: Any) -> Iterator[None]:
    yield


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass
class Output:
    """The engine's answer, as `apply_rollout_output` reads it."""

    response: Any
    messages: Any = None
    response_token_ids: Any = None
    response_loss_mask: Any = None
    rollout_logprobs: Any = None
    rollout_infos: Any = None


class Template:
    """Prompt and completions as tokens, with labels where tokens were sampled; batches are padded on the left.

    Sequence parallelism wants them padded on the right, and to a multiple of the ranks; padding_free puts them into one row.
    """

    sequence_parallel_size, padding_free, truncation_strategy, max_length, mode = 1, False, "delete", None, "train"
    template_meta = SimpleNamespace(default_system=None)
    tokenizer = None

    def encode(self, data: Any, return_length: bool = False) -> dict[str, Any]:
        ids: list[int] = []
        labels: list[int] = []
        for message in data["messages"]:
            content = message["content"]
            tokens = content["token_ids"] if isinstance(content, dict) else content
            own = list(tokens) if isinstance(tokens, list) else [int(one) for one in tokens.split()]
            sampled = message["role"] == "assistant"
            ids += own
            labels += own if sampled else [-100] * len(own)
        return {"input_ids": ids, "labels": labels, "length": len(ids)}

    def data_collator(self, encoded: list[dict[str, Any]], padding_to: int | None = None) -> dict[str, torch.Tensor]:
        if self.padding_free:
            row = {
                name: torch.tensor([[value for one in encoded for value in one[name]]])
                for name in ("input_ids", "labels")
            }
            return {**row, "position_ids": torch.tensor([[place for one in encoded for place in range(one["length"])]])}
        splits = self.sequence_parallel_size
        width = max(len(one["input_ids"]) for one in encoded)
        width += -width % splits

        def padded(name: str, fill: int) -> torch.Tensor:
            rows = [(one[name], [fill] * (width - len(one[name]))) for one in encoded]
            return torch.tensor([own + pads if splits > 1 else pads + own for own, pads in rows])

        ids, labels = padded("input_ids", PAD), padded("labels", -100)
        places = {"position_ids": torch.arange(width).expand_as(ids)} if splits > 1 else {}
        return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long(), **places}

    def _get_response_prefix(self, inputs: Any) -> str:
        return ""

    def forward_context(self, model: Any, inputs: Any) -> Any:
        return _nothing()

    def safe_decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


class Bigram(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        return SimpleNamespace(logits=self.table[input_ids])


class Headed(torch.nn.Module):
    """A table of hidden states with a head, whose losses liger fuses with the head."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.hidden = torch.nn.Embedding(VOCABULARY, 8)
        self.lm_head = torch.nn.Linear(8, VOCABULARY)
        with torch.no_grad():
            self.hidden.weight.copy_(torch.randn(VOCABULARY, 8, generator=draw) / 3)
            self.lm_head.weight.copy_(torch.randn(VOCABULARY, 8, generator=draw))
            self.lm_head.bias.copy_(torch.randn(VOCABULARY, generator=draw))

    def model(self, input_ids: torch.Tensor, attention_mask: Any = None) -> Any:
        return SimpleNamespace(last_hidden_state=self.hidden(input_ids))

    @property
    def table(self) -> torch.Tensor:
        table: torch.Tensor = self.lm_head(self.hidden.weight)
        return table

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None) -> Any:
        return SimpleNamespace(logits=self.lm_head(self.hidden(input_ids)))


def make_trainer(module: Any, rank: int = 0, ranks: int = 1, **settings: Any) -> Any:
    """A GRPOTrainer whose parameters its own methods have prepared."""
    mixin = import_module("swift.rlhf_trainers.rollout_mixin").RolloutTrainerArgumentsMixin
    args = mixin()
    vars(args).update({**ARGUMENTS, "generation_batch_size": 4 * ranks, **settings})
    trainer = object.__new__(module.GRPOTrainer)
    trainer.args, trainer.template, trainer.model = args, Template(), (Headed if args.use_liger_kernel else Bigram)(5)
    trainer.template.padding_free = args.padding_free
    trainer._prepare_algorithm_params()
    trainer.accelerator = SimpleNamespace(
        device=torch.device("cpu"), process_index=rank, num_processes=ranks, is_main_process=rank == 0,
        gather_for_metrics=module.gather, unwrap_model=lambda model: getattr(model, "module", model),
    )  # fmt: skip
    trainer.state, trainer.control = SimpleNamespace(global_step=0), SimpleNamespace(should_evaluate=False)
    trainer.beta, trainer.temperature, trainer.num_generations = args.beta, args.temperature, args.num_generations
    trainer.max_completion_length, trainer.model_accepts_loss_kwargs = args.max_completion_length, False
    trainer.compute_loss_func, trainer.model_kwarg_keys = None, ("input_ids", "attention_mask")
    trainer.ref_model = type(trainer.model)(6) if args.beta else None
    trainer.reward_funcs, trainer.reward_model_plugins = [_reward], [None]
    trainer.reward_func_names, trainer.reward_weights = ["digits"], torch.ones(1)
    trainer.use_gym_env = trainer.enable_server_multi_turn = trainer.dynamic_num_samples = False
    trainer.is_multimodal = trainer._has_teacher = trainer._teacher_use_disable_adapter = trainer.use_teacher_api = (
        False
    )
    trainer._is_dynamic_self_distillation = trainer.enable_offload = False
    trainer.disable_rollout_importance_sampling, trainer.chord_sft_iterator = False, None
    trainer.multi_turn_scheduler, trainer.use_fast_infer, trainer.request_config = None, True, None
    trainer.vllm_mode, trainer._last_loaded_step, trainer.teacher_kl_coef = "server", -1, 0.0
    trainer._step, trainer._buffered_inputs = 0, None
    trainer.train_queue, trainer.eval_queue, trainer._async_futures = Queue(), Queue(), {}
    trainer.executor = SimpleNamespace(submit=_now)
    trainer.compute_entropy = args.log_entropy or args.top_entropy_quantile < 1.0
    trainer.jsonl_writer = None
    trainer._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    trainer._logs = defaultdict(deque) | {"rewards": defaultdict(deque)}
    trainer._prepare_liger_loss()
    trainer.model_wrapped = trainer.model if ranks == 1 else torch.nn.parallel.DistributedDataParallel(trainer.model)
    trainer._engine = Engine(trainer.model, rank)
    # what talks to an engine
    trainer._move_model_to_vllm = lambda **_: trainer._engine.load(trainer.model)
    trainer._rollout = lambda samples, config, is_global=False: trainer._engine.answers(samples)
    trainer.multi_turn_completion_length_context = _nothing
    trainer.async_generate = args.async_generate
    trainer.dynamic_resample_iterator = (_prompts(step % 7, args, rank) for step in count(3))
    return trainer


def _now(task: Any) -> Any:
    from concurrent.futures import Future

    made: Any = Future()
    made.set_result(task())
    return made


def _reward(completions: list[Any], **columns: Any) -> list[float]:
    return [float(sum(int(one) for one in text.split()) % 3) for text in completions]


class Engine:
    """Samples with the weights it was loaded with last; its log-probs differ from the trainer's by rounding."""

    def __init__(self, model: Bigram | Headed, rank: int = 0) -> None:
        self._draw, self._table = random.Random(7 + rank), model.table.detach().clone()
        self.loads = 0

    def load(self, model: Bigram | Headed) -> None:
        self._table, self.loads = model.table.detach().clone(), self.loads + 1

    def answers(self, samples: list[Any]) -> list[Output]:
        return [self._answer(sample) for sample in samples]

    def _answer(self, sample: Any) -> Output:
        last, ids, logprobs = int(sample.messages[-1]["content"].split()[-1]), list[int](), list[float]()
        length = 3 + self._draw.randrange(4)
        for _ in range(length):
            rows = torch.log_softmax(self._table[last].to(torch.bfloat16), -1)
            last = 1 + self._draw.randrange(VOCABULARY - 1)
            ids.append(last)
            logprobs.append(float(rows[last]))
        message = SimpleNamespace(content=" ".join(map(str, ids)))
        choice = SimpleNamespace(
            message=message, token_ids=ids, finish_reason="length" if length == 6 else "stop",
            logprobs={"content": [{"logprob": one} for one in logprobs]},
        )  # fmt: skip
        return Output(SimpleNamespace(choices=[choice], id=sample.request_id))


def drive(
    run_dir: Path | None,
    *,
    steps: int = 3,
    options: AttachOptions | None = None,
    rank: int = 0,
    ranks: int = 1,
    splits: bool = False,
    uneven: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Trains a small table with ms-swift's own code, recorded into run_dir or not; all that it computed.

    rank: of this process, in a group that main() made. splits: whether the ranks split sequences among them instead of having
    their own. uneven: whether a scheduler makes more samples of rank 0's trajectories than of rank 1's.
    """
    with importable(splits=splits) as module:
        attachment = None if run_dir is None else ratioscope.attach("ms_swift", run_dir, **(options or AttachOptions()))
        trainer = make_trainer(module, rank, ranks, **settings)
        if splits:
            _split(trainer, ranks)
        if uneven:
            _make_uneven(trainer, rank)
        fused = _told(trainer.liger_grpo_loss) if trainer.use_liger_loss else None
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.05 if fused is not None else 0.5)
        losses, batches, gradients = list[torch.Tensor](), list[Any](), list[torch.Tensor]()
        if trainer.args.async_generate:
            trainer._prefetch([_prompts(0, trainer.args, rank)])
        for step in range(steps):
            optimizer.zero_grad()
            for _ in range(trainer.args.gradient_accumulation_steps):
                inputs = trainer._prepare_inputs(_prompts(step, trainer.args, rank))
                trainer._step += 1
                loss = trainer.compute_loss(trainer.model_wrapped, inputs)
                (loss / trainer.args.gradient_accumulation_steps).backward()
                losses.append(loss.detach())
                batches.append((step + 1, inputs, trainer.model.table.detach().clone()))
            gradients += [parameter.grad.clone() for parameter in trainer.model.parameters()]
            optimizer.step()
            trainer.state.global_step += 1
        finished = attachment is None or attachment.detach()
    return {
        "losses": losses,
        "gradients": gradients,
        "table": trainer.model.table.detach(),
        "metrics": {name: list(map(float, values)) for name, values in trainer._metrics["train"].items()},
        "held": batches,
        "fused": fused,
        "attachment": (finished, None if attachment is None else attachment.refused),
    }


def _told(loss: torch.nn.Module) -> list[dict[str, Any]]:
    """The arguments of liger's loss, call by call."""
    told = list[dict[str, Any]]()

    def keep(_: Any, given: Any, named: dict[str, Any]) -> None:
        kept = ("selected_token_ids", "attention_mask", "old_per_token_logps", "vllm_is_ratio")
        told.append({name: None if named[name] is None else named[name].clone() for name in kept})

    loss.register_forward_pre_hook(keep, with_kwargs=True)
    return told


def _split(trainer: Any, ranks: int) -> None:
    """ms-swift's sequence parallelism, on a model that has no attention to split."""
    trainer.template.sequence_parallel_size = ranks
    trainer.processing_class = SimpleNamespace(pad_token_id=PAD)
    splitting = import_module("swift.sequence_parallel").sequence_parallel
    splitting.world_size, splitting.num_heads, splitting.tokenizer = ranks, ranks, trainer.processing_class
    splitting._init_device_mesh()
    for model in filter(None, (trainer.model, trainer.ref_model)):
        splitting._prepare_forward_hook(model)


def _make_uneven(trainer: Any, rank: int) -> None:
    """The scheduler trains on the last trajectory several times: once more on rank 0 than on rank 1."""
    trainer.dynamic_num_samples = True

    def answers(samples: list[Any], config: Any, is_global: bool = False) -> list[Output]:
        found = trainer._engine.answers(samples)
        return [*found, *(deepcopy(found[-1]) for _ in range(3 - rank))]

    trainer._rollout = answers


def _prompts(step: int, args: Any, rank: int = 0) -> list[dict[str, Any]]:
    """This rank's generation batch: every prompt as often as it has generations."""
    groups = args.steps_per_generation * args.per_device_train_batch_size // args.num_generations
    texts = [f"{1 + step} {2 + group} {3 + group + groups * rank}" for group in range(groups)]
    return [
        {"messages": [{"role": "user", "content": text}], "solution": text}
        for text in texts
        for _ in range(args.num_generations)
    ]


def main(folder: Path, run: Path | None, rank: int, settings: dict[str, Any]) -> None:
    """One of two ranks of a process group over Gloo; what it held is left in the folder."""
    store = getattr(torch.distributed, "FileStore")(str(folder / "store"), 2)  # noqa: B009
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    import_module("accelerate").PartialState(cpu=True)
    seed()
    trace = drive(run, options={"strict": True}, rank=rank, ranks=2, **settings)
    trace["held"] = [
        (step, {**inputs, "grpo_batch": vars(inputs["grpo_batch"])}, table) for step, inputs, table in trace["held"]
    ]
    for _, inputs, _ in trace["held"]:
        inputs["grpo_batch"].pop("ratioscope_rows", None)
        inputs.pop("_chunk_samples", None)
    torch.save(trace, folder / f"rank-{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2] else None, int(sys.argv[3]), json.loads(sys.argv[4]))
