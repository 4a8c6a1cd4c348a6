"""The loss of the stand-ins of slime and miles: scores, the reducer, corrections, and what arrives at a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from standins.slime_places import Ranks, StandIn


def local_positions(ranks: Ranks, total: int, response: int) -> list[int]:
    """Response positions of this rank, found one by one from the position that predicts each token."""
    if ranks.cp_size == 1:
        return list(range(response))
    chunk, mine = -(-total // (2 * ranks.cp_size)), (ranks.cp_rank, 2 * ranks.cp_size - 1 - ranks.cp_rank)
    return [t for t in range(response) if (total - response - 1 + t) // chunk in mine]


def _local(s: StandIn, values: torch.Tensor, total: int, response: int) -> torch.Tensor:
    return values[torch.tensor(local_positions(s.ranks, total, response), dtype=torch.long)]


def take_out(s: StandIn, shard: dict[str, Any]) -> dict[str, Any]:
    """What both trainers do with a shard when it has arrived: lists become tensors, log-probs the rank's slices."""
    shard["total_lengths"] = [shard["total_lengths"][place] for place in shard["partition"]]
    data = {
        **shard,
        "tokens": [torch.as_tensor(tokens, dtype=torch.long) for tokens in shard["tokens"]],
        "loss_masks": [torch.as_tensor(mask, dtype=torch.int) for mask in shard["loss_masks"]],
        "rollout_mask_sums": torch.as_tensor(shard["rollout_mask_sums"]),
    }
    sizes = zip(shard["rollout_log_probs"], shard["total_lengths"], shard["response_lengths"], strict=True)
    data["rollout_log_probs"] = [_local(s, torch.as_tensor(v, dtype=torch.float32), t, r) for v, t, r in sizes]
    if s.is_slime:
        data["local_raw_reward"] = [shard["raw_reward"][place] for place in shard["partition"]]
    else:
        data.pop("partition")
    return data


def data(s: StandIn) -> Mapping[str, Any]:
    def slime(args: Any, rollout_data_ref: Any, dp_rank: int, dp_size: int) -> Any:
        return rollout_data_ref[dp_rank].inner

    def miles(args: Any, rollout_data_ref: Any, dp_rank: int, dp_size: int, witness_info: Any) -> Any:
        return s.at("shards").process_rollout_data_shard(args, rollout_data_ref[dp_rank]), None

    return {"process_rollout_data": slime if s.is_slime else miles}


def scores(s: StandIn) -> Callable[..., Any]:
    def computed(
        logits: torch.Tensor, tokens: Any, totals: Any, responses: Any, with_entropy: bool
    ) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"log_probs": [], **({"entropy": []} if with_entropy else {})}
        end = 0
        for ids, total, response in zip(tokens, totals, responses, strict=True):
            end += total
            rows = torch.log_softmax(logits[0, end - response - 1 : end - 1], -1)
            log_probs = rows.gather(1, ids[total - response :, None])[:, 0]
            found["log_probs"].append(_local(s, log_probs, total, response))
            if with_entropy:
                found["entropy"].append(_local(s, -(rows.exp() * rows).sum(-1), total, response))
        return found

    def slime(
        logits: torch.Tensor,
        *,
        args: Any,
        unconcat_tokens: Any,
        total_lengths: Any,
        response_lengths: Any,
        with_entropy: bool = False,
        non_loss_data: bool = True,
        top_p_token_ids: Any = None,
        top_p_token_offsets: Any = None,
    ) -> Any:
        return torch.empty(0), computed(logits, unconcat_tokens, total_lengths, response_lengths, with_entropy)

    def miles(
        logits: torch.Tensor,
        *,
        args: Any,
        unconcat_tokens: Any,
        total_lengths: Any,
        response_lengths: Any,
        with_entropy: bool = False,
        entropy_requires_grad: bool = True,
        non_loss_data: bool = True,
        max_seq_lens: Any = None,
    ) -> Any:
        return computed(logits, unconcat_tokens, total_lengths, response_lengths, with_entropy)

    return slime if s.is_slime else miles


def reducer(s: StandIn) -> Callable[..., Any]:
    def made(totals: Any, responses: Any, loss_masks: Any, denominators: Any) -> Any:
        masks = [
            _local(s, mask, total, response)
            for mask, total, response in zip(loss_masks, totals, responses, strict=True)
        ]

        def reduced(x: torch.Tensor) -> torch.Tensor:
            parts = zip(torch.split(x, [len(mask) for mask in masks]), masks, denominators, strict=True)
            return torch.stack([(part * mask).sum() / torch.clamp_min(d, 1) for part, mask, d in parts]).sum()

        return reduced

    def slime(
        total_lengths: Any,
        response_lengths: Any,
        loss_masks: Any,
        sample_denoms: Any = None,
        calculate_per_token_loss: bool = False,
    ) -> Any:
        return made(total_lengths, response_lengths, loss_masks, sample_denoms)

    def miles(
        total_lengths: Any,
        response_lengths: Any,
        loss_masks: Any,
        calculate_per_token_loss: bool = False,
        qkv_format: str = "thd",
        max_seq_lens: Any = None,
        *,
        denominators: Any = None,
    ) -> Any:
        return made(total_lengths, response_lengths, loss_masks, denominators)

    return slime if s.is_slime else miles


def vanilla_tis_function(
    args: Any, *, pg_loss: Any, train_log_probs: Any, rollout_log_probs: Any, loss_masks: Any, **kwargs: Any
) -> Any:
    ratio = torch.exp(torch.cat(train_log_probs) - torch.cat(rollout_log_probs))
    weights = torch.clamp(ratio, args.tis_clip_low, args.tis_clip)
    return pg_loss * weights, loss_masks, {"tis": ratio.detach()}


