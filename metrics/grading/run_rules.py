"""The rules of one run: signals and causes that its people muted or tuned, with their reasons. A TOML file has them.

    [signals.surprisal]
    mute = true
    reason = "the engine cannot report entropy"

    [signals.kl_k3]
    watch = 0.02
    act = 0.2

    [causes.end_token]
    mute = true

A line `measured = 0.5` before the tables is the share of the offered sequences that a healthy run must have measured.
The file may be a stranger's: whatever it mutes or tunes is shown with every verdict. Only these keys exist.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.redaction import without_secrets
from ratioscope.toml_file import demand_known, demand_table, shown

from .alerts import RULES, Rules
from .coverage import LEAST_SHARE
from .signals import SIGNALS, Signal

RULES_FILE = "ratioscope.toml"
"""Name of the file in a run folder."""
MEASURED = "measured"
"""Key of the share that must be measured, here and in a limits file."""
_LONGEST_REASON = 200
_NO_REASON = "no reason is given"
_OF_SIGNAL = ("mute", "reason", "watch", "act")
_OF_CAUSE = ("mute", "reason")


@dataclass(frozen=True)
class RunRules:
    """The rules by which a run is graded."""

    rules: Rules = RULES
    """Rules of alerts; its signals have the thresholds in force, and muted ones are not among them."""
    muted: tuple[tuple[Signal, str], ...] = ()
    """(signal, reason) of each muted signal."""
    muted_causes: Mapping[str, str] = field(default_factory=dict)
    """Code of a muted cause -> reason."""
    least_share: float = LEAST_SHARE
    """The share of the offered sequences that must be measured, at each step and in all."""
    source: str = ""
    """Name of the file; empty without one."""
    fault: str = ""
    """Why the file is not used; empty if it is."""

    @property
    def tuned(self) -> tuple[Signal, ...]:
        """The signals with other thresholds than by default."""
        usual = {signal.name: signal for signal in SIGNALS}
        return tuple(s for s in self.rules.signals if (s.watch, s.act) != (usual[s.name].watch, usual[s.name].act))

    @property
    def changes(self) -> tuple[str, ...]:
        """One clause per muted or tuned signal and muted cause, in words."""
        return (
            *(f"signal {signal.name} is muted: {reason}" for signal, reason in self.muted),
            *(f"signal {s.name}: watch from {s.watch:g}, act {_from(s.act)}" for s in self.tuned),
            *(f"cause {code} is muted: {reason}" for code, reason in self.muted_causes.items()),
            *([f"{self.least_share:.0%} must be measured"] if self.least_share != LEAST_SHARE else []),
        )

    @property
    def sentence(self) -> str:
        """Everything that the file changes, or why it is not used, in one sentence; empty without a file or change."""
        if self.fault:
            return f"{self.source} is not used: {self.fault.rstrip('.')}."
        return f"{self.source} changes the rules: {'; '.join(self.changes)}." if self.changes else ""


NO_FILE = RunRules()
"""The rules of a run without a file."""


def run_rules(tables: Mapping[str, Any], codes: tuple[str, ...], source: str) -> RunRules:
    """The rules that a file describes. codes: the codes of all causes. source: the file, for errors and for readers."""
    demand_known(tables, ("signals", "causes", MEASURED), source)
    signals, muted = list[Signal](), list[tuple[Signal, str]]()
    own = demand_table(tables.get("signals", {}), f"{source}, [signals]")
    demand_known(own, [signal.name for signal in SIGNALS], f"{source}, [signals]")
    for signal in SIGNALS:
        given = demand_table(own.get(signal.name, {}), f"{source}, [signals.{signal.name}]")
        place = f"{source}, [signals.{signal.name}]"
        demand_known(given, _OF_SIGNAL, place)
        watch = _threshold(given, "watch", place, signal.watch)
        act = _threshold(given, "act", place, signal.act)
        assert watch is not None
        if act is not None and act < watch:
            raise ConfigError(f"{place}: act = {act:g} is below watch = {watch:g}; wanted act at watch or above")
        tuned = replace(signal, watch=watch, act=act)
        if _is_muted(given, f"{source}, [signals.{signal.name}]"):
            muted.append((tuned, _reason(given)))
        else:
            signals.append(tuned)
    causes = demand_table(tables.get("causes", {}), f"{source}, [causes]")
    return RunRules(
        replace(RULES, signals=tuple(signals)), tuple(muted), _muted_causes(causes, codes, source),
        LEAST_SHARE if MEASURED not in tables else least_share(tables[MEASURED], source), source,
    )  # fmt: skip


def least_share(value: Any, place: str) -> float:
    """The share that must be measured. ConfigError for anything but a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{place}: {MEASURED} = {shown(value)}; wanted a share from 0 to 1, such as {LEAST_SHARE}")
    return float(value)


def _muted_causes(causes: Mapping[str, Any], codes: tuple[str, ...], source: str) -> dict[str, str]:
    demand_known(causes, codes, f"{source}, [causes]")
    muted = {}
    for code, value in causes.items():
        place = f"{source}, [causes.{code}]"
        given = demand_table(value, place)
        demand_known(given, _OF_CAUSE, place)
        if _is_muted(given, place):
            muted[code] = _reason(given)
    return muted


def _threshold(given: Mapping[str, Any], key: str, place: str, usual: float | None) -> float | None:
    value = given.get(key, usual)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{place}: {key} = {shown(value)}; wanted a number above 0")
    return float(value)


def _is_muted(given: Mapping[str, Any], place: str) -> bool:
    mute, reason = given.get("mute", False), given.get("reason", "")
    if not isinstance(mute, bool) or not isinstance(reason, str):
        raise ConfigError(f'{place}: wanted mute = true or false, and reason = "..."')
    return mute


def _reason(given: Mapping[str, Any]) -> str:
    words = without_secrets(" ".join(str(given.get("reason", "")).split()))
    return words[:_LONGEST_REASON] or _NO_REASON


def _from(act: float | None) -> str:
    return "never" if act is None else f"from {act:g}"
