"""The page Fix without a browser: what it says is what the weights say, all of it in the URL, nothing read unasked."""

import math
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, charts, codes, fact_cards, html, plain, words
from support.uncorrected import uncorrected_run

from ratioscope.app import cli
from ratioscope.app.pages import corrections_outcomes as outcomes
from ratioscope.app.pages.corrections_text import comparison_of, syntax
from ratioscope.ingest.analysis.correction_effects import correction_effects, effect_frame
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.corrections.correction import CORRECTIONS, truncate
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.distribution import Histogram, whole_histogram

SECONDS = 90


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No job of another test is known, in memory or in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


TRIED = {"try": "true"}
"""The query that opens the drawer of one threshold."""


def carried_out(app: AppTest) -> AppTest:
    """The page once its job is done."""
    app.button(key="carry_out").click().run()
    deadline = time.monotonic() + SECONDS
    while "computed from the tokens of all" not in words(app):
        assert time.monotonic() < deadline, words(app)
        time.sleep(0.1)
        app.run()
    return app


def is_well(app: AppTest) -> None:
    assert not app.exception, [box.value for box in app.exception]
    assert not app.error and not app.warning, [box.value for box in (*app.error, *app.warning)]


def test_the_weights_of_all_steps_are_added_up_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    made_of = list[int]()

    def noting(rows: pl.DataFrame) -> Histogram:
        made_of.append(len(rows))
        return whole_histogram(rows)

    monkeypatch.setattr(outcomes, "whole_histogram", noting)
    is_well(opened("fix", "stale"))
    assert len(made_of) == 1


def number(shown: str) -> float:
    return float(shown.removesuffix("%").replace(",", "").replace("−", "-"))


def token_weights(run: Run) -> Any:
    x = run.tokens().filter(pl.col("mismatch").is_not_null()).select("mismatch").collect()["mismatch"]
    return x.exp().to_numpy()


@pytest.mark.parametrize(
    ("rule", "floor", "cap"), [("truncate", "none", "1.2"), ("mask", "0.5", "2"), ("reject", "0.8", "1.25")]
)
def test_a_threshold_does_what_the_weights_say(opened: Open, runs: Path, rule: str, floor: str, cap: str) -> None:
    app = opened("fix", "stale", **TRIED, rule=rule, floor_at=floor, cap_at=cap)
    is_well(app)
    w = token_weights(open_run(made(runs, "stale")))
    low, high = (0.0 if floor == "none" else float(floor)), float(cap)
    inside = (w >= low) & (w < high)
    v = np.clip(w, low, high) if rule == "truncate" else np.where(inside, w if rule == "mask" else 1.0, 0.0)
    shown = fact_cards(app)
    assert number(shown["mean weight"]) == pytest.approx(v.mean(), rel=0.006)
    assert number(shown["bias"]) == pytest.approx(np.abs(v - w).mean(), rel=0.006)
    before, after = shown["ESS before → after"].split(" → ")
    unsure = open_run(made(runs, "stale")).metrics(())["mismatch/ess_token_se"][0] is None  # k-hat has failed: a bound
    assert before.startswith("≤ ") == unsure
    before = before.removeprefix("≤ ")
    for said, weights in ((before, w), (after, v)):
        assert number(said) == pytest.approx(100 * weights.sum() ** 2 / (len(w) * (weights**2).sum()), rel=0.006)
    assert number(shown["removed"]) == pytest.approx(0.0 if rule == "truncate" else 100 * (~inside).mean(), rel=0.006)
    assert "without token rows" in words(app) and "exact" in words(app)


