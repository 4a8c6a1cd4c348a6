"""A gate: bounds on metrics, causes that must not be likely, and the verdict that stops a pipeline. A TOML file has them.

verdict = "act"                                  # act, watch or allow
measured = 0.9                                   # the share of the offered sequences that must be measured
exact = true                                     # every token equal to the last bit

[metrics]
"mismatch/kl_k3" = { max = 0.01 }                # of the whole run
"mismatch/ess_token" = { min = 0.5, steps = "each" }
"total/kl_k3" = { max = 0.02, steps = "last 10", optional = true }

[causes]
shifted = "fail"
"*" = "fail"                                     # every cause without a line of its own
version_lag = "allow"
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ratioscope.errors import ConfigError
from ratioscope.record import GAPS
from ratioscope.toml_file import demand_known, demand_table, nearest, shown

from ..definitions.registry import METRICS
from ..metric import Metric
from .finding import Severity
from .run_rules import MEASURED, least_share
from .signals import ERRORS

CauseRule = Literal["fail", "allow"]
ANY = "*"
"""The name that stands for every cause without a line of its own."""
ALLOW = "allow"
_VERDICTS: Mapping[str, Severity | None] = {"act": Severity.ACT, "watch": Severity.WATCH, ALLOW: None}
_COLUMNS: Mapping[str, Metric] = {f"{gap}/{m.name}": m for gap in GAPS for m in METRICS if gap in m.gaps}
_KEYS = ("max", "min", "steps", "errors", "optional")
_STEPS = re.compile(r"(run)|(each)|(each of )?(?:the )?last ([1-9]\d{0,8})")
_STEPS_WANTED = 'wanted "run", "each", "last 10" or "each of last 10"'


@dataclass(frozen=True)
class Bound:
    """Bounds on one metric of one gap."""

    gap: str
    metric: Metric
    least: float | None
    """The least value that passes; None: none."""
    most: float | None
    """The largest value that passes; None: none."""
    last: int | None
    """Number of newest steps that are looked at; None: all."""
    each: bool
    """True if every step must pass; False if all the steps together must."""
    errors: float
    """Standard errors by which a value must lie beyond a bound."""
    optional: bool
    """True if the metric may be absent."""

    @property
    def column(self) -> str:
        return f"{self.gap}/{self.metric.name}"

    @property
    def wanted(self) -> str:
        """The demand in words, such as "at most 0.01 at each step"."""
        sides = [f"{word} {at:g}" for word, at in (("at least", self.least), ("at most", self.most)) if at is not None]
        steps = "step" if self.last is None else f"of the last {self.last} steps"
        whole = "on the whole run" if self.last is None else f"on the last {self.last} steps together"
        return f"{' and '.join(sides)} {f'at each {steps}' if self.each else whole}"

    def excess(self, value: float, error: float | None) -> float:
        """The amount by which the value is beyond a bound for sure, in units of the metric; 0 or less if it passes."""
        low, high = surely(self.metric, value, error, self.errors)
        above = -math.inf if self.most is None else _beyond(low, self.most)
        below = -math.inf if self.least is None else _beyond(self.least, high)
        return max(above, below)


@dataclass(frozen=True)
class Gate:
    """Everything that a run must keep to."""

    verdict: Severity | None = Severity.ACT
    """The least severity of the verdict that fails; None: the verdict is not asked."""
    bounds: tuple[Bound, ...] = ()
    causes: Mapping[str, CauseRule] | None = None
    """Code of a cause, or ANY -> whether it fails; None: no diagnosis is made."""
    exact: bool = False
    """True if every token's two log-probs must be equal to the last bit."""
    measured: float | None = None
    """The share of the offered sequences that must be measured; None: the one of the run's rules."""


