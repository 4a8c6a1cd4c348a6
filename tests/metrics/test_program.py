"""The programs that engines carry out give what the formulas of the statistics give, one by one."""

import numpy as np
import pytest
from support.programs import columns, one_by_one

from ratioscope.metrics.engines.numpy_program import cell_sums
from ratioscope.metrics.engines.program import token_program


@pytest.mark.parametrize(
    ("gap", "whole"), [("mismatch", True), ("mismatch", False), ("drift", False), ("rollout:referee", True)]
)
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("kind", ["hostile", "sound", "sound data, program for any"])
def test_a_program_gives_what_each_formula_gives(gap: str, whole: bool, recorded: bool, kind: str) -> None:
    given = columns(hostile=kind == "hostile", recorded=recorded)
    starts = np.array([0, 1, 2, 17, 300, 899])
    program = token_program(gap, whole=whole, entropy=recorded, advantage=recorded, sound=kind == "sound")
    with np.errstate(all="ignore"):
        found = cell_sums(program, given, starts)
        wanted = one_by_one(gap, given, starts, whole=whole)
    np.testing.assert_allclose(
        found, wanted, rtol=1e-12, atol=1e-13
    )  # sums of a thousand terms in float64, also where they cancel


def test_formulas_share_their_exponentials() -> None:
    program = token_program("mismatch", whole=False, entropy=True, advantage=True, sound=True)
    assert sum(step.operation == "exp" for step in program.steps) == 3  # of the weight and of both probabilities


def test_no_step_overwrites_what_it_reads() -> None:
    for gap in ("mismatch", "total"):
        for step in token_program(gap, whole=True, entropy=True, advantage=True, sound=False).steps:
            assert step.operation in ("sum", "max", "logsumexp", "count") or step.result not in step.arguments
