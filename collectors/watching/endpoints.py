"""Endpoints of Monarch's actors: a hook watches the function inside one.

`@endpoint` and `@concurrent_endpoint` put an object in the place of a method. The function of the latter only begins a task, so
it is the decorated function that is watched, and the endpoint is made anew around the watched one.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

MODULE = "monarch.actor"


def inside(attribute: Any) -> Any:
    """The function that the decorator got; None if the attribute of the class is no endpoint."""
    method = getattr(attribute, "_method", None)
    if method is None or not hasattr(attribute, "_propagator"):
        return None
    return method.__wrapped__ if _is_concurrent(attribute) else method


def around(attribute: Any, watched: Callable[[Any], Any]) -> Any:
    """An endpoint like this one, of the watched function."""
    function = watched(inside(attribute))
    if _is_concurrent(attribute):
        return sys.modules[MODULE].concurrent_endpoint(function, propagate=attribute._propagator)
    made = copy.copy(attribute)
    made._method = function
    return made


def _is_concurrent(attribute: Any) -> bool:
    concurrent = getattr(sys.modules.get(MODULE), "concurrent_endpoint", None)
    return concurrent is not None and type(attribute).__name__ == "_ConcurrentEndpointProperty"
