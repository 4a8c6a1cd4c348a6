"""The page Alerts: what rings on which run, what would ring under other rules, and the way from an alert to its steps."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
import streamlit as st
from support.edge_runs import made
from support.frames import hostile_texts, notes, traces
from support.pages_open import Open, charts, codes, html, plain
from support.pages_read import Read

from ratioscope.app.dashboard.model.view import view
from ratioscope.app.dashboard.panels import widgets
from ratioscope.app.figures.alert_lanes import BARS, alert_lanes
from ratioscope.app.pages import alerts
from ratioscope.app.pages.alerts import moved, open_alerts, rules_table, rules_toml
from ratioscope.app.presentation.alert_words import foremost, in_order, rows_of
from ratioscope.app.presentation.theme import DARK, LIGHT, NARROW
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.acknowledgements import Acknowledgement
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.run import open_run
from ratioscope.metrics.grading.alerts import RULES, Alert, Rules, alert_frame
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.run_rules import run_rules
from ratioscope.metrics.grading.signals import SIGNALS


def test_a_healthy_run_has_no_alert_and_a_stale_one_rings(read: Read) -> None:
    healthy = read("alerts", "healthy")
    assert "● no alert" in plain(healthy)
    units = {
        signal: unit
        for unit, signal in re.findall('data-h="unit">([^<]*)</td><td data-h="signal">([^<]*)<', html(healthy))
    }
    assert units["mean_weight"] == "standard errors" and units["kl_k3"] == "nats/token" and units["share_outside"] == ""
    app = read("alerts", "stale")
    assert "at ■ act" in plain(app)
    rows = app.dataframe[0].value
    is_open = rows["state"] == "open"
    assert is_open.is_monotonic_decreasing and is_open.any()
    assert rows["severity"][0] == "■ act" and "mismatch, total" in set(rows["gaps"])
    assert not rows.duplicated(["signal"]).any(), "what rang in both gaps is told once"
    assert set(read("alerts", "stale", of="this gap", gap="total").dataframe[0].value["gaps"]) == {"total"}


def test_the_lanes_stand_in_the_order_of_the_table(opened: Open) -> None:
    app = opened("alerts", "stale")
    layout = json.loads(charts(app)[0])["layout"]
    above = sorted((each["y"], each["text"]) for each in layout["annotations"] if each.get("yref") == "y")
    lanes = [re.sub(r"<[^>]*>", "", text) for _, text in above]
    rows = app.dataframe[0].value
    titles = list(dict.fromkeys(zip(rows["alert"], rows["gaps"], strict=True)))
    assert len(lanes) > 2 and [lane.split(" · ")[0] for lane in lanes] == [title for title, _ in titles]


def test_a_range_of_steps_is_graded_as_if_the_run_began_and_ended_there(read: Read) -> None:
    whole, part = (
        read("alerts", "stale").dataframe[0].value,
        read("alerts", "stale", steps="4:16").dataframe[0].value,
    )
    assert part["peak step"].between(4, 16).all() and len(part) <= len(whole)
    assert "The run has none of the chosen steps" in plain(read("alerts", "stale", steps="900:950"))


def test_moved_rules_stand_in_the_link_and_say_what_would_have_rung(opened: Open) -> None:
    app = opened("alerts", "stale", moved="kl_k3", watch_kl_k3="50")
    assert "With these rules" in plain(app)
    assert app.number_input(key="watch_kl_k3").value == 50
    assert "kl_k3" not in set(app.dataframe[0].value["signal"])
    strict = opened("alerts", "stale", open_after="500")
    assert "With these rules: No alert, although step 14 is graded ■ act" in plain(strict)
    assert "With the default rules" in plain(strict)
    strict.button(key="as_is").click().run()
    assert "With these rules" not in plain(strict) and strict.number_input(key="open_after").value == RULES.open_after


def test_rules_out_of_reason_in_a_link_are_the_rules_in_force(opened: Open) -> None:
    for query in ({"open_after": "-3"}, {"hysteresis": "7"}, {"close_after": "x"}, {"moved": "<script>"}):
        assert "With these rules" not in plain(opened("alerts", "stale", **query))


def test_the_rules_are_a_table_and_toml_that_reads_back(opened: Open) -> None:
    app = opened("alerts", "stale", rules="true")
    code = next(part for part in codes(app) if "[signals." in part)
    read = tomllib.loads(code)
    assert run_rules(read, (), "file").changes == ()
    assert {name: one["watch"] for name, one in read["signals"].items()} == {s.name: s.watch for s in SIGNALS}
    assert {name: one.get("act") for name, one in read["signals"].items()} == {s.name: s.act for s in SIGNALS}
    assert rules_table(RULES)["signal"].to_list() == [signal.name for signal in SIGNALS]
    odd = replace(SIGNALS[0], watch=1e-300, act=1e22)
    assert tomllib.loads(rules_toml(Rules(signals=(odd,))))["signals"][odd.name] == {
        "watch": 1e-300,
        "act": 1e22,
    }


def test_a_run_with_rules_of_its_own_says_so_and_tries_from_them(opened: Open, runs: Path) -> None:
    muted = runs / "muted"
    shutil.copytree(made(runs, "stale"), muted)
    (muted / "ratioscope.toml").write_text(
        '[signals.kl_k3]\nmute = true\nreason = "<b>known</b>"\n[signals.share_outside]\nwatch = 0.5\nact = 0.9'
    )
    app = opened("alerts", "muted", rules="true")
    warned = app.warning[0].value
    assert "<b>" not in warned and "kl\\_k3 is muted" in warned
    assert "ratioscope.toml changes the rules" in warned.replace("\\", "")
    assert "signal share_outside: watch from 0.5, act from 0.9" in warned.replace("\\", "")
    assert "kl_k3" not in set(app.dataframe[0].value["signal"])
    assert "With these rules" not in plain(app)
    strict = opened("alerts", "muted", open_after="500")
    assert "With the rules of ratioscope.toml" in plain(strict)


def test_moving_a_threshold_moves_that_signal_alone_and_act_is_never_below_watch() -> None:
    found = moved(SIGNALS, "kl_k3", 0.5, 0.1)
    own = next(signal for signal in found if signal.name == "kl_k3")
    assert (own.watch, own.act) == (0.5, 0.5)
    assert [one for one in found if one is not own] == [one for one in SIGNALS if one.name != "kl_k3"]


def test_an_acknowledged_alert_is_so_for_everybody_and_not_counted(
    opened: Open, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(made(runs, "stale"), tmp_path / "seen")
    with _first_row_clicked(monkeypatch):
        app = opened("alerts", run)
        assert "**Try:**" in plain(app)
        before = open_alerts(view(str(run)))
        app.button(key="acknowledge").click().run()
        assert "open, acknowledged" in set(app.dataframe[0].value["state"])
    again = opened("alerts", run)
    first = again.dataframe[0].value
    assert list(first["state"]).count("open, acknowledged") == 1 and first["state"][0] == "open", "others wait first"
    assert open_alerts(view(str(run))) == before - 1
    assert "acknowledged" not in set(view(str(run)).events()["event"]), "no chart marks it"


def test_what_waits_for_somebody_comes_first_then_the_worst_then_the_newest(runs: Path) -> None:
    one = events_and_alerts(open_run(made(runs, "stale"))).alerts[0]

    def alert(first: int, grade: Severity, *, over: bool = False) -> Alert:
        return replace(
            one, first_step=first, last_step=first + 2, severity=grade, closed_at=first + 8 if over else None
        )

    watch, act = Severity.WATCH, Severity.ACT
    unordered = [alert(90, act, over=True), alert(10, watch), alert(20, act), alert(30, act), alert(40, act)]
    seen = Acknowledgement(one.signal.name, 40, "act", 1, True)
    ordered = in_order(unordered, (seen,))
    assert [each.first_step for each in ordered] == [30, 20, 10, 40, 90]
    rows = rows_of(ordered, (seen,))
    assert rows["state"].to_list() == ["open"] * 3 + ["open, acknowledged", "over"]
    assert rows["steps"].to_list()[-1] == "90 to 92" and rows["steps"][0] == "from 30"


def test_the_first_page_lists_one_alert_of_a_signal_that_of_the_verdict_first(runs: Path) -> None:
    found = open_run(made(runs, "stale"))
    known, verdict = events_and_alerts(found).alerts, verdict_of(found)
    again = [replace(alert, gap="total", also=(), first_step=alert.first_step + 90) for alert in known]
    listed_first = foremost([*again, *known], verdict, "mismatch")
    assert listed_first[0].signal.name == verdict.signal and listed_first[0].first_step == verdict.since_step
    assert len(listed_first) == len({alert.signal.name for alert in known}) > 1


def test_a_run_that_cannot_be_written_says_so(
    opened: Open, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(made(runs, "stale"), tmp_path / "kept")

    def refuse(*_: object) -> None:
        raise SourceError("kept cannot be written: Read-only file system")

    monkeypatch.setattr(alerts, "write_remark", refuse)
    with _first_row_clicked(monkeypatch):
        app = opened("alerts", run)
        app.button(key="acknowledge").click().run()
        assert "Not acknowledged: kept cannot be written: Read-only file system" in plain(app)
    assert "acknowledged" not in " ".join(app.dataframe[0].value["state"])


@contextmanager
def _first_row_clicked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first row of the table is clicked, which AppTest cannot do."""
    with monkeypatch.context() as patch:
        patch.setattr(widgets, "clicked_row", lambda table, rows: 0)
        yield


