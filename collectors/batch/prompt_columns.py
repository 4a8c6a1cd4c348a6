"""The tokens of prompts as a list column. A prompt has a length of its own, which no column of the response has to share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.errors import SchemaError

from .token_columns import Padded, Ragged, is_ragged, shape_of, unwrapped
from .unfit_values import fitting_column

PROMPT_IDS, PROMPT_MASK = "prompt_ids", "prompt_mask"
_WANTED = "wanted one list or array per sequence, or a padded (sequences, tokens) array with prompt_mask"


def prompt_columns(values: Mapping[str, Any], rows: int, faults: list[str]) -> dict[str, pa.Array[Any]]:
    """The column `prompt_ids` of a call of `log`; {} if the call has none. SchemaError if it cannot belong to these rows."""
    ids, mask = values.get(PROMPT_IDS), values.get(PROMPT_MASK)
    if ids is None:
        if mask is not None:
            raise SchemaError(f"{PROMPT_MASK} came without {PROMPT_IDS}; give both, or neither")
        return {}
    column = _ragged(ids, faults) if mask is None else _unpadded(ids, mask, faults)
    if column is None:
        return {}
    if column.sequences != rows:
        raise SchemaError(f"{PROMPT_IDS} has {column.sequences} prompts for {rows} sequences")
    return {PROMPT_IDS: column.arrow()}


def _ragged(ids: Any, faults: list[str]) -> Ragged | None:
    if not is_ragged(ids):
        raise SchemaError(f"{PROMPT_IDS} has shape {shape_of(unwrapped(ids))} and no {PROMPT_MASK}; {_WANTED}")
    column = fitting_column(PROMPT_IDS, ids, None, faults)
    assert not isinstance(column, Padded)
    return column


def _unpadded(ids: Any, mask: Any, faults: list[str]) -> Ragged | None:
    """The prompts of a padded array. The padding may be on either side, or on both."""
    if is_ragged(ids) or is_ragged(mask):
        raise SchemaError(f"{PROMPT_IDS} and {PROMPT_MASK} came as lists; {_WANTED}")
    shape, kept = shape_of(unwrapped(ids)), np.asarray(unwrapped(mask)) != 0
    if len(shape) != 2 or shape != kept.shape:
        raise SchemaError(f"{PROMPT_IDS} has shape {shape} and {PROMPT_MASK} {kept.shape}; {_WANTED}")
    column = fitting_column(PROMPT_IDS, ids, None, faults)
    if not isinstance(column, Padded):
        return None
    present = np.ones(len(kept), bool) if column.present is None else column.present
    kept &= present[:, None]
    return Ragged(column.values[kept], kept.sum(1), present)
