"""A training rank's side of the stand-ins of slime and miles: micro-batches, optimizer steps, and the actors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from standins.slime_loss import take_out
from standins.slime_places import VOCABULARY, StandIn
from standins.slime_sampling import Engine

_TRAINED_ON = (
    "tokens", "loss_masks", "total_lengths", "response_lengths", "log_probs", "ref_log_probs", "advantages",
    "rollout_log_probs", "rollout_mask_sums", "rollout_topk_token_ids", "rollout_topk_log_probs",
)  # fmt: skip


class DataIterator:
    """Micro-batches of two sequences."""

    def __init__(self, rollout_data: dict[str, Any]) -> None:
        self.rollout_data, self.offset = rollout_data, 0

    def get_next(self, keys: Sequence[str]) -> dict[str, Any]:
        rows, self.offset = (self.offset, self.offset + 1), self.offset + 2
        found = {key: self.rollout_data.get(key) for key in keys}
        return {key: None if values is None else [values[row] for row in rows] for key, values in found.items()}


def get_batch(data_iterator: DataIterator, keys: Sequence[str]) -> dict[str, Any]:
    batch = data_iterator.get_next(keys)
    batch["unconcat_tokens"] = batch["tokens"]
    batch["tokens"] = torch.cat(batch["tokens"])[None]
    return batch


def train_one_step(s: StandIn) -> Callable[..., Any]:
    def stepped(args: Any, data_iterator: Any, model: Any, optimizer: Any, num_microbatches: int, size: int) -> Any:
        optimizer.zero_grad()
        model[0].history.append(model[0].weights.detach().clone())
        logs = []
        for _ in range(num_microbatches):
            batch = get_batch(data_iterator[0], _TRAINED_ON)
            logits = model[0].weights[batch["tokens"]]
            function = s.at("model").loss_function
            if s.is_slime:
                call = partial(function, args, batch, num_microbatches, size)
            else:
                call = partial(
                    function, args, batch, num_microbatches, apply_megatron_loss_scaling=True, num_rollouts=size
                )
            loss, _, log = call(logits)
            (loss + torch.rand(()) * 1e-3 * logits.sum()).backward()  # draws, so that another draw would show
            logs.append(log)
        model[0].gradients.append(model[0].weights.grad.clone())
        optimizer.step()
        return {name: float(sum(log[name] for log in logs)) for name in logs[0]}, 0.0

    def slime(
        args: Any,
        rollout_id: int,
        step_id: int,
        data_iterator: Any,
        model: Any,
        optimizer: Any,
        opt_param_scheduler: Any,
        num_microbatches: int,
        step_global_batch_size: int,
        microbatch_pbar: Any = None,
    ) -> Any:
        return stepped(args, data_iterator, model, optimizer, num_microbatches, step_global_batch_size)

    def miles(
        args: Any,
        rollout_id: int,
        step_id: int,
        data_iterator: Any,
        model: Any,
        optimizer: Any,
        opt_param_scheduler: Any,
        num_microbatches: int,
        num_rollouts: int,
        *,
        witness_info: Any,
        attempt: int,
        ft_test_action_executor: Any = None,
    ) -> Any:
        return *stepped(args, data_iterator, model, optimizer, num_microbatches, num_rollouts), "normal"

    return slime if s.is_slime else miles


def train(s: StandIn) -> Callable[..., None]:
    def train(
        rollout_id: int,
        model: Any,
        optimizer: Any,
        opt_param_scheduler: Any,
        data_iterator: Any,
        num_microbatches: Sequence[int],
        global_batch_sizes: Sequence[int],
        **of_miles: Any,
    ) -> None:
        args = model[0].args
        for step_id, count in enumerate(num_microbatches):
            step = getattr(s.at("model"), s.step_name)
            more = {} if s.is_slime else {"witness_info": None, "attempt": 0}
            metrics, *_ = step(
                args, rollout_id, step_id, data_iterator, model, optimizer, None, count, 2 * count, **more
            )
            logged = {f"train/{name}": value for name, value in metrics.items()}
            logged["train/step"] = rollout_id * len(num_microbatches) + step_id
            s.at("log").log(args, logged, step_key="train/step")

    return train


class Bigram:
    """A model: row t of the table holds the logits after token t."""

    def __init__(self, args: Any) -> None:
        table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(args.seed))
        self.args, self.weights = args, table.requires_grad_(True)
        self.reference = table.detach().clone()
        self.gradients: list[torch.Tensor] = []
        self.history: list[torch.Tensor] = []


class Actor:
    """What both MegatronTrainRayActors share; see `_actor` for the methods that are theirs."""

    def __init__(self, s: StandIn, args: Any) -> None:
        self.s, self.args, self.role, self.tokenizer = s, args, "actor", None
        self.model = [Bigram(args)]
        self.optimizer = torch.optim.SGD([self.model[0].weights], lr=0.5)
        self.weight_updater = SimpleNamespace(weight_version=0)
        self.rollout_data: list[dict[str, Any]] = []
        path = args.rollout_data_postprocess_path
        self.rollout_data_postprocess = None if path is None else s.at("misc").load_function(path)

    def forward_only(self, rollout_data: dict[str, Any], weights: torch.Tensor) -> list[torch.Tensor]:
        tokens, lengths = rollout_data["tokens"], (rollout_data["total_lengths"], rollout_data["response_lengths"])
        with torch.no_grad():
            found = self.s.at("actor").get_log_probs_and_entropy(
                weights[torch.cat(tokens)][None],
                args=self.args,
                unconcat_tokens=tokens,
                total_lengths=lengths[0],
                response_lengths=lengths[1],
            )
        log_probs: list[torch.Tensor] = (found[1] if self.s.is_slime else found)["log_probs"]
        return log_probs

    def trained(self, rollout_id: int, rollout_data: dict[str, Any]) -> None:
        s, args, model = self.s, self.args, self.model[0]
        steps = args.num_steps_per_rollout
        if args.use_score_centering:
            drawn = torch.Generator().manual_seed(rollout_id)
            heads = [torch.randn(n, VOCABULARY, generator=drawn) for n in rollout_data["response_lengths"]]
            found = [torch.log_softmax(head, -1).topk(3) for head in heads]
            rollout_data["rollout_topk_token_ids"] = [head.indices.int() for head in found]
            rollout_data["rollout_topk_log_probs"] = [head.values for head in found]
        if args.with_ref:
            rollout_data["ref_log_probs"] = self.forward_only(rollout_data, model.reference)
        reuses = args.skip_actor_forward_only if not s.is_slime else steps == 1 and not args.get_mismatch_metrics
        if (not args.use_rollout_logprobs or args.get_mismatch_metrics) and not reuses:
            rollout_data["log_probs"] = self.forward_only(rollout_data, model.weights)
        rollout_data["advantages"] = [
            torch.full_like(log_prob, reward)
            for log_prob, reward in zip(rollout_data["rollout_log_probs"], rollout_data["rewards"], strict=True)
        ]
        if self.rollout_data_postprocess is not None:
            self.rollout_data_postprocess(*((args, rollout_id, rollout_data) if s.is_slime else (args,)))
        s.at("train_metrics").log_rollout_data(rollout_id, args, rollout_data)
        count = len(rollout_data["tokens"]) // 2 // steps
        iterator = [DataIterator(rollout_data)]
        self.rollout_data.append({**rollout_data})
        s.at("actor").train(
            rollout_id, self.model, self.optimizer, None, iterator, [count] * steps, [2 * count] * steps
        )

    def pushed(self, engine: Engine) -> None:
        self.weight_updater.weight_version += 1
        engine.weights = self.model[0].weights.detach().clone()
        engine.version = str(self.weight_updater.weight_version)


def slime_actor(s: StandIn) -> type:
    class MegatronTrainRayActor(Actor):
        def train(self, rollout_id: int, rollout_data_ref: Any, external_data: Any = None) -> None:
            shard = s.at("actor").process_rollout_data(self.args, rollout_data_ref, 0, 1)
            self.train_actor(rollout_id, take_out(s, shard), external_data=external_data)

        def train_actor(self, rollout_id: int, rollout_data: dict[str, Any], external_data: Any = None) -> None:
            self.trained(rollout_id, rollout_data)

        def update_weights(self) -> None:
            self.pushed(self.engine)  # type: ignore[attr-defined]

    return MegatronTrainRayActor


def miles_actors(s: StandIn) -> tuple[type, type]:
    class MegatronTrainRayActor(Actor):
        def train(
            self,
            rollout_id: int,
            rollout_data_ref: Any,
            witness_info: Any = None,
            attempt: int = 0,
            external_data: Any = None,
        ) -> None:
            rollout_data, _ = s.at("data").process_rollout_data(self.args, rollout_data_ref, 0, 1, witness_info=None)
            self.train_actor(
                rollout_id, rollout_data, external_data=external_data, witness_info=witness_info, attempt=attempt
            )

        def train_actor(
            self,
            rollout_id: int,
            rollout_data: dict[str, Any],
            external_data: Any = None,
            *,
            witness_info: Any,
            attempt: int,
        ) -> str:
            self.trained(rollout_id, rollout_data)
            return "normal"

        def update_weights(self, info: Any) -> None:
            self.pushed(info.engine)

    class FSDPTrainRayActor(Actor):
        def train(self, rollout_id: int, rollout_data_ref: Any, witness_info: Any = None, attempt: int = 0) -> None:
            rollout_data, _ = s.at("data").process_rollout_data(self.args, rollout_data_ref, 0, 1, witness_info=None)
            self._train_core(rollout_id=rollout_id, rollout_data=rollout_data)

        def _train_core(self, rollout_id: int, rollout_data: dict[str, Any]) -> None:
            rollout_data["log_probs"] = self.forward_only(rollout_data, self.model[0].weights)
            rollout_data["advantages"] = [torch.ones_like(values) for values in rollout_data["log_probs"]]
            self.rollout_data.append({**rollout_data})
            iterator = DataIterator(rollout_data)
            self.optimizer.zero_grad()
            for step_id in range(2):
                for _ in range(2):
                    self._train_step(batch=get_batch(iterator, _TRAINED_ON), step_id=step_id, num_microbatches=2)
                self.optimizer.step()

        def _train_step(self, batch: Any, step_id: int, num_microbatches: int) -> Any:
            logits = self.model[0].weights[batch["tokens"]]
            loss, _, log = s.at("fsdp_actor").loss_function(
                args=self.args,
                batch=batch,
                num_microbatches=num_microbatches,
                logits=logits,
                apply_megatron_loss_scaling=False,
            )
            loss.backward()
            return log

        def update_weights(self, info: Any) -> None:
            self.pushed(info.engine)

    return MegatronTrainRayActor, FSDPTrainRayActor
