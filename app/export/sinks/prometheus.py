"""A textfile for Prometheus' node exporter: the newest step of a run as gauges, the file replaced whole."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.whole_file import whole_file

from ...presentation.run_state import LIVES
from ..wandb.rows import PREFIX, SEVERITY, STATE

WORDS = {
    SEVERITY: "0 healthy, 1 watch, 2 act, -1 not measured",
    f"{PREFIX}/{STATE}": ", ".join(f"{number} {life}" for number, life in enumerate(LIVES)),
}
_ODD = re.compile(r"[^a-zA-Z0-9_]")


class TextFile:
    """The file. Its folder must exist: node_exporter --collector.textfile.directory names it."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        gauges: dict[str, tuple[str, list[str]]] = {
            f"{PREFIX}_step": ("the newest step that is on record", [self._line(f"{PREFIX}_step", {}, step)])
        }
        for full, value in numbers.items():
            gap, _, metric = full.removeprefix(f"{PREFIX}/").partition("/")
            labels = {"gap": gap} if metric else {}
            gauge = gauge_name(metric or gap)
            words = WORDS.get(full) or _meaning(metric)
            gauges.setdefault(gauge, (words, []))[1].append(self._line(gauge, labels, value))
        text = "".join(
            f"# HELP {gauge} {words}\n# TYPE {gauge} gauge\n{''.join(lines)}"
            for gauge, (words, lines) in gauges.items()
        )
        with whole_file(self._path) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), 0o644)  # another user's node exporter reads it

    def close(self) -> None:
        pass

    def _line(self, gauge: str, labels: Mapping[str, str], value: float) -> str:
        named = ",".join(f'{name}="{_escaped(text)}"' for name, text in {"run": self._name, **labels}.items())
        return f"{gauge}{{{named}}} {_shown(value)}\n"


def prometheus_logger(place: str, run_id: str, name: str) -> TextFile:
    """A file NAME.prom of the textfile collector's folder."""
    return TextFile(Path(place), name)


def gauge_name(metric: str) -> str:
    """The name of a gauge.

    >>> gauge_name("share_outside_0.5_2")
    'ratioscope_share_outside_0_5_2'
    """
    return f"{PREFIX}_{_ODD.sub('_', metric)}"


def _meaning(metric: str) -> str:
    known = BY_NAME.get(metric)
    return "" if known is None else f"{known.title} [{known.unit}]".replace("\\", "\\\\").replace("\n", " ")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _shown(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
