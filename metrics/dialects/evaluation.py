"""The frame of every dialect's `evaluate`: batch and configuration in, an Evaluation under the trainer's own names out.

Every dialect module has the same members in the same order:

    VERSIONS    the trainer's versions whose own output was compared with the dialect's
    PRESETS     preset name -> that trainer's configuration mapping
    CANONICAL   their metric name -> our canonical full name, or None where we have no such metric
    NOTES       their metric name -> how it differs from the canonical metric
    parse       their configuration -> typed settings and warnings; raises ConfigError
    write       settings -> their configuration syntax, with the flags that must be set beside it
    evaluate    (batch, config, *, version, kind, micro_batches) -> Evaluation

Dialects share no averaging, on purpose: trainers differ in how they take a masked mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ratioscope.arrays import Array, Booleans, Integers
from ratioscope.errors import SchemaError

from .batch import BatchLike, DialectBatch, MicroBatches, batch_arrays, row_groups
from .settings import SettingsClass

S = TypeVar("S", bound=SettingsClass)

Needs = Mapping[str, Sequence[str]]
"""Array name -> the names of the metrics and losses that need it, as patterns like those of file names: `probs_ratio*`."""


@dataclass(frozen=True)
class Evaluation:
    """A trainer's metrics, weights and mask for one batch. Arrays have shape (rows, positions)."""

    metrics: dict[str, float]
    """The trainer's own metric name -> value."""
    weights: Array | None
    """The weight of each loss term; shape (rows, 1) if there is one per sequence. None: the trainer applies none."""
    mask: Booleans
    """The tokens that stay in the loss."""
    warnings: tuple[str, ...] = ()
    """Settings that do harm, and arrays that the batch lacks."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Other scalars that the trainer computes."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Other arrays that the trainer computes."""
    lacks: tuple[str, ...] = ()
    """Arrays that the weights or the mask are computed from and the batch lacks: then neither is the trainer's."""


@dataclass(frozen=True)
class Call(Generic[S]):
    """The arguments of one `evaluate`, checked."""

    batch: DialectBatch
    """NaN takes the place of an absent array that only metrics need."""
    settings: S
    """The result of the dialect's `parse`."""
    kind: str | None
    micro_batches: MicroBatches | int | None

    def groups(self) -> list[Integers]:
        """The row numbers of each micro-batch."""
        return row_groups(self.micro_batches, len(self.batch.mask), self.kind)


class Evaluate(Protocol):
    """The `evaluate` of a dialect."""

    def __call__(
        self,
        batch: BatchLike,
        config: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        kind: str | None = None,
        micro_batches: MicroBatches | int | None = None,
    ) -> Evaluation:
        """An Evaluation of the batch; `kind` and `micro_batches` mean what the dialect says."""
        ...


def evaluator(
    parse: Callable[[Mapping[str, Any], str | None], S],
    evaluated: Callable[[Call[S]], Evaluation],
    prefix: str = "",
    needs: Callable[[S], Needs] = lambda settings: {},
) -> Evaluate:
    """The `evaluate` of a dialect: settings parsed, batch checked, then the dialect's own formulas, then its names.

    prefix: before every metric's name. needs: the arrays that a batch may lack with these settings. Metrics and losses that
    need an absent array are left out, not guessed, and a warning names it.
    """

    @np.errstate(all="ignore")  # NaN and infinity are legal values here
    def evaluate(
        batch: BatchLike,
        config: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        kind: str | None = None,
        micro_batches: MicroBatches | int | None = None,
    ) -> Evaluation:
        settings, arrays = parse(config or {}, version), batch_arrays(batch)
        optional = needs(settings)
        absent = [name for name in optional if getattr(arrays, name) is None]
        for name in absent:
            arrays = replace(arrays, **{name: np.full(arrays.shape, np.nan, np.float32)})  # type: ignore[arg-type]
        patterns = [pattern for name in absent for pattern in optional[name]]

        def known(values: Mapping[str, float], prefix: str) -> dict[str, float]:
            names = (name for name in values if not any(fnmatchcase(name, pattern) for pattern in patterns))
            return {prefix + name: float(values[name]) for name in names}

        done = evaluated(Call(arrays, settings, kind, micro_batches))
        lacking = [
            f"the batch has no {name}: the metrics that the trainer computes with it are left out" for name in absent
        ]
        return replace(
            done,
            metrics=known(done.metrics, prefix),
            losses=known(done.losses, ""),
            warnings=(*settings.warnings, *lacking, *done.warnings),
        )

    evaluate.__doc__ = evaluated.__doc__
    return evaluate


def needed(tokens: object, name: str, reader: str) -> Array:
    """The attribute of that name. SchemaError if it is None; the message names `reader`, the setting that reads it."""
    value = getattr(tokens, name)
    if value is None:
        column = name if name == "advantages" else f"{name}_logprobs"
        raise SchemaError(f"the batch has no '{column}', which {reader} reads: log {column}, or choose another setting")
    return np.asarray(value)
