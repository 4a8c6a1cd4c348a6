"""From the first sampled token of a row to its last: what a Record holds, cut out of rows that hold the prompt too.

On the host a span is two numbers. On a device it is not looked at, because that would wait for the device: there the rows are
moved until their first sampled token comes first, and what lies behind the last one is cut off later, by the writer.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = Any
"""A torch.Tensor. `Any`, because torch is no dependency."""


def sampled_span(mask: NDArray[np.bool_]) -> tuple[int, int] | None:
    """First sampled position and one past the last; None where nothing was sampled."""
    found = np.flatnonzero(mask)
    return (int(found[0]), int(found[-1]) + 1) if len(found) else None


class SampledFirst:
    """Moves rows `(B, T)` so that the first true of `mask` comes first. Makes new tensors, waits for nothing."""

    def __init__(self, mask: Tensor) -> None:
        torch = sys.modules["torch"]
        width = mask.shape[1]
        with torch.no_grad():
            first = mask.int().argmax(1, keepdim=True)  # of equal values the first
            index = first + torch.arange(width, device=mask.device)
            self._index, self._inside = index.clamp(max=width - 1), index < width
            self.mask = mask.bool().gather(1, self._index) & self._inside

    def __call__(self, values: Tensor) -> Tensor:
        """The rows moved; behind their ends stands whatever stood last."""
        return values.detach().gather(1, self._index)

    def where(self, mask: Tensor) -> Tensor:
        """A mask moved; false behind the rows' ends."""
        return mask.bool().gather(1, self._index) & self._inside