def rejecting_tis_function(
    args: Any, *, pg_loss: Any, train_log_probs: Any, rollout_log_probs: Any, loss_masks: Any, **kwargs: Any
) -> Any:
    """A user's own: takes tokens of a large log-ratio out of the loss. Without context parallelism only."""
    pairs = zip(train_log_probs, rollout_log_probs, loss_masks, strict=True)
    masks = [mask * ((old - rollout).abs() < 0.02) for old, rollout, mask in pairs]
    return pg_loss * torch.cat(masks), masks, {"rejected": 1.0 - torch.cat(masks).float()}


def calculate_topk_log_probs(
    logits: torch.Tensor, ids: torch.Tensor, process_group: Any, chunk_size: int = -1, temperature: float = 1.0
) -> torch.Tensor:
    return torch.log_softmax(logits / temperature, -1).gather(1, ids)


def score_centering_correction(
    train_head_logp: torch.Tensor, sampler_head_logp: torch.Tensor, *, mode: str = "none", eps: float = 1e-6
) -> Any:
    p, q = train_head_logp.detach().exp(), sampler_head_logp.exp()
    rho = (1 - q.sum(-1)).clamp_min(eps) / (1 - p.sum(-1)).clamp_min(eps)
    return ((q - rho[:, None] * p) * train_head_logp).sum(-1), q.sum(-1), p.sum(-1)


def _centering(s: StandIn, args: Any, batch: Mapping[str, Any], logits: torch.Tensor) -> torch.Tensor:
    """The additive term of a micro-batch, a call of both functions for each sequence; without context parallelism."""
    end, terms = 0, []
    sizes = zip(batch["total_lengths"], batch["response_lengths"], strict=True)
    heads = zip(batch["rollout_topk_token_ids"], batch["rollout_topk_log_probs"], sizes, strict=True)
    for ids, sampler, (total, response) in heads:
        end += total
        rows = logits[0, end - response - 1 : end - 1]
        train = s.at("ppo").calculate_topk_log_probs(rows, ids.long(), None, temperature=args.rollout_temperature)
        terms.append(s.at("centering").score_centering_correction(train, sampler, mode="none")[0])
    return torch.cat(terms)


def _reduced(s: StandIn, args: Any, batch: Mapping[str, Any], masks: Any) -> Any:
    lengths = (batch["total_lengths"], batch["response_lengths"], masks)
    sums = batch["rollout_mask_sums"]
    make = s.at("losses").get_sum_of_sample_mean
    if s.is_slime:
        return make(*lengths, sums, args.calculate_per_token_loss)
    return make(*lengths, args.calculate_per_token_loss, args.qkv_format, None, denominators=sums)


def policy_loss(s: StandIn) -> Callable[..., Any]:
    def policy_loss_function(args: Any, batch: Any, logits: torch.Tensor, sum_of_sample_mean: Any) -> Any:
        scores = s.at("losses").get_log_probs_and_entropy(
            logits,
            args=args,
            unconcat_tokens=batch["unconcat_tokens"],
            total_lengths=batch["total_lengths"],
            response_lengths=batch["response_lengths"],
            with_entropy=True,
        )
        scores = scores[1] if s.is_slime else scores
        detached = [log_prob.detach() for log_prob in scores["log_probs"]]
        train = batch.get("log_probs") or detached
        old = batch["rollout_log_probs"] if args.use_rollout_logprobs else train
        ratio = torch.exp(torch.cat(scores["log_probs"]) - torch.cat(old))
        advantages = torch.cat(batch["advantages"])
        pg_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip) * advantages)
        metrics: dict[str, Any] = {}
        if args.use_score_centering:
            pg_loss = pg_loss + advantages * _centering(s, args, batch, logits)
        if args.get_mismatch_metrics or args.use_tis:
            path = args.custom_tis_function_path
            tis = s.at("misc").load_function(path) if path else s.at("tis").vanilla_tis_function
            pg_loss, masks, metrics = tis(
                args=args,
                pg_loss=pg_loss,
                train_log_probs=train,
                rollout_log_probs=batch["rollout_log_probs"],
                loss_masks=batch["loss_masks"],
                total_lengths=batch["total_lengths"],
                response_lengths=batch["response_lengths"],
            )
            metrics = {name: sum_of_sample_mean(value).detach() for name, value in metrics.items()}
            sum_of_sample_mean = _reduced(s, args, batch, masks)
        loss = sum_of_sample_mean(pg_loss) - 0.01 * sum_of_sample_mean(torch.cat(scores["entropy"]))
        return loss, {"loss": loss.detach().clone(), **metrics}

    return policy_loss_function


def loss(s: StandIn) -> Callable[..., Any]:
    def dispatched(args: Any, batch: Any, logits: torch.Tensor) -> Any:
        reducer = _reduced(s, args, batch, batch["loss_masks"])
        function = s.at("losses").policy_loss_function
        if args.recompute_loss_function:
            loss, log = checkpoint(function, args, batch, logits, reducer, use_reentrant=False)
        else:
            loss, log = function(args, batch, logits, reducer)
        return loss, torch.tensor(1), log

    def slime(args: Any, batch: Any, num_microbatches: int, step_global_batch_size: int, logits: torch.Tensor) -> Any:
        return dispatched(args, batch, logits)

    def miles(
        args: Any,
        batch: Any,
        num_microbatches: int,
        logits: torch.Tensor,
        apply_megatron_loss_scaling: bool = False,
        num_rollouts: int | None = None,
    ) -> Any:
        return dispatched(args, batch, logits)

    return slime if s.is_slime else miles
