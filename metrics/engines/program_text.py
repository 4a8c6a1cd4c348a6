"""The source text of a program as one loop over tokens, for a compiler: each intermediate result stays in a register.

The loop is written so that LLVM carries out eight tokens at once: no branch, truth values as 0 and 1, maxima by `largest`. A
choice between a number and the neutral value of a reduction is no `if`: LLVM would leave out tokens, one at a time.
"""

import math

from .program import Program, Step

_BINARY = {"multiply": "*", "add": "+", "subtract": "-", "divide": "/", "and": "*"}
_COMPARED = {"greater": ">", "less": "<", "equal": "=="}
_NEUTRAL = {"sum": "0.0", "max": "-inf", "logsumexp": "0.0"}


def program_text(program: Program) -> str:
    """A module with `kernel(starts, sums, COLUMNS...)`: sums[cell, row] of the tokens from starts[cell] to starts[cell + 1].

    The row of a `logsumexp` receives the plain sum of exponentials.
    """
    columns = [f"column{place}" for place in range(len(program.columns))]
    reductions = [step for step in program.steps if step.operation in (*_NEUTRAL, "count")]
    return "\n".join(
        (
            "from math import inf",
            "from numpy import float64, int64",
            "from ratioscope.metrics.engines.compiled_loops import bits_of, exponential, kernel_of, largest, number_of, smallest",
            "",
            "",
            f"@kernel_of({len(columns)})",
            f"def kernel(starts, sums, {', '.join(columns)}):",
            "    for cell in range(len(starts) - 1):",
            "        first, last = starts[cell], starts[cell + 1]",
            *(f"        part_of_{name} = {name}[first:last]" for name in columns),
            *(f"        sum{step.result} = {_start(step)}" for step in reductions),
            "        for i in range(last - first):",
            *(f"            r{place} = float64(part_of_{name}[i])" for place, name in enumerate(columns)),
            *(f"            {line}" for step in program.steps if (line := _line(step))),
            *(f"        sums[cell, {step.result}] = sum{step.result}" for step in reductions),
            "",
        )
    )


def _start(step: Step) -> str:
    return f"{_operand(step.arguments[0])} * (last - first)" if step.operation == "count" else _NEUTRAL[step.operation]


def _line(step: Step) -> str:
    """The statement of a step; empty for a count, which needs no loop."""
    kind, result, read = step.operation, f"r{step.result}", [_operand(place) for place in step.arguments]
    if kind == "count":
        return ""
    if kind in ("sum", "logsumexp"):
        return f"sum{step.result} += {read[0]}"
    if kind == "max":
        return f"sum{step.result} = largest(sum{step.result}, {read[0]})"
    if kind in _BINARY:
        return f"{result} = {read[0]} {_BINARY[kind]} {read[1]}"
    if kind in _COMPARED:
        return f"{result} = 1.0 if {read[0]} {_COMPARED[kind]} {read[1]} else 0.0"
    if kind == "where" and read[2] == "-inf":
        return f"{result} = smallest({read[1]}, inf if {read[0]} != 0.0 else -inf)"
    if kind == "where" and read[2] == "0.0":
        return f"{result} = number_of(bits_of({read[1]}) & -int64({read[0]}))"
    if kind == "where":
        return f"{result} = {read[1]} if {read[0]} != 0.0 else {read[2]}"
    if kind == "isfinite":
        return f"{result} = 1.0 if abs({read[0]}) < inf else 0.0"
    calls = {"abs": "abs", "exp": "exponential", "or": "largest", "maximum": "largest"}
    return f"{result} = {calls[kind]}({', '.join(read)})"


def _operand(place: int | float) -> str:
    return f"r{place}" if isinstance(place, int) else repr(place) if math.isfinite(place) else str(place)
