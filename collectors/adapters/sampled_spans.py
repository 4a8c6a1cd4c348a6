"""The span of a row from its first sampled token to its last.

A Record holds this span; a trainer's rows hold the prompt too. On the host a span is two numbers. On a device the two numbers
are not read, because reading would wait for the device. Instead each row is shifted until its first sampled token comes first,
and the writer later cuts off the positions behind the last sampled token.
"""

import sys

import numpy as np

from ratioscope.arrays import Booleans

from ..foreign import Tensor


def sampled_span(mask: Booleans) -> tuple[int, int] | None:
    """(first sampled position, one past the last); None if no token was sampled."""
    positions = np.flatnonzero(mask)
    return (int(positions[0]), int(positions[-1]) + 1) if len(positions) else None


class SampledFirst:
    """Shifts rows `(B, T)` so that the first true position of `mask` comes first.

    The results are new tensors. Nothing waits for the device.
    """

    def __init__(self, mask: Tensor) -> None:
        torch = sys.modules["torch"]
        width = mask.shape[1]
        with torch.no_grad():
            first = mask.int().argmax(1, keepdim=True)  # argmax takes the first of equal values
            self._first = torch.where(mask.bool().any(1, keepdim=True), first, width)
            index = first + torch.arange(width, device=mask.device)
            self._index, self._inside = index.clamp(max=width - 1), index < width
            self.mask = mask.bool().gather(1, self._index) & self._inside

    def __call__(self, values: Tensor) -> Tensor:
        """The rows, (B, T) or (B, T, k), shifted; positions behind their ends repeat the last value."""
        index = self._index if values.ndim == 2 else self._index[..., None].expand(-1, -1, values.shape[2])
        return values.detach().gather(1, index)

    def before(self, tokens: Tensor) -> Tensor:
        """A mask of `tokens`, true in front of the first sampled one. It may be wider than the rows: those then lack its start.

        tokens: `(B, T)`, false at padding.
        """
        width = tokens.shape[1]
        place = sys.modules["torch"].arange(width, device=tokens.device)
        return tokens.bool() & (place < self._first + (width - self._index.shape[1]))

    def where(self, mask: Tensor) -> Tensor:
        """A mask, shifted; false behind the rows' ends."""
        return mask.bool().gather(1, self._index) & self._inside
