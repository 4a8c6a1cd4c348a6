"""The arrays of a batch that a formula cannot do without."""

import numpy as np

from ratioscope.errors import SchemaError

from .evaluation import Array


def needed(tokens: object, name: str, reader: str) -> Array:
    """The attribute of that name; SchemaError naming what reads it, if the batch came without (None)."""
    value = getattr(tokens, name)
    if value is None:
        column = name if name == "advantages" else f"{name}_logprobs"
        raise SchemaError(f"the batch has no '{column}', which {reader} reads: record it, or choose another setting")
    return np.asarray(value)