def test_a_typed_threshold_is_an_interval_and_nonsense_is_said(opened: Open) -> None:
    app = opened("fix", "stale", **TRIED, cap_typed="1.234")
    is_well(app)
    assert "–" in fact_cards(app)["clipped"] and "an interval" in words(app)
    assert app.select_slider(key="cap_at").disabled
    odd = opened("fix", "stale", **TRIED, cap_typed="![x](http://y)")
    is_well(odd)
    assert "is no weight" in words(odd) and "![x]" not in words(odd)
    assert "0 <= low < high" in words(opened("fix", "stale", **TRIED, floor_typed="3", cap_typed="2")).replace("\\", "")
    assert "Nothing is bound" in words(opened("fix", "stale", **TRIED, cap_at="none"))


def test_a_moved_slider_moves_the_cards_and_the_mark(opened: Open) -> None:
    assert len(charts(opened("fix", "stale"))) == 3, "a drawer that is closed draws no chart"
    app = opened("fix", "stale", **TRIED)
    before, frontier = fact_cards(app), charts(app)[-1]
    app.select_slider(key="cap_at").set_value("1.2").run()
    assert fact_cards(app)["clipped"] != before["clipped"] and charts(app)[-1] != frontier
    assert "truncate at 1.2" in charts(app)[-1]