def _frame(count: int, signal: str = "kl_k3", reading: str = "r") -> pl.DataFrame:
    rows = [
        ("act", signal, "mismatch", 10 * at, 10 * at + at % 9, None, 3, 10 * at, 0.5, reading) for at in range(count)
    ]
    return pl.DataFrame(rows, schema=alert_frame(()).schema, orient="row")


def lane_titles(figure: Any) -> list[str]:
    """The words above the lanes, without their colours."""
    words = [text.text for text in figure.layout.annotations if text.yref == "y"]
    return [re.sub(r'<span style="color:#\w+">|</span>', "", text) for text in words]


def _bars(figure: go.Figure) -> Any:
    return next(trace for trace in traces(figure) if trace.name == "alerts")


def test_the_timeline_has_a_lane_per_signal_and_gap_and_says_what_it_leaves_out() -> None:
    steps = np.arange(0, 6000.0)
    for theme in (LIGHT, DARK):
        figure: Any = alert_lanes(_frame(600), steps, [()] * 600, theme=theme)
        bars = _bars(figure)
        assert len(bars.x) == BARS and "showing the 400 longest of N = 600" in notes(figure)
        assert lane_titles(figure) == ["engine and trainer disagree on the same tokens · mismatch · kl_k3"]
        assert min(bars.x) >= 1
    narrow = alert_lanes(_frame(1), steps, [()], theme=NARROW["light"])
    assert lane_titles(narrow) == ["engine and trainer disagree on the same tokens · mismatch"], (
        "what fits on a telephone"
    )
    assert isinstance(alert_lanes(_frame(0), steps, []), go.Figure)
    assert len(_bars(alert_lanes(_frame(1), np.array([5.0, 5.0]), [()])).x) == 1


