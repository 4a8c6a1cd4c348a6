"""The filter of the header: conditions are picked with counts, joined, removed, kept in the URL, and read in the background."""

from pathlib import Path

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, charts, plain, well

from ratioscope.app.dashboard.model.view import jobs
from ratioscope.app.pages import step_choice
from ratioscope.ingest.rows.part import part_of
from ratioscope.ingest.run import Run, open_run

PAGES = ("overview", "charts", "distributions", "where", "samples", "tokens")


def chips(app: AppTest) -> list[str]:
    return [button.label.replace("\\", "") for button in app.button if str(button.key).startswith("only_off_")]


@pytest.mark.parametrize("page", PAGES)
def test_a_filter_of_several_conditions_holds_on_every_page(opened: Open, page: str) -> None:
    app = opened(page, "stale", only="(lag=6 or lag=0) and position=4")
    assert chips(app) == ["version lag 6", "version lag 0", "position in the response [4, 8)"]
    said = [caption.value for caption in app.caption]
    assert said.index("or") < said.index("and")


def test_a_removed_condition_leaves_the_others(opened: Open) -> None:
    app = opened("overview", "stale", only="(lag=6 or lag=0) and position=4")
    well(app.button(key="only_off_0").click().run())
    assert app.session_state["only"] == "lag=0 and position=4" and len(chips(app)) == 2
    well(app.button(key="only_off").click().run())
    assert app.session_state["only"] == "" and not chips(app)


def test_a_condition_is_picked_from_a_list_with_counts(opened: Open, runs: Path) -> None:
    app = opened("overview", "stale")
    app.session_state["filter"] = True
    app.run()
    app.selectbox(key="filter_slice").set_value("lag").run()
    by_lag = open_run(made(runs, "stale")).metrics("lag")
    tokens = dict(by_lag.select(pl.col("lag").cast(pl.String), pl.col("mismatch/tokens").cast(pl.Int64)).rows())
    keys = app.multiselect(key="filter_keys_lag")
    assert f"6 · {tokens['6']:,} tokens" in keys.options and len(keys.options) == len(tokens)
    keys.set_value(["6", "0"]).run()
    app.session_state["filter"] = True
    well(app.button(key="filter_show").click().run())
    assert part_of(app.session_state["only"]) == part_of("lag=6 or lag=0")
    app.session_state["filter"] = True
    app.run()
    app.selectbox(key="filter_slice").set_value("position").run()
    app.multiselect(key="filter_keys_position").set_value(["4"]).run()
    well(app.button(key="filter_and").click().run())
    assert part_of(app.session_state["only"]) == part_of("(lag=6 or lag=0) and position=4")


def test_the_page_tokens_lists_the_sequences_with_a_token_of_the_filter(opened: Open, runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    sizes = run.tokens([run.steps[-1]], columns=["sequence_id"]).collect()["sequence_id"].value_counts()
    edge = 2 ** (int(sizes["count"].max() - 1).bit_length() - 1)  # type: ignore[operator]  # a number
    long = set(sizes.filter(pl.col("count") > edge)["sequence_id"])
    assert 0 < len(long) < len(sizes)
    app = opened("tokens", "stale", step=str(run.steps[-1]), only=f"position={edge}")
    assert set(app.dataframe[0].value["sequence_id"]) == long
    assert "whole sequences with a token of position in the response" in plain(app)
    none = opened("tokens", "stale", step=str(run.steps[-1]), only="position=4096")
    assert "no sequence of this step has a token of" in plain(none)


def test_the_quantiles_are_those_of_the_filter_or_say_why_not(opened: Open, runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    tokens = run.tokens(columns=["position", "mask", "mismatch"]).collect()
    inside = tokens.filter(
        pl.col("position").is_between(2, 7) & pl.col("mask").fill_null(True) & pl.col("mismatch").is_not_null()
    )
    drawn = _quantiles(opened("charts", "stale", only="position=2 or position=4"))
    assert f"N = {len(inside):,} tokens" in drawn and "only position in the response" in drawn
    assert "Distributions reads it from token rows" in _quantiles(opened("charts", "stale", only="position=2"))


def _quantiles(app: AppTest) -> str:
    return next(chart for chart in charts(app) if "Log-ratio quantiles" in chart).replace("<br>", " ")


def test_an_unclear_filter_shows_everything_and_says_what_is_wanted(opened: Open) -> None:
    app = opened("overview", "stale", only="lag=6 or lag=0 and position=4")
    assert not chips(app) and ":red[" in "".join(caption.value for caption in app.caption)
    assert "need parentheses" in plain(app) and "Cards and charts show" not in plain(app)
    app = opened("overview", "stale", only="lag=6 and foo=1")
    assert "foo is not a slice of this run" in plain(app) and not chips(app)


def test_a_long_reading_runs_in_the_background_and_draws_what_it_has(
    opened: Open, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    st.cache_resource.clear()
    monkeypatch.setattr(step_choice, "AT_ONCE", 0)
    text = "lag=6 and position=8"
    app = opened("overview", "stale", only=text)
    job = jobs().of(f"part {made(runs, 'stale')} mismatch {text}")
    assert job is not None and job.wait(120).state == "done"
    app.run()
    frame = open_run(made(runs, "stale")).metrics(("step", "lag"))
    with_lag = frame.filter(pl.col("lag").cast(pl.String) == "6")["step"].to_list()
    assert charts(well(app)) and not any(str(button.key) == "cancel_job" for button in app.button)
    assert f"step {with_lag[-1]}" in next(part.proto.body for part in app.html if "rs-cards" in part.proto.body)


def test_steps_without_token_rows_are_left_out_and_said(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    st.cache_resource.clear()
    monkeypatch.setattr(Run, "rows_on_disk", property(lambda run: dict.fromkeys(run.steps[1:], 1)))
    app = opened("overview", "stale", only="position=0 or position=1")
    assert "1 step has no token rows, which this filter needs, so charts leave it out" in plain(app)
    st.cache_resource.clear()