def test_no_page_load_reads_a_token_row(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("token rows were read")

    for name in ("records", "tokens", "sequences", "sequence"):
        monkeypatch.setattr(Run, name, refuse)
    for query in ({}, {**TRIED, "at": "sequence"}, {"lab": "verl:decoupled_token_is,veto:1e-4"}):
        is_well(opened("fix", "stale", **query))


def test_the_lab_in_the_url_is_compared_and_what_cannot_be_meant_is_said(opened: Open) -> None:
    app = opened("fix", "stale", lab="truncate:token:2,verl:nope,<script>,trl:token_mask")
    is_well(app)
    said = words(app).replace("\\", "")
    assert "verl has no such preset" in said and "left out: <script>" in said
    assert [button.label for button in app.button if str(button.key).startswith("remove_")] == [
        "truncate token at 2",
        "trl token\\_mask",
    ]


def test_what_is_compared_is_added_and_taken_away(opened: Open) -> None:
    app = opened("fix", "stale", **TRIED, lab="none", cap_at="1.2")
    app.button(key="add_threshold").click().run()
    assert app.text_input(key="lab").value == "none,truncate:token:1.2" and app.button(key="add_threshold").disabled
    app.selectbox(key="preset_trainer").set_value("trl").run()
    app.multiselect(key="presets_trl").set_value(["token_mask", "sequence_mask"]).run()
    app.button(key="add_presets").click().run()
    app.button(key="add_veto").click().run()
    assert app.text_input(key="lab").value == "none,truncate:token:1.2,trl:token_mask,trl:sequence_mask,veto:1e-4"
    for _ in range(5):
        app.button(key="remove_0").click().run()
    assert app.text_input(key="lab").value == "-" and "Nothing is compared" in words(app)
    is_well(app)


def test_a_pasted_configuration_is_compared_or_refused_with_the_reason(opened: Open) -> None:
    app = opened("fix", "stale", lab="none")
    app.selectbox(key="paste_trainer").set_value("verl").run()
    app.text_area(key="pasted").set_value("rollout_is: sideways").run()
    app.button(key="add_pasted").click().run()
    assert "allowed" in words(app) and app.text_input(key="lab").value in ("", "none")
    app.text_area(key="pasted").set_value("rollout_is: token\nrollout_is_threshold: 1.5").run()
    app.button(key="add_pasted").click().run()
    is_well(app)
    assert "allowed" not in words(app) and app.button(key="remove_1").label.startswith("verl own")


def test_the_job_finds_what_the_command_line_says(opened: Open, runs: Path) -> None:
    parts = "none,truncate:token:2,ours:geometric-MIS-0.999-1.001,ours:veto-1e-4,verl:decoupled_k3_rs_token_tis"
    app = opened("fix", "stale", lab=parts)
    assert "not computed yet" in html(app) and "computed from the tokens of 0 of " in words(app)
    carried_out(app)
    is_well(app)
    assert "not computed yet" not in html(app)
    app.session_state["lab_numbers"] = True
    app.run()
    shown = {row["correction"]: row for row in app.dataframe[0].value.to_dict("records")}
    run = open_run(made(runs, "stale"))
    theirs = [entry.correction("mismatch") for entry in comparison_of(parts).entries]
    wanted = {row["correction"]: row for row in effect_frame(correction_effects(run, theirs).sums).to_dicts()}
    for entry, correction in zip(comparison_of(parts).entries, theirs, strict=True):
        found, right = shown[entry.name], wanted[getattr(correction, "name", None) or getattr(correction, "title", "")]
        for name in ("ess_after", "mean_weight", "bias", "variance", "removed_share", "clipped_share"):
            assert found[name] == pytest.approx(right[name], rel=1e-6, abs=1e-8), (entry.name, name)


def test_another_session_finds_what_was_carried_out(opened: Open) -> None:
    carried_out(opened("fix", "stale", lab="veto:1e-4"))
    assert "computed from the tokens of all" in words(opened("fix", "stale", lab="veto:1e-4"))
    st.cache_resource.clear()  # another server
    assert "computed from the tokens of all" in words(opened("fix", "stale", lab="veto:1e-4"))


def test_a_range_of_steps_is_what_is_carried_out(opened: Open) -> None:
    app = carried_out(opened("fix", "stale", lab="veto:1e-4", steps="4:8"))
    assert "computed from the tokens of all 3 steps" in words(app)
    assert "computed from the tokens of 3 of " in words(opened("fix", "stale", lab="veto:1e-4"))


def test_a_bound_on_sequences_has_the_numbers_of_the_command_line_or_none(opened: Open, runs: Path) -> None:
    app = opened("fix", "stale", lab="truncate:token:2,truncate:sequence:2")
    assert "not computed yet" in html(app) and " sequences</td>" not in html(app)
    wanted = effect_frame(correction_effects(open_run(made(runs, "stale")), [truncate(2, level="sequence")]).sums)
    assert f"{wanted['bias'][0]:.3f}" not in html(app)
    assert f"{wanted['bias'][0]:.3f}" in html(carried_out(app))
    rowless = opened("fix", "many_steps", lab="truncate:token:2,truncate:sequence:2", steps="5:50")
    assert "over sequences, because no step has token rows" in html(rowless) and " sequences</td>" in html(rowless)


def test_the_best_is_marked_and_named_in_agreement_with_the_verdict(opened: Open) -> None:
    app = opened("fix", "stale", lab="none,truncate:token:2,mask:token:0.5:5,reject:token:0.999:1.001")
    assert html(app).count("◆") >= 4 and "#### Truncate token at 2 helps most" in words(app)
    assert any("gradient is taken as bias²" in caption.proto.help for caption in app.caption)
    healthy = opened("fix", "healthy", lab="none,truncate:token:2,mask:token:0.5:5")
    assert "No correction is needed" in words(healthy)
    few = opened("fix", "one_step", lab="none,truncate:token:1.01,mask:token:0.99:1.01")
    is_well(few)
    assert "helps most" not in words(few)


def test_a_correction_that_is_on_and_needs_rows_is_judged_as_in_the_terminal(
    opened: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mode = {"vllm_importance_sampling_mode": "sequence_truncate", "vllm_importance_sampling_clip_max": 2.0}
    run = uncorrected_run(tmp_path, vllm_importance_sampling_correction=True, **mode)
    before = opened("fix", run)
    assert "truncate sequence at 2 (own): not ranked" in plain(before)
    assert html(before).count("truncate sequence at 2") == 2, "in the table and the key, without its double"
    after = carried_out(before)
    is_well(after)
    assert cli.main(["corrections", str(run)]) == 0
    told = capsys.readouterr().out
    said = plain(after).split("\n")
    for sentence in (
        "The run's own truncate sequence at 2 clips 3.17% of the tokens and raises",
        "The gradient's squared error is 39.4% below",
    ):
        (line,) = (line for line in said if sentence in line)
        assert line in told


def test_drift_is_explained_and_total_is_enough(opened: Open) -> None:
    app = opened("fix", "stale", gap="drift")
    is_well(app)
    assert "Drift has no importance weights" in words(app) and not charts(app)
    shown = opened("distributions", "stale", gap="drift")
    assert "Drift has no importance weights" in words(shown) and {*fact_cards(shown)} == {"clipped share"}
    bypass = carried_out(opened("fix", "bypass", lab="truncate:token:1.05,veto:0.9,trl:token_mask"))
    is_well(bypass)
    assert "uses total" in html(bypass) and len(charts(bypass)) == 3


def test_without_token_rows_single_thresholds_work_and_joint_rules_say_why_not(opened: Open, runs: Path) -> None:
    app = opened("fix", "many_steps", **TRIED, lab="truncate:token:1.1,veto:0.5", steps="5:900")
    is_well(app)
    assert "none of the chosen 896 steps has token rows" in words(app).replace("\\", "")
    assert "only a single threshold can be computed from statistics" in html(app)
    assert number(fact_cards(app)["mean weight"]) > 0.9 and "carry_out" not in [button.key for button in app.button]


def test_what_a_preset_cannot_read_is_said_in_its_row(opened: Open) -> None:
    app = carried_out(opened("fix", "two_policies", lab="truncate:token:2,verl:bypass_pg_is,veto:1e-4"))
    is_well(app)
    assert "not available, because the batch has no 'current_logprobs'" in unescape(html(app))


@pytest.mark.parametrize("trainer", NAMES)
def test_every_correction_is_written_for_every_trainer_or_refused_with_the_reason(trainer: str) -> None:
    parts = [f"ours:{each.name.replace(' ', '-')}" for each in CORRECTIONS[1:]]
    parts += ["none", "truncate:token:2", "mask:sequence:0.5:5", "reject:geometric:0.999:1.001", "veto:0.0001"]
    parts += [f"{name}:{preset}" for name in NAMES for preset in dialect(name).PRESETS]
    for part in parts:
        text, notes = syntax(comparison_of(part).entries[0], "mismatch", trainer)
        assert (text is None and len(notes) == 1 and len(notes[0]) > 15) or (text is not None and text.strip())
        if part.startswith(f"{trainer}:"):
            assert text is not None


def test_the_configuration_is_shown_for_the_chosen_trainer(opened: Open) -> None:
    app = opened("fix", "stale", lab="truncate:token:1.5,reject:token:0.5:2", trainer="verl")
    assert "rollout_is_threshold: 1.5" in codes(app)[-1]
    app.segmented_control(key="trainer").set_value("trl").run()
    assert "vllm_importance_sampling_clip_max=1.5" in codes(app)[-1]
    app.selectbox(key="shown").set_value("reject:token:0.5:2").run()
    is_well(app)
    assert "trl cannot express reject token" in words(app).replace("\\", "")


@pytest.mark.parametrize(("asked", "name"), [("mask:token:0.5:5", "mask token"), ("no such", "truncate token at 2")])
def test_the_address_names_the_correction_to_show(opened: Open, asked: str, name: str) -> None:
    app = opened("fix", "stale", shown=asked)
    assert app.selectbox(key="shown").value in (asked, "truncate:token:2")
    assert re.search(rf"Weights before and after .{{0,20}}{name}", charts(app)[-1])


def test_ten_thousand_steps_are_thinned(opened: Open) -> None:
    app = opened("fix", "many_steps", **TRIED)
    app.select_slider(key="cap_at").set_value("1.1").run()
    is_well(app)
    assert all(len(spec) < 400_000 for spec in charts(app))
    assert "showing 300 means of 10,000 steps" in charts(app)[0] and not math.isnan(number(fact_cards(app)["bias"]))
