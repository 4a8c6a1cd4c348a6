"""A heat map as two small pictures, one in the colours of each theme."""

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Floats, Integers

from ...presentation.theme import channels
from .axis import Axis
from .paint import shades
from .texts import short

LEVELS = 96
"""Colours of a picture, from few to many; one more is clear."""
FINE = 2
"""Rows of the picture for a pixel of the chart: cells differ in height, the rows of a picture do not."""
THEMES = ("light", "dark")


def heat(trace: dict[str, Any], x: Axis, y: Axis) -> str:
    """The images of a heat map whose x and y are the edges of its cells. The columns must be equally wide."""
    across, up = (np.asarray(trace[name], np.float64) for name in ("x", "y"))
    left, right = (float(end) for end in x.place(across[[0, -1]]))
    bottom, top = (float(end) for end in y.place(up[[0, -1]]))
    levels = _levels(np.asarray(trace["z"], np.float64), trace["zmin"], trace["zmax"])
    rows = _rows(up, max(1, round(FINE * (bottom - top))))
    pixels = levels[rows]
    box = f'x="{short(left)}" y="{short(top)}" width="{short(right - left)}" height="{short(bottom - top)}"'
    return "".join(
        f'<image class="{theme}" {box} preserveAspectRatio="none" href="data:image/png;base64,{_png(pixels, palette)}"/>'
        for theme, palette in zip(THEMES, _palettes(trace["colorscale"]), strict=True)
    )


def _levels(z: Floats, low: float, high: float) -> npt.NDArray[np.uint8]:
    """The place of each cell in the palette; 0 is clear."""
    with np.errstate(invalid="ignore"):
        share = np.clip((z - low) / ((high - low) or 1.0), 0.0, 1.0)
        levels = 1 + np.rint(share * (LEVELS - 1))
    return np.where(np.isfinite(z), levels, 0).astype(np.uint8)


def _rows(edges: Floats, count: int) -> Integers:
    """The cell of each row of the picture, from the top."""
    middles = edges[-1] - (np.arange(count) + 0.5) / count * (edges[-1] - edges[0])
    cells: Integers = np.searchsorted(edges, middles, side="right").astype(np.int64) - 1
    return np.clip(cells, 0, len(edges) - 2)


def _palettes(stops: Sequence[tuple[float, str]]) -> Iterator[bytes]:
    """The colours of the levels in light and in dark, the clear one first."""
    places = [stop for stop, _ in stops]
    at = np.linspace(0.0, 1.0, LEVELS)
    for theme in range(len(THEMES)):
        parts = np.array([channels(shades(colour)[theme]) for _, colour in stops])
        mixed = np.column_stack([np.interp(at, places, parts[:, part]) for part in range(3)])
        yield bytes(3) + np.rint(255 * mixed).astype(np.uint8).tobytes()


def _png(pixels: npt.NDArray[np.uint8], palette: bytes) -> str:
    """A PNG of palette colours, in base64. Each row is stored as the difference to the row above, because most are equal."""
    height, width = pixels.shape
    above = np.vstack([np.zeros((1, width), np.uint8), pixels[:-1]])
    rows = np.column_stack([np.full(height, 2, np.uint8), pixels - above])  # filter 2: up
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    data = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()
