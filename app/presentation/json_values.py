"""Values in the types of JSON."""

import math
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """The value in the types of JSON. A float that JSON cannot hold becomes "Infinity", "-Infinity" or "NaN".

    Null stays what it means everywhere here: not available.
    """
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
