"""self_noise in slime: a few sequences through Megatron's forward once more, each a micro-batch, on every rank.

There is no driver in between: each rank decides by the rollout's number, and all agree before they begin.
It comes right after slime's own pass for old, with the same weights, and calls the function inside that pass, so that slime's
timers count nothing twice. Only ranks of the last pipeline stage get log-probs; the others join.

A rank that does not record, on a host without ratioscope for example, cannot be asked by a collective call, because it would not
join that either. So each rank leaves a note per step in the store of the process group, and a step counts only if all ranks left
theirs in the step before. Every rank sees the same notes by then: between two steps they have waited for each other in training.
"""

import logging
import sys
from contextlib import ExitStack
from typing import Any

from ratioscope.errors import SchemaError

from ...foreign import Tensor
from ...process.notice import say
from ...self_noise import AGAIN, ALONE, REPLAYED, UNSCORED, SecondForward, SelfNoise, guarded, self_noise_of
from ...watching.hooks import Call
from ...watching.recording import Recording
from .batch import Batch
from .names import Names
from .versions import Arguments

_MEGATRON = "slime.backends.megatron_utils"
A_RANK_IS_NOT_READY = (
    "self_noise: no trainer_again is recorded: a rank could not prepare it, so none of them reads. Training goes on"
)
VIRTUAL_STAGES = (
    "self_noise: no trainer_again is recorded: with virtual pipeline stages Megatron takes no single micro-batch"
)
USERS_HOOK = (
    "self_noise: no trainer_again is recorded: --custom-megatron-before-log-prob-hook-path would be called once more for each "
    "second forward"
)


class SlimeAgain:
    """A rank's part of the second forwards. found: the log-probs of the sequences that were read, by place in the rollout."""

    def __init__(self, recording: Recording, names: Names) -> None:
        self._recording, self._names = recording, names
        noise = self_noise_of(recording.options.get("self_noise"))
        self._second = None if noise is None else SecondForward(noise, self._say, self._failed)
        self._rollout: tuple[int, Batch] | None = None
        self._is_over_for_all = False
        self.found: dict[int, Tensor] = {}

    def begins(self, rollout_id: int, data: Batch) -> None:
        """A rollout is about to be trained on, on any rank."""
        self._rollout, self.found = (rollout_id, data), {}
        if self._second is not None:
            self._recording.watch(lambda: leave_note(rollout_id))

    def old_scored(self, call: Call) -> None:
        """A pass without gradient is over. Every rank comes here at the same pass."""
        if self._second is None or self._rollout is None or self._is_over_for_all or call.arguments["store_prefix"]:
            return
        (step, data), actor = self._rollout, call.target
        if fault := _fault(actor.args):  # the arguments are the same on all ranks
            self._stop(step, fault)
        elif self._second.is_due(step) and all_left_notes(step - 1):
            self._read(self._second, step, data, actor)

    def loss_begins(self, step: int, batch: Batch) -> None:
        """Says it if slime has made no pass for old before it trains. It ends nothing, because other ranks do not come here."""
        if self._second is not None and not batch.get("log_probs"):
            self._recording.say_once("self_noise", step, UNSCORED, logging.WARNING)

    def _read(self, second: SecondForward, step: int, data: Batch, actor: Any) -> None:
        with ExitStack() as stack:
            parts = self._recording.watch(
                lambda: _prepared(stack, actor, data, second.noise.sequences), "second_forward"
            )
            if parts is None or second.is_over:
                all_are_ready(False)
            elif all_are_ready(True):
                rows = len(data["tokens"])
                found = second.read(step, rows, lambda places: _scored(actor, parts[places[0]]), (), 1).get(AGAIN, [])
                self.found = {place: row for place, row in enumerate(found) if row is not None}
                return
        self._stop(step, A_RANK_IS_NOT_READY)

    def _stop(self, step: int, sentence: str) -> None:
        """Ends it on this rank for a reason that every rank has."""
        self._is_over_for_all = True
        if self._second is not None:
            self._second.end(step, sentence)

    def _say(self, step: int, sentence: str) -> None:
        if self._names.place().speaks:
            self._recording.say_once("self_noise", step, sentence, logging.WARNING)
        else:
            say(logging.INFO, "step %d: %s", step, sentence)

    def _failed(self, what: str, error: Exception) -> None:
        if self._recording.has_collector:
            self._recording.collector.failed(what, error)


def _prepared(stack: ExitStack, actor: Any, data: Batch, sequences: int) -> dict[int, list[Any]]:
    """Place -> the iterators of a batch of this sequence, one for each virtual stage. stack: guards the model until it is closed.

    SchemaError if the rank has fewer sequences than are read, because all ranks must make as many forwards.
    """
    rows = len(data["tokens"])
    if rows < sequences:
        raise SchemaError(f"the rank has {rows} sequences; wanted {sequences}: SelfNoise(sequences={rows}) reads fewer")
    stack.enter_context(guarded(actor.model))
    own = sys.modules[f"{_MEGATRON}.data"]
    lists = {name: values for name, values in data.items() if isinstance(values, list) and len(values) == rows}
    return {
        place: own.get_data_iterator(
            {**{name: [values[place]] for name, values in lists.items()}, "micro_batch_indices": [[0]]}
        )
        for place in SelfNoise(1, sequences).places(rows)
    }


def _scored(actor: Any, iterators: list[Any]) -> list[Tensor]:
    """The log-probs of the one sequence of these iterators; empty on ranks that have none."""
    own = sys.modules[f"{_MEGATRON}.actor"]
    found = own.forward_only(
        own.get_log_probs_and_entropy, actor.args, actor.model, iterators, [1], use_rollout_top_p_replay=True
    )
    return list(found.get("log_probs") or [sys.modules["torch"].empty(0)])


def _fault(args: Arguments) -> str:
    """Why nothing can be read; "" if it can. All ranks have the same arguments."""
    if args.use_routing_replay:
        return REPLAYED
    if args.custom_megatron_before_log_prob_hook_path:
        return USERS_HOOK
    if getattr(args, "virtual_pipeline_model_parallel_size", None):
        return VIRTUAL_STAGES
    return ALONE if args.micro_batch_size == 1 and not args.use_dynamic_batch_size else ""


NOTE = "ratioscope/self_noise/"


def leave_note(step: int) -> None:
    """Leaves this rank's note for the step."""
    if (group := _group()) is not None:
        _store(group).add(f"{NOTE}{step}", 1)


def all_left_notes(step: int) -> bool:
    """True if every rank left a note for this step, or if this process is alone."""
    group = _group()
    return group is None or int(_store(group).add(f"{NOTE}{step}", 0)) == group.get_world_size()


def all_are_ready(is_ready: bool) -> bool:
    """True if every rank is ready. A collective call."""
    if (group := _group()) is None:
        return is_ready
    torch = sys.modules["torch"]
    ready = torch.tensor([int(is_ready)], device="cuda" if torch.cuda.is_available() else "cpu")
    group.all_reduce(ready, op=group.ReduceOp.MIN)
    return bool(ready.item())


def _group() -> Any:
    """torch.distributed, if this process is one of several ranks; else None."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def _store(distributed: Any) -> Any:
    return distributed.distributed_c10d._get_default_store()
