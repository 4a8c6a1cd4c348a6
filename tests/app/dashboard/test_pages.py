"""Every page on every kind of run, as Streamlit runs it without a browser; and what the pages' choices do."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import RUNS, made
from support.golden import holds, placeheld
from support.pages_open import SECONDS, Open, charts, codes, fact_cards, html, marked, plain, unopened, well, words
from support.pages_read import Read
from support.shown_numbers import shown

from ratioscope.app.dashboard import blocks_drawn
from ratioscope.app.dashboard.model import live, opened_runs
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.dashboard.model.served_runs import distinct_names
from ratioscope.app.dashboard.model.view import view
from ratioscope.app.dashboard.server import server
from ratioscope.app.figures.html.sample_lines import empty_lines
from ratioscope.app.pages import step_choice
from ratioscope.app.pages.overview import READ
from ratioscope.app.pages.pages import PAGES
from ratioscope.app.pages.sequence_list import HERE
from ratioscope.app.pages.step_choice import worst_first
from ratioscope.app.pages.tokens import WINDOW
from ratioscope.app.pages.worst_of_run import SAMPLES
from ratioscope.app.presentation.digits import digits
from ratioscope.app.presentation.escape import html as escaped
from ratioscope.app.presentation.metric_places import names_at
from ratioscope.app.presentation.theme import DARK, LIGHT
from ratioscope.app.presentation.weight_bounds import CAP_BY_NAME, FLOOR_BY_NAME
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics import distribution
from ratioscope.metrics.corrections.threshold import CAPS, FLOORS, Threshold
from ratioscope.metrics.corrections.threshold_effect import whole_effect
from ratioscope.metrics.distribution import LEVELS, THRESHOLDS


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("path", [card.path for card in PAGES])
def test_every_page_says_the_same_of_every_run_as_before(read: Read, runs: Path, path: str, name: str) -> None:
    app = read(path, name)
    said, drawn = plain(app), charts(app)
    assert len(drawn) + len(app.html) + len(app.dataframe) + len(app.info) + len(app.caption) > 0
    if path != "runs":
        assert (len(app.info) == 1) == (name == "empty")
    if name != "empty":
        assert path != "overview" or 1 < len(drawn) <= 6
        assert path != "compare" or ("A: " in said and "B: " in said and "Settings" not in said.split("A: ")[0])
        assert path != "alerts" or ("alert" in said and ("passed" in said or "Not graded" in said or name == "stale"))
    tables = [{str(column): table.value[column].tolist() for column in table.value} for table in app.dataframe]
    text = "\n".join([said, html(app), *codes(app), *(each.label for each in (*app.button, *app.expander))])
    holds(runs, name, f"page {path}", shown(text.replace(str(runs), ""), map(json.loads, drawn), tables))


@pytest.mark.parametrize("path", [card.path for card in PAGES])
def test_streamlit_draws_every_page_of_a_real_run(opened: Open, read: Read, runs: Path, path: str) -> None:
    """With the charts, the markup, the code and the buttons of the page, no fewer of its tables, and all its sentences."""
    _diagnose(made(runs, "stale"))
    app = opened(path, ["stale"])
    well(app)
    wanted = read(path, "stale")
    assert [json.loads(each) for each in charts(app)] == [json.loads(each) for each in charts(wanted)]
    assert {placeheld(part.proto.body) for part in wanted.html if part.proto.body != empty_lines(SAMPLES)} <= {
        placeheld(part.proto.body) for part in app.html
    }
    assert {*codes(wanted)} <= {*codes(app)} and len(app.dataframe) >= len(wanted.dataframe)
    assert {part.key for part in wanted.button} <= {part.key for part in app.button}
    said = plain(app)
    assert not [each for each in plain(wanted).split("\n") if each.strip("* ") not in said and each != READ]


@pytest.mark.parametrize("gap", ["mismatch", "total", "drift"])
@pytest.mark.parametrize("path", ["overview", "distributions", "samples", "tokens"])
def test_every_page_draws_every_gap_in_the_dark(read: Read, path: str, gap: str) -> None:
    app = read(path, ["stale"], theme="dark", gap=gap)
    assert all(DARK.background in spec and LIGHT.background not in spec for spec in charts(app))


def test_the_gap_of_the_address_is_chosen(opened: Open) -> None:
    assert opened("overview", ["stale"], gap="drift").segmented_control(key="gap").value == "drift"


def test_the_entry_script_opens_the_first_page(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(opened_runs.RUNS, json.dumps([str(made(runs, "stale"))]))
    app = AppTest.from_file(str(server.SCRIPT), default_timeout=SECONDS).run()
    well(app)
    assert "■ act" in html(app) and len(charts(app)) == 5


def test_the_verdict_of_a_healthy_run_is_healthy(read: Read) -> None:
    assert "● healthy" in html(read("overview", ["healthy"]))


def test_more_metrics_are_drawn_when_asked_for(read: Read) -> None:
    app = read("overview", ["stale"], more="true")
    assert len(charts(app)) == len(names_at("chart", "mismatch"))


def test_numbers_behind_a_page_are_those_of_the_run(opened: Open, runs: Path) -> None:
    app = opened("overview", ["healthy"])
    assert not app.dataframe
    app.session_state["overview_numbers"] = True
    app.run()
    wanted = open_run(made(runs, "healthy")).metrics()
    shown = app.dataframe[0].value
    assert shown["mismatch/kl_k3"].tolist() == pytest.approx(wanted["mismatch/kl_k3"].to_list())


def test_no_page_load_reads_tokens_but_those_of_the_chosen_step(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    st.cache_resource.clear()

    def noted(name: str) -> Callable[..., Any]:
        own = getattr(Run, name)

        def reading(*given: Any, **named: Any) -> Any:
            read.append(name)
            return own(*given, **named)

        return reading

    for name in ("sequences", "sequence", "tokens", "records"):
        monkeypatch.setattr(Run, name, noted(name))
    for page in ("overview", "distributions", "record"):
        opened(page, ["stale"])
    assert read == []
    opened("samples", ["stale"])
    opened("tokens", ["stale"])
    assert set(read) == {"sequences", "sequence", "tokens"}  # the courses of the sequences are of that step too


def test_the_run_in_the_url_is_shown_and_no_other_path_can_be(opened: Open, runs: Path) -> None:
    app = opened("record", ["stale", "healthy"], run="healthy")
    assert app.selectbox(key="run").value == "healthy" and str(runs / "healthy") in words(app).replace("\\", "")
    for path in ("../../etc", "/etc", "nowhere", "..", "healthy/../stale"):
        app = opened("record", ["stale", "healthy"], run=path)
        assert app.selectbox(key="run").value is None and "is not served here" in app.warning[0].value


def test_health_begins_with_what_is_complete_and_names_metrics_in_words(opened: Open) -> None:
    app = opened("record", ["two_policies"])
    shown: list[Any] = [part for part in app.main if part.type in ("caption", "html")]
    said = [part.value.replace("\\", "") if part.type == "caption" else part.proto.body for part in shown]
    well, first = (
        next(at for at, text in enumerate(said) if begin in text) for begin in ("Nothing was dropped.", "<dt>steps")
    )
    assert well < first, "before the cards"
    named = html(app)
    assert all(
        f"{gap}: {lacking} metrics, such as Mean |log-ratio|;" in named
        for gap, lacking in (("total", 53), ("drift", 27))
    )
    assert "total/" not in named and "_z" not in named and ">Because" not in named


def test_every_page_says_once_that_results_are_not_kept(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    run = copytree(made(tmp_path, "stale"), tmp_path / "unkept")
    assert "computed again" not in words(opened("record", run))
    for page in ("where", "record", "samples"):
        shown = plain(opened(page, run, measured="token_class"))
        assert shown.count("results are computed again each time: nothing can be kept in") == 1


def test_health_tells_the_notes_of_events_first_where_the_window_is_narrow(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def order() -> list[str]:
        events = next(each for each in opened("record", "stale").dataframe if "note" in each.value)
        return list(events.proto.column_order)

    assert order() == ["step", "event", "note", "time", "writer"]
    monkeypatch.setattr(blocks_drawn, "is_narrow", lambda: True)
    assert order() == ["step", "note", "event", "time", "writer"]


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    names = distinct_names(["/a/x/run", "/a/y/run", "/a/other"])
    assert names == {"/a/x/run": "x/run", "/a/y/run": "y/run", "/a/other": "other"}
    assert distinct_names(["/run", "/a/run"]) == {"/run": "//run", "/a/run": "a/run"}


def test_the_step_is_the_worst_unless_chosen_and_always_one_on_record(opened: Open, runs: Path) -> None:
    worst = step_choice.worst_step(view(str(made(runs, "stale"))), open_run(made(runs, "stale")).steps)
    assert worst == 14
    app = opened("samples", ["stale"])
    assert app.number_input(key="step").value == 14 and "step 14: ■ act" in plain(app)
    assert "step 6:" in plain(opened("samples", ["stale"], step="6"))
    assert "step 6:" in plain(opened("samples", ["stale"], step="7"))
    assert "step 14:" in plain(opened("samples", ["stale"], step="99999"))
    assert step_choice.nearest([1, 5, 9], 7) == 5 and step_choice.nearest([1, 5, 9], -4) == 1


def test_a_healthy_run_opens_at_its_last_step(opened: Open) -> None:
    assert opened("samples", ["healthy"]).number_input(key="step").value == 22


@pytest.mark.parametrize("order", ["max_abs_log_ratio", "kl_k3", "log_ratio_sum", "reward"])
def test_sequences_come_worst_first(read: Read, runs: Path, order: str) -> None:
    app = read("samples", ["stale"], order=order)
    shown = app.dataframe[0].value
    frame = open_run(made(runs, "stale")).sequences(14)
    wanted = worst_first(frame, "mismatch", order)
    assert shown["sequence_id"].tolist() == wanted["sequence_id"].to_list() and len(shown) == 32
    sizes = shown[order].abs().tolist() if order != "reward" else (-shown[order]).tolist()
    assert sizes == sorted(sizes, reverse=True)


def test_the_worst_sequence_is_read_token_by_token(opened: Open, runs: Path) -> None:
    app = opened("tokens", ["stale"])
    worst = marked(app)
    tokens = open_run(made(runs, "stale")).sequence(14, worst)
    assert html(app).count("data-h=") == len(tokens)
    for text in tokens["token_text"].to_list():
        assert escaped(text) in html(app)


def test_next_and_previous_walk_through_the_sequences(opened: Open) -> None:
    app = opened("tokens", ["stale"])
    first, second = app.dataframe[0].value["sequence_id"][:2]
    previous, following = app.button(key="previous"), app.button(key="next")
    assert previous.disabled and not following.disabled
    following.click().run()
    assert marked(app) == second != first
    app.button(key="previous").click().run()
    assert marked(app) == first


def test_a_sequence_in_the_url_is_shown_and_an_unknown_one_is_explained(opened: Open) -> None:
    assert marked(opened("tokens", ["stale"], step="6", sequence="6-100")) == "6-100"
    app = opened("tokens", ["stale"], sequence="no such")
    well(app)
    assert "Sequence no such is not in step 14" in words(app) and app.dataframe[0].value[""][0] == HERE


def test_a_sequence_of_several_minibatches_shows_the_chosen_one(opened: Open, runs: Path) -> None:
    app = opened("tokens", ["holes"], gap="drift", step="5", sequence="5-1", minibatch="1")
    well(app)
    tokens = open_run(made(runs, "holes")).sequence(5, "5-1", 1)
    assert app.segmented_control(key="minibatch").value == 1 and len(tokens) == 6
    assert digits(tokens["drift"][5]) in charts(app)[0]


def test_a_long_response_is_shown_in_windows_and_its_strip_whole(opened: Open) -> None:
    app = opened("tokens", ["long_response"])
    assert html(app).count("data-h=") == WINDOW and "position 0&#10;" in html(app)
    app.slider(key="from").set_value(5000 - WINDOW).run()
    assert "position 4999" in html(app) and f"position {4999 - WINDOW}&#10;" not in html(app)
    assert "5,000 tokens" in charts(app)[0]


@pytest.mark.parametrize("level", LEVELS)
def test_the_effect_of_a_cap_is_what_the_weights_say(opened: Open, runs: Path, level: str) -> None:
    app = opened("distributions", ["stale"], level=level, cap="1.2", floor="0.5", how="masked")
    shown = fact_cards(app)
    run = open_run(made(runs, "stale"))
    x = pl.concat([run.sequences(step) for step in run.steps])
    if level == "token":
        weights = run.tokens().filter(pl.col("mismatch").is_not_null()).select("mismatch").collect()["mismatch"].exp()
    else:
        weights = x[f"mismatch/log_ratio_{'sum' if level == 'sequence' else 'mean'}"].exp()
    outside = float(((weights < 0.5) | (weights >= 1.2)).to_numpy().mean())
    assert _percent(shown["clipped share"]) == pytest.approx(100 * outside, rel=0.006)
    kept = weights.filter((weights >= 0.5) & (weights < 1.2))
    ess = float(kept.sum()) ** 2 / (len(weights) * float((kept * kept).sum()))
    assert _percent(shown["ESS after"]) == pytest.approx(100 * ess, rel=0.006)


def test_weights_that_are_all_zero_have_no_mass_to_remove(read: Read) -> None:
    app = read("distributions", ["holes"], level="sequence")
    well(app)
    assert list(fact_cards(app).values()) == ["0%", "–", "–", "–"]  # a weight of 0 lies within [0, 2)


def test_every_offered_bound_is_exact() -> None:
    assert len(CAP_BY_NAME) == len(CAPS) + 1 and len(FLOOR_BY_NAME) == len(FLOORS) + 1
    part = distribution.histogram([0.123, -0.456, 0.789])
    for bound in THRESHOLDS:
        assert whole_effect(part, Threshold("mask", high=bound))["clipped_share"].exact


def test_one_step_of_the_distribution_can_be_chosen(opened: Open, runs: Path) -> None:
    app = opened("distributions", ["stale"], over="step", step="6")
    well(app)
    tokens = open_run(made(runs, "stale")).metrics().filter(pl.col("step") == 6)["mismatch/tokens"][0]
    assert f"N = {int(tokens)} tokens" in charts(app)[1] and app.number_input(key="step").value == 6


def test_a_growing_run_is_read_again_on_the_next_interaction(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
        collector.flush(timeout=60)
        opened("record", ["stale"])
        monkeypatch.setenv(opened_runs.RUNS, json.dumps([str(tmp_path / "run")]))
        app = unopened().run()
        assert fact_cards(app)["steps"] == "1"
        collector.log(step=1, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
        collector.flush(timeout=60)
        assert fact_cards(app.run())["steps"] == "2"


def test_runs_that_have_ended_are_looked_at_less_often(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: dict[str | None, float] = {}
    fragment: Any = st.fragment

    def noted(function: Any = None, *, run_every: Any = None, key: str | None = None) -> Any:
        pauses[key] = run_every
        return fragment(function, run_every=run_every, key=key)

    monkeypatch.setattr(st, "fragment", noted)
    opened("record", "healthy")
    assert pauses["live"] == live.EVERY_ENDED > live.EVERY
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
        collector.flush(timeout=60)
        opened("record", tmp_path / "run")
        assert pauses["live"] == live.EVERY
        opened("charts", ["healthy", tmp_path / "run"], run="healthy", **{"with": ["run"]})
        assert pauses["live"] == live.EVERY, "a run beside it grows"
        assert "live_beside" not in pauses
        opened("compare", ["healthy", tmp_path / "run"], run="healthy", b=["run"])
        assert pauses["live_beside"] == live.EVERY, "the page has opened a run that grows"
        opened("charts", ["healthy", tmp_path / "run"], run="healthy")
        assert pauses["live"] == live.EVERY_ENDED


def test_a_folder_without_a_run_waits_for_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGE", "overview")
    monkeypatch.setenv(opened_runs.RUNS, json.dumps([str(tmp_path)]))
    app = unopened().run()
    well(app)
    assert "as soon as there is something to show" in app.info[0].value and "ratioscope.attach" in "\n".join(codes(app))
    monkeypatch.delenv(opened_runs.RUNS)
    assert "ratioscope dashboard RUN" in unopened().run().info[0].value


def test_no_hostile_text_reaches_markdown_unescaped(opened: Open) -> None:
    for card in PAGES:
        app = opened(card.path, ["hostile"])
        for text in words(app).split("\n"):
            assert "![" not in text and "](" not in text and "<script" not in text and ":red[" not in text
        for body in (element.proto.body for element in app.html):
            assert "<script" not in body and "onerror='" not in body and "<img src=x" not in body


def _diagnose(run: Path) -> None:
    """Has the answer known before a page is drawn, which else shows what was known then."""
    diagnoses().of(view(str(run)))
    diagnoses().answer_all()


def _percent(shown: str) -> float:
    return float(shown.removesuffix("%").replace(",", "").replace("−", "-"))
