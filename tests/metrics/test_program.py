"""The programs that engines carry out give what the formulas of the statistics give, one by one."""

import numpy as np
import pytest

from ratioscope.metrics.columns import token_columns
from ratioscope.metrics.engines.level_statistics import statistics_by_level
from ratioscope.metrics.engines.numpy_program import cell_sums
from ratioscope.metrics.engines.program import token_program
from ratioscope.metrics.reduction import reduced

TOKENS = 900
HOSTILE = (np.nan, np.inf, -np.inf, 0.0, -1e-300, 1e-7, 400.0, -400.0, -5000.0, 1e30)


def columns(*, hostile: bool, entropy: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    earlier = -random.exponential(size=TOKENS)
    drawn = {
        "earlier": earlier,
        "later": earlier + random.normal(0, 0.1, TOKENS),
        "entropy": random.exponential(size=TOKENS),
    }
    drawn |= {f"pair {shift}": np.where(random.random(TOKENS) < 0.1, np.nan, earlier) for shift in (-2, -1, 1, 2)}
    for values in drawn.values() if hostile else ():
        values[random.random(TOKENS) < 0.2] = random.choice(HOSTILE)
        values[: len(HOSTILE)] = random.permutation(HOSTILE)
    return {name: v.astype(np.float32) for name, v in drawn.items() if entropy or name != "entropy"}


@pytest.mark.parametrize("gap", ["mismatch", "drift", "total", "rollout:referee"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("kind", ["hostile", "sound", "sound data, program for any"])
def test_a_program_gives_what_each_formula_gives(gap: str, whole: bool, entropy: bool, kind: str) -> None:
    given = columns(hostile=kind == "hostile", entropy=entropy)
    starts = np.array([0, 1, 2, 17, 300, 899])
    program = token_program(gap, whole=whole, entropy=entropy, sound=kind == "sound")
    with np.errstate(all="ignore"):
        found = cell_sums(program, given, starts)
        wanted = one_by_one(gap, given, starts, whole=whole)
    np.testing.assert_allclose(
        found, wanted, rtol=1e-12, atol=1e-13
    )  # sums of a thousand terms in float64, also where they cancel


def one_by_one(gap: str, given: dict[str, np.ndarray], starts: np.ndarray, *, whole: bool) -> np.ndarray:
    levels = statistics_by_level(gap)
    order = levels.token if whole else levels.sliced
    wide = {name: values.astype(np.float64) for name, values in given.items()}
    pairs = {shift: wide[f"pair {shift}"] for shift in (-2, -1, 1, 2)}
    mask = np.ones(TOKENS, np.bool_)
    read = token_columns(wide["earlier"], wide["later"], mask, np, entropy=wide.get("entropy"), pairs=pairs)
    values = np.stack([np.asarray(s.formula(read, np), np.float64) for s in order])
    return reduced(values, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, TOKENS))), order).matrix


def test_formulas_share_their_exponentials() -> None:
    program = token_program("mismatch", whole=True, entropy=True, sound=True)
    assert sum(step.operation == "exp" for step in program.steps) == 3  # of the weight and of both probabilities


def test_no_step_overwrites_what_it_reads() -> None:
    for gap in ("mismatch", "drift"):
        for step in token_program(gap, whole=True, entropy=True, sound=False).steps:
            assert step.operation in ("sum", "max", "logsumexp", "count") or step.result not in step.arguments