def gate_of(tables: Mapping[str, Any], codes: tuple[str, ...], name: str) -> Gate:
    """The gate that a limits file describes. codes: the codes of all causes. name: the file, for errors."""
    demand_known(tables, ("verdict", "exact", MEASURED, "metrics", "causes"), name)
    exact = tables.get("exact", False)
    if not isinstance(exact, bool):
        raise ConfigError(f"{name}: exact = {shown(exact)}; wanted true or false")
    verdict = tables.get("verdict", "act")
    if verdict not in _VERDICTS:
        raise ConfigError(f"{name}: verdict = {shown(verdict)}; wanted one of {', '.join(_VERDICTS)}")
    metrics = demand_table(tables.get("metrics", {}), f"{name}, [metrics]")
    bounds = [bound for column, given in metrics.items() for bound in _bounds(column, given, f"{name}, [metrics]")]
    measured = least_share(tables[MEASURED], name) if MEASURED in tables else None
    causes = _causes(tables.get("causes"), codes, f"{name}, [causes]")
    return Gate(_VERDICTS[verdict], tuple(bounds), causes, exact, measured)


def surely(metric: Metric, value: float, error: float | None, errors: float) -> tuple[float, float]:
    """(the value less its uncertainty, the value plus it). Sizes that are never negative have it on a log scale.

    A value without a standard error has no uncertainty.
    """
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return value, value
    if value > 0 and metric.bounds[0] >= 0:
        times = math.exp(min(errors * error / value, 700.0))
        return value / times, value * times
    return value - errors * error, value + errors * error


def _beyond(value: float, bound: float) -> float:
    """value - bound, where infinity is as far as itself."""
    return 0.0 if value == bound else value - bound


def _bounds(column: str, given: Any, place: str) -> list[Bound]:
    if column not in _COLUMNS:
        alike = [known for known in _COLUMNS if known.endswith(f"/{column}")]
        advice = f"did you mean {' or '.join(alike)}?" if alike else nearest(column, _COLUMNS)
        raise ConfigError(f"{place}: no metric {shown(column)}; {advice}")
    entries = given if isinstance(given, list) else [given]
    if not entries:
        raise ConfigError(f'{place}: "{column}" has no bound; wanted max, min or both')
    return [_bound(column, demand_table(entry, f'{place}, "{column}"'), f'{place}, "{column}"') for entry in entries]


def _bound(column: str, given: Mapping[str, Any], place: str) -> Bound:
    demand_known(given, _KEYS, place)
    most, least = (_number(given, key, place) for key in ("max", "min"))
    if most is None and least is None:
        raise ConfigError(f"{place}: wanted max, min or both; try: {{ max = 0.01 }}")
    if most is not None and least is not None and least > most:
        raise ConfigError(f"{place}: min = {least:g} is above max = {most:g}; no value passes")
    errors = _number(given, "errors", place)
    optional = given.get("optional", False)
    if (errors is not None and errors < 0) or not isinstance(optional, bool):
        raise ConfigError(f"{place}: wanted errors = 0 or more, and optional = true or false")
    steps = given.get("steps", "run")
    matched = _STEPS.fullmatch(steps) if isinstance(steps, str) else None
    if matched is None:
        raise ConfigError(f"{place}: steps = {shown(steps)}; {_STEPS_WANTED}")
    _, each, each_of, last = matched.groups()
    gap = column.partition("/")[0]
    return Bound(
        gap, _COLUMNS[column], least, most, None if last is None else int(last), bool(each or each_of),
        ERRORS if errors is None else errors, optional,
    )  # fmt: skip


def _number(given: Mapping[str, Any], key: str, place: str) -> float | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{place}: {key} = {shown(value)}; wanted a number")
    return float(value)


def _causes(given: Any, codes: tuple[str, ...], place: str) -> dict[str, CauseRule] | None:
    if given is None:
        return None
    answers: dict[str, CauseRule] = {}
    demand_known(demand_table(given, place), (*codes, ANY), place)
    for code, answer in given.items():
        if answer not in ("fail", ALLOW):
            raise ConfigError(f'{place}: {code} = {shown(answer)}; wanted "fail" or "allow"')
        answers[code] = answer
    return answers
