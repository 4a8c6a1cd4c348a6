"""The part of docs/diagnosis.md that says which faults are missed, how small their gap is, and what would have shown."""

from collections.abc import Iterator, Sequence

from support import fault_runs  # pyright: ignore[reportMissingImports]  # the generator has put tests/ on the path
from support.fault_runs import FaultRun  # pyright: ignore[reportMissingImports]

from ratioscope.metrics.diagnosis.catalogue import CAUSE

INTRODUCTION = """
### Faults that were missed

These runs have a fault and no cause: their gap is called rounding noise. It lies below 0.01 nats/token, as noise in 16 and 8
bits does, and the pattern of its fault lies within its error. The third column compares the gap with the largest one of a healthy
run of the same model. The last column has what would have shown. A lag of one or two updates at a learning rate of 2e-5 is among
them: at so many tokens the record does not hold it. A larger lag, learning rate or number of tokens does.
"""


def page(runs: Sequence[FaultRun]) -> Iterator[str]:
    """The section, line by line."""
    largest = max(fault_runs.diagnosis(run.name).gap for run in runs if not run.faults)
    yield INTRODUCTION
    yield "| run | gap in nats/token | times the largest healthy one | measured for its cause | would have shown |"
    yield "| --- | --- | --- | --- | --- |"
    for run in runs:
        if run.faults and fault_runs.first_cause(run.name) == "healthy":
            gap, (effect, would_show) = fault_runs.diagnosis(run.name).gap, _measured(run)
            yield f"| {run.name} | {gap:.2g} | {gap / largest:.1f} | {effect} | {would_show or '-'} |"


def _measured(run: FaultRun) -> tuple[str, str]:
    """(the measured effect of the fault's own cause, the least effect that would have shown), in words."""
    found, code = fault_runs.diagnosis(run.name), run.causes[0]
    for excluded in found.excluded:
        if excluded.cause.code == code:
            return excluded.effect, excluded.would_show
    why = next((each.because for each in found.cannot_tell if each.cause.code == code), "")
    return why, ("" if why else CAUSE[code].confirm)
