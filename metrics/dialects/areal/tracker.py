"""AReaL's statistics tracker: the values that micro-batches record, and the metrics exported from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratioscope.arrays import Array, Booleans

from ..single_precision import single


@dataclass
class Record:
    """The records of one micro-batch, by name."""

    stats: dict[str, tuple[Array, Booleans]] = field(default_factory=dict)
    """(values, mask): exported as mean and extremes over the mask."""
    counts: dict[str, Booleans] = field(default_factory=dict)
    """Masks, exported as numbers of tokens."""
    scalars: dict[str, float] = field(default_factory=dict)
    """Name -> number."""

    def stat(self, mask: Booleans, scope: str = "", /, **values: Array) -> None:
        """Records values whose mean and extremes over the mask are exported."""
        self.stats |= {scope + name: (value, mask) for name, value in values.items()}


def exported(records: Sequence[Record]) -> dict[str, float]:
    """avg, min and max over the values inside the masks of all micro-batches; counts added, scalars averaged unweighted.

    A name without a value inside its masks is left out, and so is an infinite extreme. Values outside a mask never count.
    """
    metrics: dict[str, float] = {}
    for name in _names([record.stats for record in records]):
        metrics |= _summary(name, [record.stats[name] for record in records if name in record.stats])
    for name in _names([record.counts for record in records]):
        metrics[name] = float(sum(record.counts[name].sum() for record in records if name in record.counts))
    for name in _names([record.scalars for record in records]):
        values = [record.scalars[name] for record in records if name in record.scalars]
        metrics[name] = float(single(sum(values)) / single(len(values)))
    return metrics


def _names(tables: Sequence[Mapping[str, object]]) -> dict[str, None]:
    return dict.fromkeys(name for table in tables for name in table)


def _summary(name: str, parts: Sequence[tuple[Array, Booleans]]) -> dict[str, float]:
    masked = [value[mask] for value, mask in parts]
    values = np.concatenate(masked)
    if not values.size:
        return {}
    # Python's min and max over micro-batches, as in AReaL: the result depends on where a NaN stands among them.
    lowest = min(float(each.min(initial=np.inf)) for each in masked)
    highest = max(float(each.max(initial=-np.inf)) for each in masked)
    extremes = {f"{name}/min": lowest, f"{name}/max": highest}
    average = float(single(values.sum(dtype=np.float64)) / single(values.size))
    return {f"{name}/avg": average} | {key: value for key, value in extremes.items() if not np.isinf(value)}
