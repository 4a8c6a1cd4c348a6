"""ratioscope: how far the policy that sampled is from the policy that trains.

Public names resolve on first use, so that a trainer that imports the collector loads numpy and pyarrow and nothing heavier.
"""

from __future__ import annotations

from importlib import import_module

from ratioscope.version import __version__

TYPE_CHECKING = False  # as typing's, whose import takes longer than all of this file

if TYPE_CHECKING:
    from typing import Any

    from ratioscope import metrics as metrics
    from ratioscope import weights as weights
    from ratioscope.app import figures as figures
    from ratioscope.collectors.attach import attach as attach
    from ratioscope.collectors.budget import Budget as Budget
    from ratioscope.collectors.collector import Collector as Collector
    from ratioscope.collectors.ending import flush_at as flush_at
    from ratioscope.collectors.self_noise import SelfNoise as SelfNoise
    from ratioscope.collectors.writing.offline import record_readings as record_readings
    from ratioscope.ingest.run import Run as Run
    from ratioscope.ingest.run import open_run as open_run
    from ratioscope.metrics.explanation import explain as explain

_PUBLIC = {
    "Budget": "ratioscope.collectors.budget",
    "Collector": "ratioscope.collectors.collector",
    "Run": "ratioscope.ingest.run",
    "SelfNoise": "ratioscope.collectors.self_noise",
    "attach": "ratioscope.collectors.attach",
    "explain": "ratioscope.metrics.explanation",
    "flush_at": "ratioscope.collectors.ending",
    "open_run": "ratioscope.ingest.run",
    "record_readings": "ratioscope.collectors.writing.offline",
}
_MODULES = {"figures": "ratioscope.app.figures", "metrics": "ratioscope.metrics", "weights": "ratioscope.weights"}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'ratioscope' has no attribute {name!r}; public names: {__all__}")


def __dir__() -> list[str]:
    """The public names, which are no globals before their first use, and the module's own."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "Budget",
    "Collector",
    "Run",
    "SelfNoise",
    "__version__",
    "attach",
    "explain",
    "figures",
    "flush_at",
    "metrics",
    "open_run",
    "record_readings",
    "weights",
]
