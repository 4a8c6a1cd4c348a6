"""What every adapter is to do, as checks of one driven training; the tables of who is driven how are the tests'."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from ratioscope import open_run
from ratioscope.collectors.trainers import adapter_named
from ratioscope.collectors.watching.hooks import is_watched
from ratioscope.ingest.run import Run
from ratioscope.metrics.engines.join import joined

BOTH_MASKS, VERSIONS = ("mask", "loss_mask"), ("rollout_version_min", "trainer_version")
FACTS = ("group_id", "reward", "advantages")


@dataclass(frozen=True)
class Driven:
    """A training to drive: module (with `drive`) and options, and what its records must hold.

    columns: not null in some row. lags: what the difference of trainer and rollout version may be; None: versions unknown.
    """

    adapter: str
    module: str
    options: Mapping[str, Any]
    policies: tuple[str, ...] = ("rollout", "old", "current")
    columns: tuple[str, ...] = (*BOTH_MASKS, *FACTS, "prompt_ids")
    lags: tuple[int, ...] | None = (0,)


def seed() -> None:
    """Every training begins from the same random numbers, whatever ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


def traced(drive: Callable[..., dict[str, Any]], row: Driven, run: Path | None) -> tuple[Any, ...]:
    """All that the training computed, recorded or not, and then the state of whatever draws random numbers."""
    if torch.distributed.is_initialized():  # another trainer's, which it left
        torch.distributed.destroy_process_group()
    seed()
    trace = drive(run, **row.options)
    for not_computed in ("attachment", "held", "watched", "engine", "trainer"):
        trace.pop(not_computed, None)
    return trace, random.getstate(), np.random.get_state(), torch.get_rng_state()


def holds_what_it_should(found: Path, wanted: Driven) -> Run:
    """The run, with the policies, columns and lags that the table says, and its first rows aligned."""
    run = open_run(found)
    assert run.policies == wanted.policies
    sides = set(wanted.policies)
    assert set(run.gaps) == {gap for gap, pair in GAPS_OF.items() if set(pair) <= sides}
    rows = run.records().collect()
    empty = [name for name in wanted.columns if rows[name].null_count() == len(rows)]
    assert not empty, empty
    if wanted.lags is not None:
        together = pl.DataFrame(joined(rows.to_arrow()))  # a process may know the one, another the other
        known = together.drop_nulls(list(VERSIONS))
        lags = (known["trainer_version"] - known["rollout_version_min"]).unique()
        assert len(known) and set(lags.to_list()) <= set(wanted.lags), lags
        measured = run.metrics(by=("lag",))["lag"].to_list()
        assert measured and {int(lag) for lag in measured} <= set(wanted.lags), measured
    key = ("attempt", "step", "minibatch", "sequence_id", "rank")
    told_once = rows.group_by(key).agg(pl.col(f"{policy}_logprobs").count() for policy in wanted.policies)
    assert told_once.select(pl.exclude(key).max()).row(0) == (1,) * len(
        wanted.policies
    )  # parts of a row may come in parts
    told = run.events.filter(event="first_rows")["note"].to_list()
    assert told and not any("LOOK SHIFTED" in note or "correlate little" in note for note in told), told
    assert not run.quarantined and run.conservation.pending == run.conservation.dropped == 0
    return run


GAPS_OF = {"mismatch": ("rollout", "old"), "total": ("rollout", "current"), "drift": ("old", "current")}


def masks_nest(run: Run) -> bool:
    """True if no token that was not sampled is in the loss."""
    rows = run.records().select("mask", "loss_mask").drop_nulls().collect().explode("mask", "loss_mask")
    return bool((rows["mask"] | ~rows["loss_mask"]).all()) if len(rows) else True


def left_behind(adapter: str) -> list[str]:
    """Functions of the trainer that a wrapper of ours is still on."""
    found = adapter_named(adapter)
    assert found is not None
    return [f"{hook.module}.{hook.name}" for hook in found.load().HOOKS if _is_loaded(hook.module) and is_watched(hook)]


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two traces differ, to the last bit; NaN equals NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape and _same_bits(one, other)
        return [] if same else [path]
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return [] if one.dtype == other.dtype and one.tobytes() == other.tobytes() else [path]
    if isinstance(one, pl.DataFrame):
        return [] if one.equals(other) else [path]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if list(one) != list(other):
            return [f"{path} keys {set(one) ^ set(other)}"]
        return [found for key in one for found in differences(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, Enum) and isinstance(other, Enum):  # stand-ins make their classes anew
        return [] if (type(one).__qualname__, one.value) == (type(other).__qualname__, other.value) else [path]
    if is_dataclass(one) and type(one).__qualname__ == type(other).__qualname__:
        names = [item.name for item in fields(one)]
        return [found for n in names for found in differences(getattr(one, n), getattr(other, n), f"{path}.{n}")]
    dump = getattr(one, "model_dump", None)
    if dump is not None and type(one).__qualname__ == type(other).__qualname__:  # of two imports of tinker
        return differences(dump(), other.model_dump(), path)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        if type(one) is not type(other) or len(one) != len(other):
            return [f"{path} length"]
        pairs = enumerate(zip(one, other, strict=True))
        return [found for place, (a, b) in pairs for found in differences(a, b, f"{path}[{place}]")]
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return [] if math.isnan(other) else [path]
    if "__eq__" not in dir_of(one) and type(one) is type(other):
        return differences(vars(one), vars(other), path) if hasattr(one, "__dict__") else []
    return [] if one == other else [f"{path}: {one!r} != {other!r}"]


def dir_of(value: Any) -> set[str]:
    """Names that the value's classes define themselves, `object` aside."""
    return {name for base in type(value).__mro__ if base is not object for name in vars(base)}


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(torch.nan_to_num(one, nan=7e7), torch.nan_to_num(other, nan=7e7))) and bool(
        torch.equal(torch.isnan(one), torch.isnan(other))
    )


def _is_loaded(name: str) -> bool:
    import sys

    return name in sys.modules
