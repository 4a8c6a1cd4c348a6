"""The first page: what is said before anything is drawn, and that a part of the run is said to be one."""

import json
import os
import re
import time
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs, run_folders
from support.pages_open import Open, plain
from support.pages_read import Read
from support.run_folders import FakeWriter

from ratioscope import Collector
from ratioscope.app.blocks import Chart
from ratioscope.app.dashboard.model.opened_runs import RUNS as RUNS_OPEN
from ratioscope.app.documents.material import read_view
from ratioscope.app.figures.html.cards import facts_line, metric_cards
from ratioscope.app.pages.health import collector_line, collector_state
from ratioscope.app.pages.overview import overview
from ratioscope.app.pages.scope import Scope
from ratioscope.app.presentation.metric_places import names_at
from ratioscope.app.presentation.run_state import age, state_of
from ratioscope.ingest.run import open_run
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.record import GAPS

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=4))


def test_the_verdict_comes_first_and_last_the_cards_and_a_collector_without_trouble(read: Read) -> None:
    shown = [part.proto.body for part in read("overview", "stale").html]
    assert "rs-verdict" in shown[0] and "since step" in shown[0] and "confidence" in shown[0]
    assert any("rs-cards" in each for each in shown[1:]), "below the worst samples, which a server reads"
    assert "rs-facts" in shown[-1] and "offered" in shown[-1] and "last commit" in shown[-1]


def test_each_statement_is_a_link_and_the_page_tells_one_onset(read: Read) -> None:
    app = read("overview", "stale")
    now, worst = (app.button(key=f"to_{name}").label.replace("\\", "") for name in ("now", "worst"))
    verdict = app.html[0].proto.body
    onset, peak = re.search(r"since step (\d+)", verdict), re.search(r"at step (\d+)", verdict)
    assert onset is not None and peak is not None
    assert f"act since step {onset[1]} " in now
    assert f"act at step {peak[1]} " in worst
    assert f"from step {onset[1]}" in app.button(key="newest_0").label
    assert "checks ran" in app.button(key="to_checks").label and "checks ran" not in verdict
    healthy = read("overview", "two_policies")
    assert "; not checked: total, drift" in healthy.button(key="to_checks").label.replace("\\", "")
    assert not [button for button in healthy.button if button.key in ("to_now", "to_worst")]


def test_alerts_lead_on_and_a_run_without_says_so(read: Read) -> None:
    assert "no alert in this run" in plain(read("overview", "healthy"))
    app = read("overview", "stale")
    assert "act" in app.button(key="newest_0").label
    assert re.fullmatch(r"\d+ alerts, \d+ open", app.button(key="all_alerts").label)


@pytest.mark.parametrize(
    "signal, metric", [("positive_logprobs", "positive_logprobs"), ("alignment", "shift_correlation_+1")]
)
def test_the_widest_chart_is_of_what_the_deciding_signal_reads(tmp_path: Path, signal: str, metric: str) -> None:
    draws = np.random.default_rng(4)
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(4):
            sampled = -draws.gamma(0.6, 0.7, (8, 40))
            trained = np.minimum(sampled + draws.normal(0, 0.02, (8, 40)), 0)
            if step > 1 and signal == "positive_logprobs":
                sampled[:, 3] = 0.4
            elif step > 1:
                trained = np.roll(sampled, 1, axis=1)
            collector.log(step=step, rollout_logprobs=sampled, old_logprobs=trained)
    scope = Scope(read_view(open_run(tmp_path / "run")), "mismatch")
    wide = next(block for block in overview(scope) if isinstance(block, Chart) and block.wide)
    assert scope.view.verdict().signal == signal
    assert wide.numbers is not None and f"mismatch/{metric}" in wide.numbers().columns
    assert wide.name == f"chart_{metric}"