def test_a_bar_is_pale_where_the_signal_was_in_its_bounds() -> None:
    frame = _frame(1).with_columns(last_step=pl.lit(1000))
    watch, act = Severity.WATCH, Severity.ACT
    stretches = [(0, 99, watch), (100, 100, watch), (102, 300, watch), (301, 310, act), (900, 1000, act)]
    figure = alert_lanes(frame, np.array([0.0, 2000.0]), [stretches])
    solid, pale = (
        next(trace for trace in traces(figure) if trace.name == name) for name in ("out of bounds", "lasted")
    )
    near = [(-0.5, 301.0), (300.5, 10.0), (899.5, 101.0)]  # of one grade: joined
    assert list(zip(solid.base, solid.x, strict=True)) == near
    assert list(solid.marker.color) == [LIGHT.severity[grade] for grade in ("watch", "act", "act")]
    assert list(zip(pale.base, pale.x, strict=True)) == [(-0.5, 1001.0)] and "rgba" in pale.marker.color[0]
    short = alert_lanes(_frame(1), np.array([0.0, 9999.0]), [[(0, 1, watch)]])
    widths = [next(trace for trace in traces(short) if trace.name == name).x[0] for name in ("out of bounds", "alerts")]
    assert widths[0] == widths[1] > 40, "a bar too short for its parts is solid as a whole"


def test_foreign_words_in_alerts_are_only_plain() -> None:
    for text in hostile_texts():
        figure: Any = alert_lanes(_frame(1, text, text), np.array([0.0, 10.0]), [()])
        told = _bars(figure).customdata[0][0] + lane_titles(figure)[0]
        assert not any(tag in told.replace("<br>", "").replace("<i>", "").replace("</i>", "") for tag in ("<", "%{"))


def test_no_alert_page_reads_token_rows(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from ratioscope.ingest.run import Run

    st.cache_resource.clear()
    for name in ("sequences", "sequence", "tokens", "records"):
        monkeypatch.setattr(Run, name, None)
    assert "alert" in plain(opened("alerts", "stale"))


def test_a_run_without_an_alert_has_no_empty_chart_of_them(read: Read) -> None:
    app = read("alerts", "one_step")
    assert not charts(app) and "no alert" in plain(app) and "10 checks passed" in plain(app)


def test_the_table_of_alerts_fits_into_a_window_of_1440_pixels(opened: Open) -> None:
    shown = opened("alerts", "stale").dataframe[0].proto
    widths = {name: told["width"] for name, told in json.loads(shown.columns).items() if told.get("width")}
    state = 75
    assert list(shown.column_order) == list(alerts.COLUMNS) and set(alerts.COLUMNS) - set(widths) == {"state"}
    assert sum(widths.values()) + state <= 1300
