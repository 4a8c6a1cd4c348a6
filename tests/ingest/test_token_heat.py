"""The grid of a batch's tokens, against plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis import sequence_lines as module
from ratioscope.ingest.analysis.sequence_lines import token_heat
from ratioscope.ingest.run import open_run


def test_each_cell_has_its_worst_sampled_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 5)
    monkeypatch.setattr(module, "COLUMNS", 7)
    draws = np.random.default_rng(0)
    lengths = draws.integers(1, 30, 13)
    rollout = [-draws.exponential(1.0, n) for n in lengths]
    old = [row - draws.exponential(0.3, len(row)) for row in rollout]
    mask = [draws.random(n) < 0.4 for n in lengths]
    old[2][0], rollout[3][0], old[4][0] = -math.inf, -math.inf, math.nan
    with Collector(tmp_path / "run") as collector:
        names = [str(at) for at in range(13)]
        collector.log(step=1, rollout_logprobs=rollout, old_logprobs=old, mask=mask, sequence_ids=names)
    run, order = open_run(tmp_path / "run"), draws.permutation(13)[:11]
    heat = token_heat(run, 1, "mismatch", tuple((str(at), None) for at in order))
    assert (heat.sequences, heat.per_row, heat.per_column) == (11, 3, -(-int(lengths[order].max()) // 7))
    cells: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for place, at in enumerate(order):
        for position in range(lengths[at]):
            x = np.float64(np.float32(old[at][position])) - np.float64(np.float32(rollout[at][position]))
            counts = mask[at][position] and math.isfinite(rollout[at][position]) and not math.isnan(x)
            size = abs(float(x)) if counts else -1.0 if mask[at][position] else -2.0
            cells.setdefault((place // 3, position // heat.per_column), []).append((size, place, position))
    rows = heat.cells.rows(named=True)
    assert [(row["row"], row["column"]) for row in rows] == sorted(cells)
    for row in rows:
        tokens = cells[row["row"], row["column"]]
        largest = max(size for size, _, _ in tokens)
        assert row["masked"] == (largest == -2.0)
        assert row["size"] == (pytest.approx(largest) if largest >= 0 else None)
        if largest >= 0:
            assert (largest, row["place"], row["position"]) in tokens
    assert heat.tokens == sum(size >= 0 for tokens in cells.values() for size, _, _ in tokens)
