"""The family `moe`: a small mixture of experts that was trained on the synthetic languages, with a fault on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from . import torch_faults as f
from .accepted import HEALTHY
from .torch_faults import Made, Make, Maker, Spec, learning, three, updates
from .torch_loop import DTYPES, Fault, Job, Net, Past, Rng, View, Weights

FAMILY = "moe"
HEADS = 4
EXTRA = {"model_type": "own-mixture"}


@dataclass
class Out:
    logits: torch.Tensor
    balance: torch.Tensor
    """Loss that keeps the experts in equal use."""
    experts: torch.Tensor
    """(B, Q, layers, active)."""


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, hidden: int, layer: int) -> None:
        super().__init__()
        self.layer, self.size = layer, hidden // HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.register_buffer("inv_freq", 1000.0 ** -(torch.arange(self.size // 2) / (self.size // 2)))

    inv_freq: torch.Tensor

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (
            part(x).view(b, t, HEADS, self.size).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        angle = positions[:, None, :, None].float() * self.inv_freq
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        mixed: torch.Tensor = self.o_proj(out.transpose(1, 2).reshape(b, t, d))
        return mixed


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class Experts(nn.Module):
    """Each token goes through the experts that the router chooses; all are computed, because they are small."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.active = net.active
        self.router = nn.Linear(net.hidden, net.experts, bias=False)
        self.up = nn.Parameter(torch.randn(net.experts, net.hidden, net.hidden) / net.hidden**0.5)
        self.down = nn.Parameter(torch.randn(net.experts, net.hidden, net.hidden) / net.hidden**0.5)

    def forward(
        self, x: torch.Tensor, how: dict[str, Any], replay: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = DTYPES[how["router"]] if how["router"] else x.dtype
        logits = nn.functional.linear(x.to(dtype), self.router.weight.to(dtype)).float()
        if how["routing"]:
            logits = logits + how["routing"] * torch.randn(logits.shape, generator=how["draw"])
        chosen = logits.topk(self.active, -1).indices
        if replay is not None:
            chosen = torch.where(replay >= 0, replay, chosen)
        p = logits.softmax(-1)
        gate = p.gather(-1, chosen)
        gate = gate / gate.sum(-1, keepdim=True) if self.active > 1 else gate
        each = torch.einsum("btd,edh->bteh", x, self.up).relu()
        weight = torch.zeros_like(p).scatter(-1, chosen, gate).to(x.dtype)
        out = torch.einsum("bteh,ehd->btd", each * weight[..., None], self.down)
        used = torch.zeros_like(p).scatter(-1, chosen, 1.0).mean((0, 1))
        return out, chosen, (used * p.mean((0, 1))).sum() * p.shape[-1]


class Block(nn.Module):
    def __init__(self, net: Net, layer: int) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(net.hidden, eps=1e-6), nn.RMSNorm(net.hidden, eps=1e-6)
        self.attention = Attention(net.hidden, layer)
        self.mixture = Experts(net)


class Mixture(nn.Module):
    """A decoder whose MLPs are mixtures of experts; called as a model of transformers is."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.embed = nn.Embedding(net.vocab, net.hidden)
        self.blocks = nn.ModuleList(Block(net, layer) for layer in range(net.layers))
        self.norm = nn.RMSNorm(net.hidden, eps=1e-6)
        self.head = nn.Linear(net.hidden, net.vocab, bias=False)
        self.mlp = nn.Identity()  # what a dropout is put on

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        past_key_values: Any = None, use_cache: bool = False, replay: torch.Tensor | None = None, **how: Any,
    ) -> Out:  # fmt: skip
        how = {"routing": 0.0, "router": "", "draw": None} | how
        x = self.embed(input_ids)
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        chosen, balance = [], x.new_zeros(())
        for at, block in enumerate(cast(Iterable[Any], self.blocks)):
            x = x + block.attention(block.first(x), attention_mask, places, past_key_values)
            out, experts, uneven = block.mixture(block.second(x), how, None if replay is None else replay[:, :, at])
            x = self.mlp(x + out)
            chosen.append(experts)
            balance = balance + uneven
        return Out(self.head(self.norm(x)), balance, torch.stack(chosen, 2))


MOVED = ("embed.weight", "head.weight")
NETS: tuple[Net, ...] = (
    Net("mixture_8_top2", Mixture, 97, 32, 2, start="taught", moved=MOVED, seed=20, experts=8, active=2, lessons=220),
    Net("mixture_4_top1", Mixture, 160, 48, 2, start="taught", moved=MOVED, seed=21, experts=4, active=1, lessons=180),
)
RATES = three(6e-4, 2e-3, 8e-3)
"""A third of them is Adam's, because the policy is sharp."""


def healthy_view(view: View, words: str) -> Maker:
    """A healthy run whose engine computes so."""

    def make(job: Job, rate: float, rng: Rng) -> Made:
        job = replace(job, engine=view)
        job = learning(job, rng, rate, (4, 8, 16)) if rate else job
        return job, Fault(), f"nothing; {words}; {updates(job)}"

    return make


def replayed(job: Job, rate: float, rng: Rng) -> Made:
    job = learning(job, rng, rate, (4, 8)) if rate else job
    job = _with_replay(replace(job, trainer=replace(job.trainer, replay="all")), rng)
    return job, Fault(edit=_says_replayed), f"nothing; the trainer takes the engine's experts; {updates(job)}"


def _with_replay(job: Job, rng: Rng) -> Job:
    record = job.record | ({"routers"} if rng.random() < 0.5 else set())
    return replace(job, record=record, config=job.config | {"router_replay": True})


def _says_replayed(log: dict[str, Any], step: int, rng: Rng) -> None:
    log["replayed"] = True


def replay_inert(job: Job, p: tuple[str, float], rng: Rng) -> Made:
    how, size = p
    job = _with_replay(f.maybe_learning(job, rng), rng)
    fault = Fault(
        engine_how=lambda view, step: replace(view, routing=size),
        trainer_how=lambda view, step: replace(view, replay=how),
        edit=_says_replayed,
    )
    words = {"": "never happens", "late": "comes one token too late", "first": "works in the first layer alone"}[how]
    return job, fault, f"replay is on record and {words}; noise of {size:g} on the engine's router; {updates(job)}"


def flips(recorded: bool) -> Maker:
    def make(job: Job, size: float, rng: Rng) -> Made:
        job = f.maybe_learning(job, rng)
        job = replace(job, record=job.record | {"routers"}) if recorded else job
        words = ", the agreement of the routers is on record" if recorded else ""
        fault = Fault(engine_how=lambda view, step: replace(view, routing=size))
        return job, fault, f"noise of {size:g} on the logits of the engine's router{words}; {updates(job)}"

    return make


def part_stale(part: str, side: str = "engine") -> Maker:
    """Tensors with this word in their names stay those of the first step."""

    def make(job: Job, rate: float, rng: Rng) -> Made:
        job = learning(job, rng, rate, (8, 16, 24))
        job = replace(job, record=job.record - {"versions"})

        def wrong(past: Past, step: int) -> Weights:
            return past[-1] | {name: value for name, value in past[0].items() if part in name}

        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the {side}'s {part} stays that of the first step, the rest is new; {updates(job)}"

    return make


def expert_wrong(always: bool) -> Maker:
    def make(job: Job, how: str, rng: Rng) -> Made:
        job = f._sized(replace(job, steps=int(rng.integers(8, 14))))
        job = job if rng.random() < 0.5 else f._sized(replace(job, rate=1e-4))
        at = 0 if always else int(rng.integers(3, job.steps - 3))
        one, two = (int(each) for each in rng.choice(job.net.experts, 2, replace=False))

        def wrong(past: Past, step: int) -> Weights:
            return past[-1] if step < at else past[-1] | spoiled(past[-1], how, one, two)

        words = "always" if always else f"from step {at} on"
        return (
            job,
            Fault(engine=wrong),
            f"{words} the engine has expert {one} {how} (the other is {two}); {updates(job)}",
        )

    return make


def spoiled(weights: Weights, how: str, one: int, two: int) -> Weights:
    """The tensors that change: one expert is halved, zeroed, or exchanged with another one, in one layer or in all."""
    out = {}
    for name, value in weights.items():
        if not name.endswith((".up", ".down")) or (how == "halved" and not name.startswith("blocks.1")):
            continue
        new = value.clone()
        if how == "halved":
            new[one] *= 0.5
        elif how == "zeroed":
            new[one] = 0
        else:
            new[[one, two]] = value[[two, one]]
        out[name] = new
    return out


def view_of(side: str, words: str, change: Callable[[View, Any], View]) -> Maker:
    return f.of_view(side, words, change)


NAN = float("nan")
SPECS: tuple[Spec, ...] = (
    Spec(HEALTHY, "neither", f.healthy, {"none": (0.0, 0, 1.0)}, count=4, label="still"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (1e-3, 0, 1.0)}, count=4, label="learns"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (6e-3, 0, 1.0)}, count=4, label="sharpens"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (4e-3, 4, 1.0)}, count=2, label="lora"),
    Spec(HEALTHY, "neither", healthy_view(View("fp32", router="bf16"), "the engine's router is bf16, the rest fp32"),
         {"none": 0.0},
         count=3, label="router"),
    Spec(HEALTHY, "neither", healthy_view(View("fp32", router="bf16"), "the engine's router is bf16, the rest fp32"),
         {"none": 2e-3},
         count=3, label="router_learns"),
    Spec(HEALTHY, "neither", replayed, {"none": 0.0}, count=2, label="replayed"),
    Spec(HEALTHY, "neither", replayed, {"none": 2e-3}, count=2, label="replayed_learns"),
    Spec("router_flips", "engine", flips(False), three(0.02, 0.08, 0.4), decides=False, count=3),
    Spec("router_flips", "engine", flips(True), three(0.02, 0.08, 0.4), count=2, label="recorded"),
    Spec("replay_inert", "trainer", replay_inert, three(("", 0.05), ("first", 0.2), ("late", 0.1)), decides=False, count=2),
    Spec("part_stale", "engine", part_stale("mixture"), RATES, decides=False, count=2, label="experts"),
    Spec("part_stale", "engine", part_stale("router"), three(2e-3, 8e-3, 2e-2), decides=False, label="router"),
    Spec("part_stale", "trainer", part_stale("mixture", "trainer"), RATES, decides=False, label="t_experts"),
    Spec("corrupted_load", "engine", expert_wrong(False), three("halved", "zeroed", "exchanged"), count=2, label="expert"),
    Spec("expert_wrong", "engine", expert_wrong(True), three("halved", "zeroed", "exchanged"), decides=False),
    Spec("corrupted_load", "engine", f.corrupted_load, three(0.2, 0.7, 1.0), label="attention"),
    Spec("never_synced", "engine", f.never_synced, RATES, count=2),
    Spec("sync_broke", "engine", f.sync_broke, RATES, count=2),
    Spec("sync_every_k", "engine", f.sync_every, {"middle": (2e-3, 4)}),
    Spec("version_lag", "engine", f.version_lag, three((6e-4, 1), (2e-3, 3), (6e-3, 4))),
    Spec("adapter_missing", "engine", f.adapter_missing, RATES),
    Spec("adapter_scaled", "trainer", f.adapter_scaled("trainer"), {"middle": (2e-3, 4), "strong": (4e-3, 8)}, decides=False,
         label="t"),
    Spec("stuck_replica", "engine", f.stuck_replica(True), {"middle": 2e-3}),
    Spec("stuck_replica_unlabelled", "engine", f.stuck_replica(False), {"middle": 2e-3}, decides=False),
    Spec("switch_inside", "engine", f.switch_inside(False), {"middle": (4e-3, 4), "strong": (8e-3, 8)}),
    Spec("trainer_temperature", "trainer", view_of("trainer", "the trainer scores at {p}", lambda v, p: replace(v,
         temperature=p)),
         three(1.05, 1.2, 0.7), label="t"),
    Spec("trainer_temperature", "engine", f.engine_temperature, three(0.95, 0.8, 1.4), label="e"),
    Spec("truncation", "engine", f.truncation("top_p"), three(0.98, 0.9, 0.7), label="p"),
    Spec("different_prompt", "trainer", f.different_prompt("trainer"), three("begin", "message", "topic"), decides=False,
         label="t"),
    Spec("different_prompt", "engine", f.different_prompt("engine"), three("begin twice", "template", "truncated"),
         decides=False, label="e"),
    Spec("position_ids", "engine", view_of("engine", "the {side}'s positions of the response are {p} too high",
         lambda v, p: replace(v, offset=p)), {"middle": 4, "strong": 20}, decides=False),
    Spec("packing_unrecorded", "trainer", f.packing(False), {"middle": 3}, decides=False),
    Spec("dropout", "trainer", view_of("trainer", "the {side} drops {p:.0%} of the hidden state",
         lambda v, p: replace(v, dropout=p)), {"middle": 0.02, "strong": 0.1}, decides=False),
    Spec("quantised", "engine", f.of_weights("engine", "the {side}'s weights are int{p}", f.quantised), {"middle": 6,
         "strong": 4},
         decides=False),
    Spec("aging_state", "engine", f.aging, {"middle": 0.05, "strong": 0.3}, decides=False),
    Spec("non_finite", "engine", f.edited("{p:.1%} of the log-probs are NaN", f.filled(NAN)), {"middle": 0.01, "strong": 0.05},
         of_record=True, decides_weak=True),
    Spec("filler_values", "engine", f.edited("{p:.1%} of the log-probs are 0", f.filled(0.0)), {"middle": 0.01},
         of_record=True),
)  # fmt: skip


def cases(tokens: int = 1700) -> list[Make]:
    """The maker of each run of the family."""
    return f.cases_of(FAMILY, SPECS, NETS, EXTRA, tokens)
