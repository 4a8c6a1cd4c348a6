"""Pure numbers: no I/O, no clock, no randomness.

> A statistic is a formula over named columns plus a way to combine. Statistics merge; metrics are read from statistics;
> findings are read from metrics; figures and reports are drawn from both and compute nothing.

Public names resolve on first use, so that a trainer which wants statistics loads numpy and pyarrow and no polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .definitions.registry import METRICS as METRICS
    from .definitions.registry import STATISTICS as STATISTICS
    from .engines import torch_engine as torch_engine
    from .engines.join import joined as joined
    from .engines.numpy_engine import statistics as statistics
    from .frame import metric_frame as metric_frame
    from .frame import unavailable as unavailable
    from .grading.finding import Finding as Finding
    from .grading.finding import Severity as Severity
    from .grading.run_verdict import verdict as verdict
    from .grading.severity import grade as grade
    from .grading.severity import grade_signals as grade_signals
    from .grading.signals import SIGNALS as SIGNALS
    from .merging import merge as merge
    from .metric import Metric as Metric
    from .metric import Statistic as Statistic

_PUBLIC = {
    "Finding": "grading.finding",
    "METRICS": "definitions.registry",
    "Metric": "metric",
    "SIGNALS": "grading.signals",
    "STATISTICS": "definitions.registry",
    "Severity": "grading.finding",
    "Statistic": "metric",
    "grade": "grading.severity",
    "grade_signals": "grading.severity",
    "joined": "engines.join",
    "merge": "merging",
    "metric_frame": "frame",
    "statistics": "engines.numpy_engine",
    "unavailable": "frame",
    "verdict": "grading.run_verdict",
}

_MODULES = {"torch_engine": ".engines.torch_engine"}

__all__ = [*_PUBLIC, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name], __name__)
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public names: {sorted(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
