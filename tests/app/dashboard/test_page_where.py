"""The page Where: bars that are those of the run, asked for slices, filters; and its figures."""

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import streamlit as st
from support.edge_runs import made
from support.frames import traces
from support.hostile import HOSTILE
from support.pages_open import Open, charts
from support.pages_read import Read

from ratioscope.app.figures.slice_bars import LABEL, short_labels, slice_bars
from ratioscope.app.figures.slice_heat import slice_heat
from ratioscope.app.presentation.metric_places import names_at
from ratioscope.app.presentation.slice_names import SLICES
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.slice_over_steps import slice_over_steps, step_buckets, token_names
from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.analysis.slice_parts import PARTS, slice_parts
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.engines.slices import WRITTEN


def test_written_slices_are_drawn_without_reading_a_token(
    opened: Open, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    st.cache_resource.clear()
    made(runs, "stale")
    for name in ("sequences", "sequence", "tokens", "records"):
        monkeypatch.setattr(Run, name, lambda *given: pytest.fail("a page load reads token rows"))
    app = opened("where", "stale")
    assert len(charts(app)) == 3
    said = "\n".join(caption.value for caption in app.caption).replace("\\", "")
    assert "By turn: not available, because the rows have no turn; pass turns= to Collector.log." in said


def test_the_page_begins_with_where_the_gap_lies(opened: Open) -> None:
    app = opened("where", "stale")
    order = [getattr(part, "key", None) or str(getattr(part, "value", "")) for part in app.main]
    begin = next(place for place, part in enumerate(order) if part.startswith("**Version lag"))
    assert begin < order.index("metric"), "above the controls of the page"
    said = "\n".join(text.value for text in app.markdown).replace("\\", "")
    assert "Version lag 6 has " in said and " of the KL in " in said and " of the tokens." in said
    healthy = opened("where", "healthy")
    assert "The KL is spread" in "\n".join(text.value for text in healthy.markdown)
    assert "By version lag: nothing to compare, every token has 0." in "\n".join(
        text.value for text in healthy.caption
    ).replace("\\", "")


def test_bars_are_the_values_of_the_run(opened: Open, runs: Path) -> None:
    app = opened("where", "stale", metric="abs_log_ratio")
    by_position = open_run(made(runs, "stale")).metrics("position").sort(pl.col("position").cast(pl.Int64))
    wanted = by_position["mismatch/abs_log_ratio"].to_list()
    figure = json.loads(charts(app)[0])
    dots = next(trace for trace in figure["data"] if trace.get("mode") == "markers")
    places = np.frombuffer(base64.b64decode(dots["x"]["bdata"]), dots["x"]["dtype"])
    assert places.tolist() == pytest.approx(wanted) and [key for _, key in dots["customdata"]] == [
        "0", "1", "2", "4", "8", "16", "32",
    ]  # fmt: skip


def test_slices_of_token_rows_are_measured_when_asked_for(opened: Open, runs: Path) -> None:
    app = opened("where", "stale", measured=["token_class", "token_id"])
    assert len(charts(app)) == 5
    specs = "".join(charts(app))
    assert "word start" in specs and "“<|im_end|>”".replace("<", "&lt;").replace(">", "&gt;") in specs
    app.button[0].click().run()
    assert len(charts(app)) == 3 + len(list(app.button_group(key="measured").value or ()))


def test_without_texts_the_token_class_says_how_to_record_them(read: Read, tmp_path: Path) -> None:
    with Collector(tmp_path / "run", text="ids") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]], token_ids=[[3]])
    said = "\n".join(caption.value for caption in read("where", tmp_path / "run").caption).replace("\\", "")
    assert "By token class: not available, because the rows have no token_texts; record text='full'" in said


@pytest.mark.parametrize("gap", ["mismatch", "total", "drift"])
def test_every_metric_of_every_gap_can_be_asked_for(read: Read, gap: str) -> None:
    for metric in names_at("bars", gap):
        app = read("where", "stale", gap=gap, metric=metric, heat="position", steps="-5:")
        assert len(charts(app)) == 4, metric
        assert all(BY_NAME[metric].title in chart for chart in charts(app))


def test_a_filter_marks_its_bar_and_a_range_without_steps_is_said(read: Read) -> None:
    app = read("where", "stale", only="lag=6")
    assert sum("▶ 6" in chart for chart in charts(app)) == 1
    assert "The run has no steps" in read("where", "stale", steps="100000:").info[0].value


