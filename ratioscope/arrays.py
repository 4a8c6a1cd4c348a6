"""Types of numpy arrays that all rooms use."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Reals = npt.NDArray[np.floating[Any]]
"""Floating-point numbers of any width."""
Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
"""Integers of any width."""
Booleans = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
"""An array of any type."""
Matrix = Floats
"""(statistics, cells)"""
