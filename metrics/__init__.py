"""Pure numbers: no I/O, no clock, no randomness.

> A statistic is a formula over named columns plus a way to combine. Statistics merge; metrics are read from statistics;
> findings are read from metrics; figures and reports are drawn from both and compute nothing.

Public names resolve on first use, so that a trainer which wants statistics loads numpy and pyarrow and no polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .finding import Finding as Finding
    from .finding import Severity as Severity
    from .frame import metric_frame as metric_frame
    from .frame import unavailable as unavailable
    from .join import joined as joined
    from .merge import merge as merge
    from .metric import Metric as Metric
    from .numpy_engine import statistics as statistics
    from .registry import METRICS as METRICS
    from .registry import STATISTICS as STATISTICS
    from .run_verdict import verdict as verdict
    from .severity import grade as grade
    from .severity import grade_signals as grade_signals
    from .signals import SIGNALS as SIGNALS
    from .statistic import Statistic as Statistic

_PUBLIC = {
    "Finding": "finding",
    "METRICS": "registry",
    "Metric": "metric",
    "SIGNALS": "signals",
    "STATISTICS": "registry",
    "Severity": "finding",
    "Statistic": "statistic",
    "grade": "severity",
    "grade_signals": "severity",
    "joined": "join",
    "merge": "merge",
    "metric_frame": "frame",
    "statistics": "numpy_engine",
    "unavailable": "frame",
    "verdict": "run_verdict",
}

__all__ = list(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public names: {sorted(_PUBLIC)}")


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
