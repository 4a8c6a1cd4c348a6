"""The page Why: the answer first, then each likely cause with its proof, then what is open, ruled out and was read."""

import json
from pathlib import Path

import pytest
import streamlit as st
from support.edge_runs import RUNS, made
from support.frames import hostile_texts
from support.pages_open import Open, charts, codes, html, plain, well
from support.pages_read import Read

from ratioscope.app.blocks import Link
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.figures.html.cause import cause_card
from ratioscope.app.figures.html.reasons import reasons
from ratioscope.app.pages.diagnosis import record_lines
from ratioscope.app.presentation.cause_facts import change_parts, growth_facts
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.comparability import comparability
from ratioscope.ingest.analysis.diagnosis import ARGUMENTS, diagnosis_of
from ratioscope.ingest.analysis.growth import growth_of
from ratioscope.ingest.run import open_run


def test_the_page_waits_for_nobody_and_then_shows_the_answer_first(opened: Open, runs: Path) -> None:
    st.cache_resource.clear()
    app = opened("why", "stale")
    assert "diagnosis is being computed" in app.html[0].proto.body and not charts(app)
    diagnoses().answer_all()
    well(app.run())
    found = diagnosis_of(open_run(made(runs, "stale"))).diagnosis
    first = app.html[0].proto.body
    assert found.headline.removesuffix(".").replace("'", "&#x27;") in first
    assert "■ act" in first and "since step" in first and "being computed" not in html(app)


