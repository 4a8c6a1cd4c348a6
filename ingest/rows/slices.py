"""Slices that writers do not write: computed on demand from token rows, by a label per row or per token."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ratioscope.errors import ConfigError
from ratioscope.metrics.analysis.token_classes import token_classes
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, list_lengths, pc
from ratioscope.metrics.engines.slices import WRITTEN, Labels

from .token_frame import token_counts, token_frame

DECILES = 10
COLUMNS = ("replica", "turn")
"""Written slices whose labels are a column of the Record."""


@dataclass(frozen=True)
class OnDemand:
    """A slice that is computed from token rows."""

    name: str
    columns: tuple[str, ...]
    """Columns of the Record that its labels are made of."""
    labels: Callable[[pa.Table], Labels]
    """Function of the joined Records: one label per row, or a list of labels per row."""
    meaning: str
    """Meaning of its keys, for a reader."""
    absent: str
    """Advice on recording its columns; "" where every run has them."""


def _column(name: str) -> Callable[[pa.Table], Labels]:
    return lambda records: records[name]


def length_deciles(records: pa.Table) -> Labels:
    """Decile (1 shortest, 10 longest) of each row's response length among the rows of its step. Equal lengths share a decile."""
    lengths, steps = token_counts(records), records["step"].to_numpy()
    deciles = np.zeros(len(lengths), np.int64)
    for step in np.unique(steps):
        own = steps == step
        edges = np.quantile(lengths[own], np.arange(1, DECILES) / DECILES, method="lower")
        deciles[own] = np.searchsorted(edges, lengths[own], side="left") + 1
    return pa.array(deciles)


def signs(values: ArrowColumn) -> ArrowColumn:
    """negative, zero or positive for each value; null for null and NaN."""
    signs = pc.sign(values.cast(pa.float64()))
    without_nan = pc.if_else(pc.is_nan(signs), pa.scalar(None, pa.float64()), signs)
    return pa.array(["negative", "zero", "positive"]).take(pc.add(without_nan, 1.0).cast(pa.int64()))


def advantage_signs(records: pa.Table) -> Labels:
    """Sign of the advantage: one label per row where no row has more than one advantage, else one per token."""
    column: ArrowColumn = records["advantages"]
    if list_lengths(column).max(initial=0) <= 1:
        single = pc.if_else(pc.equal(pc.list_value_length(column), 1), column, pa.scalar(None, column.type))
        return signs(pc.list_element(single, 0))
    flat = token_frame(records, ("advantage",))["advantage"].to_arrow()
    offsets: ArrowColumn = pa.array(np.concatenate(([0], np.cumsum(token_counts(records)))).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, signs(flat))


def slice_named(name: str) -> OnDemand | None:
    """The slice on demand of this name; None for a written slice. ConfigError lists the names there are."""
    if name in WRITTEN:
        return None
    if name not in ON_DEMAND:
        raise ConfigError(f"there is no slice {name!r}; there are {', '.join((*WRITTEN, *ON_DEMAND))}")
    return ON_DEMAND[name]


_SLICES = (
    OnDemand("group_id", ("group_id",), _column("group_id"), "the prompt group", "pass group_ids= to Collector.log"),
    OnDemand("rank", ("rank",), _column("rank"), "the trainer rank that wrote the row", "give each Collector its rank"),
    OnDemand(
        "minibatch",
        ("minibatch",),
        _column("minibatch"),
        "the update within the step",
        "pass minibatch= to Collector.log",
    ),
    OnDemand(
        "finish_reason",
        ("finish_reason",),
        _column("finish_reason"),
        "why sampling ended",
        "pass finish_reasons= to Collector.log",
    ),
    OnDemand(
        "token_class",
        ("token_texts",),
        lambda records: token_classes(records["token_texts"]),
        "what kind of text the token is",
        "record text='full', with token_texts or decode=",
    ),
    OnDemand("token_id", ("token_ids",), _column("token_ids"), "the sampled token", "pass token_ids= to Collector.log"),
    OnDemand(
        "length_decile", (), length_deciles, "response length among the rows of its step, 1 shortest to 10 longest", ""
    ),
    OnDemand(
        "reward_sign",
        ("reward",),
        lambda records: signs(records["reward"]),
        "sign of the reward",
        "pass rewards= to Collector.log",
    ),
    OnDemand(
        "advantage_sign", ("advantages",), advantage_signs, "sign of the advantage", "pass advantages= to Collector.log"
    ),
)
ON_DEMAND = {made.name: made for made in _SLICES}


def labels_of(name: str, records: pa.Table) -> Labels:
    """The labels of a slice, one per row or a list per row: slices on demand, COLUMNS, and lag.

    lag is per sequence here: the trainer's version minus the oldest version that sampled a token of the sequence.
    """
    if name == "lag":
        return pc.subtract(records["trainer_version"], records["rollout_version_min"])
    on_demand = ON_DEMAND.get(name)
    if on_demand is None and name not in COLUMNS:
        raise ConfigError(f"no slice '{name}' of this kind; there are {', '.join((*COLUMNS, 'lag', *ON_DEMAND))}")
    return records[name] if on_demand is None else on_demand.labels(records)