def test_a_part_of_the_run_is_said_to_be_one(read: Read) -> None:
    assert "the whole run" not in plain(read("overview", "stale"))
    app = read("overview", "stale", steps="4:8")
    assert "The verdict and the alerts cover the whole run. Cards and charts show steps 4 to 8." in plain(app)
    assert "step 8" in next(part.proto.body for part in app.html if "rs-cards" in part.proto.body)
    app = read("overview", "long_response", only="replica=engine-1")
    assert "only tokens of engine replica engine-1" in plain(
        app
    ) and "The severity of steps is graded over all tokens" in plain(app)
    assert "The run has no tokens" in plain(read("overview", "stale", steps="900:950"))
    assert "The run has no tokens" in plain(read("overview", "stale", only="replica=nowhere"))


def test_first_charts_are_charts_of_the_gap() -> None:
    for gap in GAPS:
        names = names_at("first", gap)
        assert set(names) <= set(names_at("chart", gap)) and len(set(names)) == 4


def test_the_collector_line_tells_drops_states_and_losses(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run", clock=time.time()).open()
    for rows in STEPS[:3]:
        writer.step(rows)
    run = open_run(tmp_path / "run")
    state = state_of(run.path)
    assert collector_state(run, state) == "live (1 writer)" and "●" in collector_line(run, state)
    writer.say(kind="event", event="state", state="degraded", step=5, note="the disk is full")
    writer.drop(5, 2, 30, "the disk is full")
    run.refresh()
    assert collector_state(run, state) == "live (1 writer), degraded"
    line = collector_line(run, state)
    assert "dropped <b>2</b>" in line and "■" in line
    writer.close()
    run.refresh()
    assert collector_state(run, state_of(run.path)) == "ended (1 writer)"


def test_facts_are_escaped() -> None:
    line = facts_line("watch", [("<b>name", "<img src=x>")])
    assert "<img" not in line and "<b>name" not in line and "▲" in line


@given(st.floats(-1e9, 1e12))
def test_ages_have_one_unit_and_never_grow_when_rounded(seconds: float) -> None:
    number, unit = age(seconds).split()
    size = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}[unit.rstrip("s")]
    told = int(number.replace(",", "")) * size
    assert told <= max(1.0, seconds) < told + size or seconds < 1
    assert (number == "1") == (not unit.endswith("s")) and time.time() > 0


@given(st.lists(st.one_of(st.none(), st.floats(), st.just(0.0)), max_size=200))
def test_every_course_is_a_drawing_of_plain_numbers(values: list[float | None]) -> None:
    frame = pl.DataFrame(
        {"step": range(len(values)), "mismatch/kl_k3": values, "mismatch/kl_k3_se": values},
        schema={"step": pl.Int64, "mismatch/kl_k3": pl.Float64, "mismatch/kl_k3_se": pl.Float64},
    )
    with np.errstate(all="ignore"):
        page = metric_cards(frame, [BY_NAME["kl_k3"]], "mismatch")
    assert (
        "nan" not in page.split("data:image")[1].split('"')[0]
        and "inf" not in page.split("data:image")[1].split('"')[0]
    )


def test_health_tells_the_recording_as_overview_does_and_one_reason_once(opened: Open) -> None:
    on_overview = opened("overview", "two_policies").html[-1].proto.body
    health = opened("record", "two_policies")
    assert re.sub(r"\d+ \w+ ago", "", health.html[0].proto.body) == re.sub(r"\d+ \w+ ago", "", on_overview)
    listed = next(part.proto.body for part in health.html if 'data-h="which"' in part.proto.body)
    reasons, which = (re.findall(f'data-h="{name}">([^<]*)<', listed) for name in ("reason", "which"))
    unavailable = open_run(json.loads(os.environ[RUNS_OPEN])[0]).unavailable
    sizes = Counter(unavailable.values())
    spoken = {each.lower().removeprefix("because "): each for each in sizes}
    named = {reason: spoken[reason.lower()] for reason in map(unescape, reasons)}
    assert len(reasons) == len(set(reasons)) == len(sizes)
    assert [sizes[named[reason]] for reason in named] == sorted(sizes.values(), reverse=True)
    for reason, names in zip(named.values(), which, strict=True):
        metrics = [metric.split("/") for metric, why in unavailable.items() if why == reason]
        assert all(f"{gap}: " in names for gap, _ in metrics)
        assert len(metrics) > 8 or all(BY_NAME[name].title in unescape(names) for _, name in metrics)