def test_each_cause_has_its_proof_its_remedy_and_a_picture_of_the_undoing(read: Read, runs: Path) -> None:
    app = read("why", "stale")
    result = diagnosis_of(open_run(made(runs, "stale")))
    shown = html(app).replace("&#x27;", "'")
    for item in result.diagnosis.likely:
        for text in (item.title[1:], item.proof, item.cause.remedy, item.cause.confirm, item.confidence):
            assert text in shown
        assert all(text in shown for text in item.cause.mistaken_for.values())
    assert "The rest is as small and as regular as rounding is" in plain(app)
    drawn = [json.loads(chart) for chart in charts(app)]
    assert len(drawn) == len(result.diagnosis.likely)
    share = result.diagnosis.likely[0].share
    assert share is not None
    marks = [trace for trace in drawn[0]["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in marks] == ["as recorded", "with the tokens of the newest weights only"]
    assert marks[0]["customdata"][-1].startswith("as recorded: ") and len(marks[0]["customdata"]) == len(
        share.over_steps
    )
    layout = drawn[0]["layout"]
    (behind,) = (mark["hovertext"] for mark in layout["annotations"] if mark["text"] == "?")
    assert "nats/token" in layout["title"]["subtitle"]["text"] and "N ≈" in behind and "no standard error" in behind


@pytest.mark.parametrize("name", [name for name in RUNS if name != "empty"])
def test_every_cause_of_every_run_is_likely_open_or_ruled_out_on_the_page(read: Read, runs: Path, name: str) -> None:
    app = read("why", name)
    result = diagnosis_of(open_run(made(runs, name)))
    found = result.diagnosis
    shown = html(app).replace("&#x27;", "'")
    for cause in [*(item.cause for item in found.excluded), *(item.cause for item in found.cannot_tell)]:
        assert cause.title[1:] in shown, cause.code
    arguments = result.to_record({fact for item in found.cannot_tell for fact in item.missing})
    code = "\n".join(codes(app))
    assert all(f"{name}=" in code for name in arguments)
    assert len(charts(app)) == sum(item.share is not None for item in found.likely)


def test_a_change_of_the_gap_has_its_words_and_its_parts(read: Read, runs: Path) -> None:
    app = read("why", "healthy")
    growth = growth_of(open_run(made(runs, "healthy")), "mismatch")
    shown = html(app).replace("&#x27;", "'")
    for name, words in growth_facts(growth):
        assert name in shown and words in shown
    for change in growth.changes:
        assert f"Parts of the change at step {change.course.onset}, by probability" in {
            each.value for each in app.subheader
        }
        assert all(cell in shown for row in change_parts(change) for cell in row)


def test_the_steps_that_were_read_lead_on(read: Read, runs: Path) -> None:
    app = read("why", "stale")
    steps = diagnosis_of(open_run(made(runs, "stale"))).steps
    labels = [button.label for button in app.button if str(button.key).startswith("read_")]
    assert labels == [str(step) for step in steps]
    assert app.button(key="worst_tokens").label == "tokens of step 14"


def test_a_range_of_steps_and_a_gap_have_a_diagnosis_of_their_own(read: Read, runs: Path) -> None:
    app = read("why", "stale", steps="4:8", gap="total")
    run = open_run(made(runs, "stale"))
    wanted = diagnosis_of(run, "total", [step for step in run.steps if 4 <= step <= 8])
    assert wanted.read in plain(app) and "of the chosen steps" in plain(app)
    assert "has no steps in this range" in read("why", "stale", steps="900:950").info[0].value


def test_a_gap_without_evidence_says_what_to_record(read: Read) -> None:
    app = read("why", "many_steps", steps="5:6")
    assert "No diagnosis" in app.info[0].value and "record them with a budget" in plain(app)


@pytest.mark.parametrize("name", ["stale", "healthy", "many_steps", "one_token"])
def test_the_first_tab_of_why_has_the_answers_of_the_others(read: Read, runs: Path, name: str) -> None:
    told = {
        button.key: button for button in read("why", name).button if button.value in (Link("where"), Link("staleness"))
    }
    assert {*told} >= {"to_weights", "to_settings"}
    for button in told.values():
        there = plain(read(button.value.page, name))
        words = button.label.partition("** ")[2].removesuffix(" ›")
        if button.key == "to_settings":
            compared = comparability(open_run(made(runs, name)).info)
            assert ("none on record differs" in words) == (
                all(each.state != "differs" for each in compared) and any(each.state != "unknown" for each in compared)
            )
            assert words.startswith("not known") == all(each.state == "unknown" for each in compared)
        else:
            first = words.removeprefix("not known, ").split(".")[0].split(":")[0]
            assert first in there.replace("**", ""), (button.key, words)


def test_a_gap_without_lags_beside_one_with_lags_has_its_answers(read: Read, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in range(6):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0]] * 4, old_logprobs=[[-1.1, -2.1]] * 4)
            collector.log(
                step=6 + step, rollout_logprobs=[[-1.0, -2.0]] * 4, current_logprobs=[[-1.1, -2.1]] * 4,
                rollout_versions=[step] * 4, trainer_version=1 + step,
            )  # fmt: skip
    for gap, words in (("mismatch", "no token with a known lag is on record"), ("total", "Every token has lag 1")):
        assert words in read("why", tmp_path / "run", gap=gap).button("to_weights").label


@pytest.mark.parametrize("path", ["overview", "alerts"])
def test_other_pages_say_the_same_answer(read: Read, runs: Path, path: str) -> None:
    app = read(path, "stale")
    answer = diagnosis_of(open_run(made(runs, "stale"))).diagnosis.headline.removesuffix(".")
    said = (html(app) + plain(app)).replace("&#x27;", "'")
    assert said.count(answer) == 1


def test_an_answer_that_contradicts_the_verdict_does_not_lead(read: Read) -> None:
    app = read("overview", "one_token")
    first = app.html[0].proto.body
    assert 'class="v"' in first and first.index("can be read, which is too few") > first.index("</small>")


def test_foreign_words_are_text() -> None:
    for text in hostile_texts():
        page = cause_card(text, text, 0.5, [("found", text)]) + reasons(("cause", "why"), [(text, text)])
        assert "<script" not in page and "<img" not in page and page.count("</td>") == 3


def test_the_lines_that_record_a_column_are_python() -> None:
    names = [part for names in ARGUMENTS.values() for part in names.split(" and ") if part not in ("step", "mask")]
    compile(record_lines(names), "lines", "exec")
