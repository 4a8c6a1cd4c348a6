"""A fact that several causes need of the same evidence is computed once, and never taken over to other evidence."""

import numpy as np

from ratioscope.metrics.diagnosis.causes import change_points
from ratioscope.metrics.diagnosis.evidence import Evidence, once
from ratioscope.metrics.diagnosis.fits import mean_weight
from ratioscope.metrics.diagnosis.subset_faults import log_sizes


def evidence(seed: int = 0, rows: int = 12, length: int = 30) -> Evidence:
    draws = np.random.default_rng(seed)
    earlier = -draws.exponential(1.0, rows * length)
    row = np.repeat(np.arange(rows), length)
    return Evidence(earlier, earlier + draws.normal(0, 0.1, len(row)), row, np.tile(np.arange(length), rows), {}, {})


def test_a_result_is_computed_once_for_each_evidence() -> None:
    calls: list[Evidence] = []

    @once
    def tokens(of: Evidence) -> int:
        calls.append(of)
        return len(of)

    whole = evidence()
    part = whole.kept(whole.position < 10)
    moved = whole.with_earlier(whole.earlier - 1)
    assert [tokens(of) for of in (whole, whole, part, moved, part)] == [360, 360, 120, 360, 120]
    assert [id(of) for of in calls] == [id(whole), id(part), id(moved)]


def test_evidence_after_an_undoing_remembers_nothing_of_the_one_before() -> None:
    whole = evidence()
    before = mean_weight(whole)
    assert mean_weight(whole.with_earlier(whole.later)) == (1.0, 0.0)
    assert mean_weight(whole) == before


def test_change_points_are_those_of_a_loop_over_the_sequences() -> None:
    draws = np.random.default_rng(5)
    whole = evidence(seed=5, rows=40, length=31)
    cuts = draws.integers(5, 26, 40)[whole.row]
    louder = np.where((whole.row % 3 == 0) & (whole.position >= cuts), 20.0, 1.0)
    louder = np.where((whole.row % 3 == 1) & (whole.position < cuts), 20.0, louder)
    changed = whole.with_earlier(whole.later - whole.log_ratio * louder)
    found = change_points.change_points(changed)
    later, sooner = loop_over_sequences(changed)
    assert later.sum() > 50 and sooner.sum() > 50
    assert np.array_equal(found.later, later) and np.array_equal(found.sooner, sooner)


def loop_over_sequences(of: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Tokens after an upward and before a downward change, by trying every cut of every sequence."""
    sizes = log_sizes(of)
    later, sooner = np.zeros(len(of), bool), np.zeros(len(of), bool)
    for row in np.unique(of.row):
        own = np.flatnonzero(of.row == row)
        for parity in (0, 1):
            chosen, others = own[parity::2], own[1 - parity :: 2]
            values = sizes[chosen]
            whole = ((values - values.mean()) ** 2).sum()
            costs = {
                cut: sum(((part - part.mean()) ** 2).sum() for part in (values[:cut], values[cut:]))
                for cut in range(2, len(values) - 1)
            }
            cut = min(costs, key=costs.__getitem__)
            if whole - costs[cut] > change_points.GAIN * sizes.var():
                rises = values[cut:].mean() > values[:cut].mean()
                (later if rises else sooner)[others[(others >= chosen[cut]) == rises]] = True
    return later, sooner
