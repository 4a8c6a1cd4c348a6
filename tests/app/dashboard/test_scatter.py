"""The scatter of two metrics: a point per step or sequence, the rank correlation with its interval, and links of its points."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.edge_runs import made
from support.frames import traces
from support.pages_open import Open, charts, well
from support.pages_read import Read

from ratioscope.app.figures.scatter import scatter
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.quantiles import rank_correlation


def test_the_correlation_is_that_of_the_ranks_and_its_interval_holds_it() -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=200)
    y = x + draws.normal(size=200)
    ranks = [np.argsort(np.argsort(side)) for side in (x, y)]
    distance = float(((ranks[0] - ranks[1]) ** 2).sum())
    found = rank_correlation(x, np.exp(y))
    assert found is not None and found.value == pytest.approx(1 - 6 * distance / (200 * (200**2 - 1)))
    assert found.low < found.value < found.high and found.pairs == 200


def test_few_equal_and_missing_values_are_told_apart() -> None:
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None and rank_correlation([1], [1]) is None
    few = rank_correlation([1, 2, 3, math.nan], [3, 2, 1, 0])
    assert few is not None and few.value == pytest.approx(-1) and few.pairs == 3 and math.isnan(few.low)


def test_points_are_the_steps_of_the_run_on_the_chosen_axes(opened: Open, runs: Path) -> None:
    before = len(charts(opened("charts", "stale")))
    app = well(opened("charts", "stale", against="true", ax="kl_k3", ay="ess_token", alog="x"))
    assert len(charts(app)) == before + 1
    spec = json.loads(charts(app)[-1])
    frame = open_run(made(runs, "stale")).metrics().filter()
    found = rank_correlation(frame["mismatch/kl_k3"].to_numpy(), frame["mismatch/ess_token"].to_numpy())
    assert found is not None and "95% interval" in charts(app)[-1] and f"N = {len(frame)} steps" in charts(app)[-1]
    points = next(trace for trace in spec["data"] if trace.get("name") == "points")
    assert [key for key, _ in points["customdata"]] == [str(step) for step in frame["step"]]


def test_points_can_be_sequences(read: Read) -> None:
    app = well(read("charts", "stale", against="true", points="sequences"))
    assert "a point is a sequence" in charts(app)[-1]


def test_what_has_no_place_is_counted_and_nothing_at_all_is_said() -> None:
    frame = pl.DataFrame({"x": [0.0, 1.0, 2.0], "y": [1.0, None, 3.0], "step": [0, 1, 2], "key": ["0", "1", "2"]})
    frame = frame.with_columns(label=pl.col("key"))
    figure: Any = scatter(frame, ("a", "b"), "step", logarithmic=(True, False))
    assert "2 steps not drawn" in figure.layout.title.subtitle.text
    assert "without a place on a logarithmic axis" in figure.layout.annotations[0].hovertext.replace("<br>", " ")
    assert len(traces(figure)[0].x) == 1
    assert "no step has both values" in str(
        scatter(frame.head(1), ("a", "b"), "step", logarithmic=(True, True)).to_json()
    )
