"""The page of distributions: ridges and quantiles against the tokens, the density on demand, and where clicks lead."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.frames import distribution
from support.pages_open import Open, charts, well, words
from support.pages_read import Read

from ratioscope.app import figures
from ratioscope.app.figures.heat_map import CLICKS
from ratioscope.app.figures.quantiles import quantile_comparison
from ratioscope.app.figures.ridgeline import ridgeline
from ratioscope.app.pages.step_comparison import ridge_steps
from ratioscope.app.presentation.digits import digits
from ratioscope.errors import ConfigError
from ratioscope.ingest.run import open_run
from ratioscope.metrics.distribution import histogram, quantile


def _titled(specs: list[str], title: str) -> str:
    return next(spec for spec in specs if title in json.loads(spec)["layout"]["title"]["text"])


def test_ridges_are_of_the_first_the_worst_and_the_last_step_unless_chosen(read: Read) -> None:
    def shown(**query: str) -> list[str]:
        spec = json.loads(_titled(charts(read("distributions", ["stale"], **query)), "of single steps"))
        return list(spec["layout"]["yaxis"]["ticktext"])

    assert shown() == ["step 0", "step 14", "step 22"]
    assert shown(ridges="6, 2 4") == ["step 2", "step 4", "step 6"]
    assert shown(ridges="a") == ["step 0", "step 14", "step 22"]
    assert shown(steps="2:8", ridges="0") == ["step 2", "step 8"] or shown(steps="2:8")[0] == "step 2"


def test_named_steps_are_those_on_record_in_order() -> None:
    assert (
        ridge_steps("3 1,2", [1, 2, 5]) == [1, 2] and len(ridge_steps(" ".join(map(str, range(99))), range(99))) == 12
    )
    with pytest.raises(ConfigError, match="wanted steps"):
        ridge_steps("1:5", [1])


def test_ridges_are_densities_of_their_steps() -> None:
    draws = np.random.default_rng(0)
    parts = [(step, histogram(draws.normal(0, 0.01 * (step + 1), 5000))) for step in range(3)]
    figure: Any = ridgeline(parts, "mismatch", marked=1)
    outlines = [trace for trace in figure.data if trace.name and trace.name.startswith("step")]
    assert [trace.name for trace in outlines] == ["step 0", "step 1", "step 2"]
    widths = []
    for trace in outlines:
        heights = np.asarray(trace.y) - np.asarray(trace.y).min()
        assert heights.max() == pytest.approx(1.35)
        widths.append(float(np.ptp(np.asarray(trace.x)[heights > 0.5 * heights.max()])))
    assert widths == sorted(widths)


def test_quantiles_of_equal_parts_lie_on_the_diagonal_and_of_wider_ones_off_it() -> None:
    draws = np.random.default_rng(1)
    x = draws.normal(0, 0.05, 20_000)
    alike: Any = quantile_comparison(histogram(x), histogram(x), ("a", "b"), "mismatch")
    same = alike.data[1]
    assert np.asarray(same.x) == pytest.approx(np.asarray(same.y))
    apart: Any = quantile_comparison(histogram(x), histogram(3 * x), ("a", "b"), "mismatch")
    wider = apart.data[1]
    outer = np.abs(np.asarray(wider.y)) > np.abs(np.asarray(wider.x))
    assert outer[:5].all() and outer[-5:].all()


def test_a_quantile_lies_in_the_bucket_that_holds_it_and_needs_values_beyond() -> None:
    x = np.random.default_rng(2).normal(0, 0.05, 400)
    figure: Any = quantile_comparison(histogram(x), histogram(x), ("a<b", "c"), "mismatch")
    trace = figure.data[1]
    shares = [0.02, 0.05, *np.arange(1, 10) / 10, 0.95, 0.98]  # five of 400 lie beyond each
    assert len(trace.x) == len(shares) and "a&lt;b" in str(figure.layout.xaxis.title.text)
    for share, told in zip(shares, trace.customdata, strict=True):
        found = quantile(histogram(x), share)
        assert found.low <= np.quantile(x, share, method="inverted_cdf") < found.high
        assert f"{digits(found.low)} to {digits(found.high)}" in told


def test_parts_of_the_quantiles_are_steps_or_ranges_from_the_link(read: Read) -> None:
    app = read("distributions", ["stale"], from_steps="0:6", to_steps="-3:")
    layout = json.loads(_titled(charts(app), "Quantiles of"))["layout"]
    assert layout["xaxis"]["title"]["text"] == "steps 0:6" and layout["yaxis"]["title"]["text"] == "steps -3:"
    assert "wanted first" in words(read("distributions", ["stale"], from_steps="x"))


def test_a_range_of_steps_is_heeded(read: Read, runs: Path) -> None:
    specs = charts(read("distributions", ["stale"], steps="2:8"))
    tokens = open_run(runs / "stale").metrics().filter(pl.col("step").is_between(2, 8))["mismatch/tokens"].sum()
    assert f"N = {int(tokens):,} tokens" in specs[0] and f"N = {int(tokens):,} tokens" in specs[1]


def test_the_density_is_read_when_its_drawer_is_open(read: Read, runs: Path) -> None:
    closed = charts(read("distributions", ["stale"]))
    for axes in ("probability", "log-prob"):
        found = charts(read("distributions", ["stale"], density="true", over="step", step="6", axes=axes))
        assert len(found) == len(closed) + 1 and f"old against rollout {axes}" in found[-1]
        tokens = open_run(runs / "stale").metrics().filter(step=6)["mismatch/tokens"][0]
        assert f"N = {int(tokens):,} tokens" in found[-1] and "every token counted" in found[-1]


def test_many_steps_are_read_only_when_asked_again(opened: Open) -> None:
    app = opened("distributions", ["many_steps"], density="true", steps="0:60")
    before = len(charts(app))
    assert "reads the token rows of 61 steps" in words(app)
    well(app.button(key="read_density").click().run())
    assert len(charts(app)) == before + 1 and "steps 0 to 60" in charts(app)[-1]


def test_a_filter_is_heeded_by_every_chart(read: Read, runs: Path) -> None:
    app = read("distributions", ["stale"], density="true", over="step", step="6", only="position=4")
    by_position = open_run(runs / "stale").metrics(by=("step", "position")).filter(pl.col("step") == 6)
    tokens = by_position.filter(pl.col("position").cast(pl.String) == "4")["mismatch/tokens"][0]
    assert f"N = {int(tokens):,} tokens" in charts(app)[-1] and "Only position in the response [4, 8)" in words(
        app
    ).replace("\\", "")
    assert sum(f"{int(tokens):,} token" in chart for chart in charts(app)) >= 2


def test_every_cell_can_be_clicked_and_names_its_step_and_bounds() -> None:
    frame = distribution(range(6))
    figure: Any = figures.log_ratio_heat_map(frame, "mismatch", marked=3)
    clicks = next(trace for trace in figure.data if trace.name == "cells")
    counted: dict[int, int] = {}
    for told, step, low, high in clicks.customdata:
        own = frame.filter((pl.col("step") == step) & (pl.col("low") >= low - 1e-12) & (pl.col("high") <= high + 1e-12))
        counted[step] = counted.get(step, 0) + int(own["count"].sum())
        assert f"{own['count'].sum()} token" in told
    assert counted == dict.fromkeys(range(6), 200)


def test_of_many_cells_the_outermost_can_be_clicked() -> None:
    figure: Any = figures.log_ratio_heat_map(distribution(range(240), tokens=300), "mismatch")
    clicks = next(trace for trace in figure.data if trace.name == "cells")
    assert len(clicks.x) == CLICKS
    for place in set(np.asarray(clicks.x).tolist()):
        assert (np.asarray(clicks.x) == place).sum() >= 4


def test_one_step_is_not_compared_with_itself(read: Read) -> None:
    assert "one step alone has a distribution" in words(read("distributions", "one_step"))
