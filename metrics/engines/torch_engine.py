"""The torch engine: statistics of padded (B, T) tensors on the trainer's device, all-reduced, without waiting for the device.

It evaluates the same formulas as the numpy engine; only the reductions differ. A rank without tokens changes nothing.

    local = torch_engine.statistics(rollout, old, mask)                     # one float64 vector, on the device
    values = torch_engine.values(torch_engine.all_reduce(local))            # the one copy to the host
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ratioscope.record import GAPS

from ..columns import SHIFTS, sequence_columns, token_columns
from ..definitions.registry import statistics_of
from ..definitions.tail import TAILS, K
from ..metric import NEUTRAL, SAMPLED, Combine, Statistic, Tail
from ..table_metrics import gap_values

Tensor = torch.Tensor
PREFIX = "ratioscope"
PIECE = 1 << 20
"""Tokens that are worked on at a time, in whole rows: the device's memory is the trainer's."""


def statistics(
    earlier: Tensor, later: Tensor, mask: Tensor | None = None, *, gap: str = "mismatch", entropy: Tensor | None = None,
    advantages: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One float64 vector: the statistics of the gap in the order of `statistics_of(gap)`, then K log-weights per tail.

    earlier, later, entropy: (B, T) in nats, any float dtype, rounded to float32 as when stored. mask: (B, T), nonzero at
    sampled tokens; None: all. advantages: (B, T) or (B, 1). Nothing is copied to the host, and the host does not wait for the
    device. A larger batch is worked on in pieces of `PIECE` tokens, so that the memory taken beside it does not grow with it.
    """
    rows = max(1, PIECE // max(1, earlier.shape[-1]))
    with torch.no_grad():
        parts = [
            _of_piece(
                earlier[own], later[own], [_rows(each, own, earlier) for each in (mask, entropy, advantages)], gap
            )
            for own in (slice(begin, begin + rows) for begin in range(0, max(1, len(earlier)), rows))
        ]
        return _merged(torch.stack(parts), gap)


def _of_piece(earlier: Tensor, later: Tensor, others: Sequence[Tensor | None], gap: str) -> Tensor:
    """The vector of some rows. others: their mask, entropy and advantages."""
    mask, entropy, advantages = others
    order = statistics_of(gap)
    first, second = _as_stored(earlier), _as_stored(later)
    sampled = torch.ones_like(first, dtype=torch.bool) if mask is None else mask.to(first.device) != 0
    visible = torch.where(sampled, first, float("nan"))
    columns = token_columns(
        first,
        second,
        sampled,
        torch,
        entropy=None if entropy is None else _as_stored(entropy),
        advantage=None if advantages is None else _as_stored(advantages),
        pairs={shift: _shifted(visible, shift) for shift in (SHIFTS if gap in SAMPLED else ())},
    )
    sums = {s.name: _reduced(s.formula(columns, torch), s.combine, dim=-1) for s in order if s.level == "token"}
    whole = sequence_columns(sums, torch)
    at = {s.name: s.formula(sums if s.level == "cluster" else whole, torch) for s in order if s.level != "token"}
    return torch.cat((_over_rows({**sums, **at}, order), _largest(columns.log_weight), _largest(whole.log_weight)))


def all_reduce(local: Tensor, *, gap: str = "mismatch", group: Any = None) -> Tensor:
    """The statistics of all ranks together: sums add, maxima take the larger, log-sums add in log space, tails merge.

    Every rank of the group must call it. Without torch.distributed it returns its input.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return local
    scalars, tails = local[: -K * len(TAILS)], local[-K * len(TAILS) :]
    largest = scalars.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    anchor = torch.where(torch.isfinite(largest), largest, 0.0)
    logs = _combined_by("logsumexp", gap, local.device)
    added = torch.where(logs, torch.exp(scalars - anchor), scalars)
    dist.all_reduce(added, dist.ReduceOp.SUM, group=group)
    added = torch.where(logs, anchor + torch.log(added), added)
    every = [torch.empty_like(tails) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, tails, group=group)
    merged = _merged_tails(torch.stack(every))
    return torch.cat((torch.where(_combined_by("max", gap, local.device), largest, added), merged))


def values(statistics: Tensor, *, gap: str = "mismatch") -> dict[str, float]:
    """Metric name -> value, and name_se -> its standard error if it has one; NaN if not available.

    This is the only copy to the host.
    """
    host = statistics.detach().cpu().numpy()
    scalars = {s: host[i : i + 1] for i, s in enumerate(statistics_of(gap))}
    tails = {tail: host[len(scalars) + i * K :][:K] for i, tail in enumerate(TAILS)}

    def column(need: Statistic | Tail) -> Any:
        return [tails[need][np.isfinite(tails[need])]] if isinstance(need, Tail) else scalars[need]

    return {name: float(value[0]) for name, value in gap_values(column, gap).items()}


def scalars(
    *, rollout: Tensor | None = None, old: Tensor | None = None, current: Tensor | None = None,
    mask: Tensor | None = None, entropy: Tensor | None = None, advantages: Tensor | None = None, group: Any = None,
) -> dict[str, float]:  # fmt: skip
    """Scalars for a trainer's own logger: `ratioscope/mismatch/kl_k3` -> value, for every gap whose two sides are given.

    entropy: of `current` if it is given, else of `old`. advantages: (B, T) or (B, 1). Every rank of the group must call it.
    """
    policies = {"rollout": rollout, "old": old, "current": current}
    of = "current" if current is not None else "old"
    result: dict[str, float] = {}
    for gap, (first, second) in GAPS.items():
        earlier, later = policies[first], policies[second]
        if earlier is not None and later is not None:
            own = entropy if second == of else None
            local = statistics(earlier, later, mask, gap=gap, entropy=own, advantages=advantages)
            read = values(all_reduce(local, gap=gap, group=group), gap=gap)
            result |= {f"{PREFIX}/{gap}/{name}": value for name, value in read.items()}
    return result


def _over_rows(values: dict[str, Tensor], order: Sequence[Statistic]) -> Tensor:
    """Each statistic of all rows together, in this order; those that combine in one way are one operation of the device."""
    together: dict[str, Tensor] = {}
    for combine in NEUTRAL:
        names = [s.name for s in order if s.combine == combine]
        if names:
            rows = torch.stack([values[name].to(torch.float64) for name in names])
            together |= zip(names, _reduced(rows, combine, dim=-1).unbind(), strict=True)
    return torch.stack([together[s.name] for s in order])


def _rows(tensor: Tensor | None, own: slice, like: Tensor) -> Tensor | None:
    """These rows of a tensor as large as `like`, if there is a tensor."""
    return None if tensor is None else tensor.expand_as(like)[own]


def _merged(parts: Tensor, gap: str) -> Tensor:
    """One vector of several, (N, statistics and tails): of pieces of a batch."""
    scalars, tails = parts[:, : -K * len(TAILS)], parts[:, -K * len(TAILS) :]
    largest, logs = (_combined_by(combine, gap, parts.device) for combine in ("max", "logsumexp"))
    added = torch.where(logs, torch.logsumexp(scalars, 0), scalars.sum(0))
    return torch.cat((torch.where(largest, scalars.amax(0), added), _merged_tails(tails)))


def _merged_tails(parts: Tensor) -> Tensor:
    """The K largest of each tail, from (N, tails x K)."""
    return parts.view(-1, len(TAILS), K).transpose(0, 1).flatten(1).topk(K).values.flatten()


def _as_stored(logprobs: Tensor) -> Tensor:
    return logprobs.detach().to(torch.float32).to(torch.float64)


def _shifted(values: Tensor, shift: int) -> Tensor:
    """values[:, t - shift] at t; NaN if that is outside the row."""
    result = torch.full_like(values, float("nan"))
    if shift > 0:
        result[:, shift:] = values[:, :-shift]
    else:
        result[:, :shift] = values[:, -shift:]
    return result


def _reduced(values: Tensor, combine: Combine, *, dim: int) -> Tensor:
    """The values combined along dim. An empty dimension gives the neutral value; amax and logsumexp would raise."""
    values = values.to(torch.float64)
    if combine == "sum":
        return values.sum(dim)
    if values.shape[dim] == 0:
        return values.sum(dim) + NEUTRAL[combine]
    return values.amax(dim) if combine == "max" else torch.logsumexp(values, dim)


def _largest(log_weights: Tensor) -> Tensor:
    """The K largest, rounded to float32 as in files, padded with -inf."""
    flat = log_weights.flatten()
    room = torch.full((K,), float("-inf"), dtype=flat.dtype, device=flat.device)
    return torch.cat((flat, room)).topk(K).values.to(torch.float32).to(torch.float64)


@cache
def _combined_by(combine: Combine, gap: str, device: torch.device) -> Tensor:
    """True for each statistic of the gap combined in this way. The cache saves a wait for the device."""
    return torch.tensor([s.combine == combine for s in statistics_of(gap)], device=device)