def test_a_growing_run_is_not_measured_again_until_asked(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        _log(collector, 0)
        app = opened("where", tmp_path / "run", measured=["length_decile"])
        _log(collector, 1)
        app.run()
        newer = next(button for button in app.button if "newer step" in button.label)
        assert newer.label == "measure 1 newer step too"
        newer.click().run()
        assert not any("newer step" in button.label for button in app.button) and not app.exception


def test_every_slice_there_is_has_its_words() -> None:
    assert {words.name for words in SLICES} == {*ON_DEMAND, *WRITTEN} - {"all"}


def test_a_heat_map_over_many_steps_merges_statistics(runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    for name in ("lag", "token_class"):
        course = slice_over_steps(run, name, most=4)
        assert course["step"].n_unique() == 4
        whole, parts = run.metrics(name), course.group_by(name).agg(pl.col("mismatch/tokens").sum())
        joined = whole.join(parts, on=name)
        assert joined["mismatch/tokens"].to_list() == joined["mismatch/tokens_right"].to_list() and len(joined) > 2
        first = course.filter(pl.col("step") == run.steps[0])
        alone = run.metrics(name, steps=range(run.steps[0], first["last"][0] + 1))
        assert first.sort(name)["mismatch/kl_k3"].to_list() == pytest.approx(
            alone.sort(name)["mismatch/kl_k3"].to_list()
        )
    assert step_buckets([]).first == () and slice_over_steps(run, "lag", range(900, 950)).is_empty()


def test_a_heat_map_has_a_cell_where_there_are_tokens_and_holes_elsewhere(runs: Path) -> None:
    run = open_run(made(runs, "holes"))
    course, parts = slice_over_steps(run, "position"), _parts(run, "position")
    figure = slice_heat(course, parts, "position", BY_NAME["kl_k3"], "mismatch", "x")
    heat = traces(figure)[0]
    assert len(heat.x) == len(heat.z[0]) + 1 == 7  # steps 0 and 1, nothing, 5, nothing, 100
    assert [math.isnan(cell) for cell in heat.z[0]] == [False, False, True, False, True, False]
    empty = slice_heat(course.clear(), parts, "position", BY_NAME["kl_k3"], "mismatch", "x")
    assert "no token" in str(empty.to_plotly_json()["layout"]["annotations"])


@pytest.mark.parametrize("text", [*HOSTILE, "vllm-engine-017.cluster.example", "x" * 27])
def test_a_hostile_bucket_is_text(text: str) -> None:
    (shown,) = short_labels([text])
    assert "<" not in shown and len(shown) <= 5 * LABEL
    parts = pl.DataFrame(
        [{"key": "k", "label": text[:5000].encode("utf-8", "replace").decode(), "value": 1.0, "error": None, "tokens": 3.0,
          "share_of_tokens": 1.0, "share_of_gap": 1.0, "buckets": 1}],
        schema=PARTS,
    )  # fmt: skip
    figure = slice_bars(parts, BY_NAME["kl_k3"], "mismatch", "x")
    drawn = str(figure.to_json())
    assert "<script" not in drawn and "\\u003cscript" not in drawn


def test_replicas_whose_names_differ_in_the_middle_stay_apart() -> None:
    names = [f"http://vllm-decode-worker-{n}.rollout.rl-training.svc.cluster.local:8000" for n in (0, 1, 12)]
    shown = short_labels(names)
    assert len(set(shown)) == 3 and all(len(name) <= LABEL for name in shown)
    assert "worker-0" in shown[0] and "worker-12" in shown[2]


@pytest.mark.parametrize("value", [0.0, math.inf, -1e-3, 1e30, 1e-30])
def test_a_single_bucket_of_any_value_is_drawn(value: float) -> None:
    row = {"key": "k", "label": "k", "value": value, "error": 0.1, "tokens": 1.0, "share_of_tokens": 1.0, "buckets": 1}
    figure = slice_bars(pl.DataFrame([row | {"share_of_gap": None}], schema=PARTS), BY_NAME["kl_k3"], "mismatch", "x")
    layout: Any = figure.layout  # plotly makes its attributes at run time
    low, high = layout.xaxis.range or (0, 1)  # an infinite one has no place: it is said in words
    assert math.isfinite(value) or "infinite in every bucket" in str(layout.annotations)
    assert math.isfinite(low) and math.isfinite(high) and low < high


def test_ids_have_the_texts_they_most_often_have(runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    assert token_names(run, [2, 28, 999_999]) == {2: "<|im_end|>", 28: ","}
    assert token_names(open_run(made(runs, "one_token")), [2]) == {}


def _parts(run: Run, name: str) -> pl.DataFrame:
    return slice_parts(run.metrics(name), name, "mismatch", "kl_k3")


def _log(collector: Collector, step: int) -> None:
    collector.log(step=step, rollout_logprobs=[[-1.0, -2.0], [-1.0]], old_logprobs=[[-1.1, -2.0], [-1.2]])
    assert collector.flush(timeout=60)
