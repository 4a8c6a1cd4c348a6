"""The rules that open alerts, as a table and as TOML."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from ratioscope.metrics.grading.alerts import Rules
from ratioscope.metrics.grading.signals import Signal


def rules_table(rules: Rules) -> pl.DataFrame:
    """One row per signal: its thresholds on the tested value, their source, and if two steps in a row are needed."""
    rows = [
        (signal.name, signal.title, signal.watch, signal.act, ", ".join(signal.gaps), signal.lasting, signal.source)
        for signal in rules.signals
    ]
    columns = {
        "signal": pl.String, "meaning": pl.String, "watch from": pl.Float64, "act from": pl.Float64, "gaps": pl.String,
        "two steps in a row": pl.Boolean, "source": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def rules_toml(rules: Rules) -> str:
    """The rules as TOML, whose tables of signals a run's own rules may hold. A signal that is never act has no `act`."""
    lines = [
        f"# An alert opens after {rules.open_after} graded steps in a row out of bounds, and closes after",
        f"# {rules.close_after} in a row that lie below the watch threshold by {rules.hysteresis:g} of it.",
    ]
    for signal in rules.signals:
        lines += ["", f"[signals.{signal.name}]", f"watch = {_number(signal.watch)}"]
        lines += [] if signal.act is None else [f"act = {_number(signal.act)}"]
        lines += [f"# {signal.source}"]
    return "\n".join(lines) + "\n"


def moved(signals: Sequence[Signal], name: str, watch: float, act: float | None) -> tuple[Signal, ...]:
    """The signals, with other thresholds for the named one. An act threshold below watch is set to watch."""
    wanted = None if act is None else max(watch, act)
    return tuple(replace(signal, watch=watch, act=wanted) if signal.name == name else signal for signal in signals)


def _number(value: float) -> str:
    return f"{float(value)!r}"
