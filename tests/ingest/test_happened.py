"""What happened in a run: every kind is told, at its step; and each has its own shape on a chart."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs, run_folders
from support.frames import hostile_texts
from support.run_folders import FakeWriter, write_run_file

from ratioscope.app.figures.drawing import marks
from ratioscope.app.presentation.theme import DARK, LIGHT
from ratioscope.ingest.analysis.recorded_events import _missing, events_and_alerts, recorded_events
from ratioscope.ingest.analysis.run_settings import SettingDifference, differences, settings
from ratioscope.ingest.run import open_run

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=12, rows=6))


def _noted(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return frame.select("step", "event", "note", "kind").rows()


def test_what_writers_noted_keeps_its_words_and_first_rows_are_left_out(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS[:2]:
        writer.step(rows)
    for event in ("first_rows", "weight_sync", "my own word", "config_change"):
        writer.event(event, 12, "why")
    told = _noted(recorded_events(open_run(tmp_path / "run")))
    assert told == [
        (12, "weight_sync", "why", "sync"),
        (12, "my own word", "why", "event"),
        (12, "config_change", "why", "config"),
    ]


def test_a_resume_says_which_steps_it_writes_again_and_which_settings_changed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    first = FakeWriter(root, "r00000-host-1-aaaaaa").open()
    for rows in STEPS[:5]:
        first.step(rows)
    second = FakeWriter(root, "r00000-host-2-bbbbbb", attempt=1).open()
    for rows in STEPS[3:6]:
        second.step(rows)
    third = FakeWriter(root, "r00000-host-3-cccccc", attempt=2).open()
    third.step(STEPS[6])
    args = {"args": {"lr": 1e-5, "beta": 0.0, "kept": "x"}}
    changed = {"args": {"lr": 2e-5, "beta": 0.0, "kept": "x", "clip": [1, 2]}}
    attempts = [{"attempt": 0}, {"attempt": 1, "config": changed}, {"attempt": 2, "config": changed}]
    write_run_file(root, config=args, attempts=attempts)
    run = open_run(root)
    assert run.attempts == {0: 0, 1: 6, 2: 12}
    assert _noted(recorded_events(run)) == [
        (6, "resume", "attempt 1 begins; it writes steps 6 to 8 of attempt 0 again", "resume"),
        (6, "config change", "attempt 1: config.args.clip unset → [1, 2], config.args.lr 1e-05 → 2e-05", "config"),
        (12, "resume", "attempt 2 begins", "resume"),
    ]


def test_missing_steps_dropped_sequences_and_files_set_aside_are_told_at_their_steps(tmp_path: Path) -> None:
    root = tmp_path / "run"
    writer = FakeWriter(root).open()
    paths = [writer.step(rows) for rows in (*STEPS[:3], *STEPS[6:])]
    writer.drop(2, 3, 40, "the queue was full").drop(2, 1, 9, "the disk was full").drop(None, 5, 5, "unknown")
    (root / paths[1]).write_bytes(b"not parquet")
    run = open_run(root)
    run.tokens().collect()
    told = {
        kind: (step, event, note) for step, event, note, kind in _noted(recorded_events(run)) if kind == "set aside"
    }
    assert told["set aside"][0] == 2 and paths[1] in told["set aside"][2]
    gaps = [(step, event, note) for step, event, note, kind in _noted(recorded_events(run)) if kind == "gap"]
    assert gaps == [
        (2, "dropped", "4 sequences: the queue was full, the disk was full"),
        (5, "gap", "steps 5 to 11 are not on record"),
    ]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_gaps_lie_between_steps_on_record(found: set[int]) -> None:
    steps = sorted(found)
    for first, _, note, _ in _missing(steps):
        last = max(int(word) for word in note.split() if word.isdigit())
        assert first - 1 in found and last + 1 in found and not found & set(range(first, last + 1))


def test_evenly_spaced_steps_have_no_gap_and_a_hole_of_one_is_named() -> None:
    assert list(_missing(range(0, 100, 10))) == list(_missing([7])) == list(_missing([])) == []
    assert list(_missing([1, 2, 3, 5, 6])) == [(4, "gap", "step 4 is not on record", "gap")]


def test_alerts_are_among_what_happened(tmp_path: Path) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", real_runs.records("trl_vllm_stale4")))
    found = events_and_alerts(run)
    rang = found.events.filter(pl.col("kind").is_in(["watch", "act"]))
    assert len(rang) and "act alert" in rang["event"].to_list()
    assert rang["note"].str.contains("still open|steps? ").all()
    for note, alert in zip(rang["note"], found.alerts, strict=True):
        here, _, peak = note.partition("peak at step ")
        assert alert.first_reading in here and (peak.startswith(f"{alert.peak_step}: ") or "its peak" in here)
    assert found.events["step"].is_sorted() and rang["step"].to_list() == [alert.first_step for alert in found.alerts]


def test_settings_are_flat_and_differ_by_key() -> None:
    a = settings(
        {"trainer": "t", "config": {"x": {"y": 1, "z": None}, "l": [1, {"m": 2}]}, "name": "n", "created": 3.0}
    )
    assert a == {"trainer": "t", "config.x.y": "1", "config.l": '[1, {"m": 2}]'}
    assert differences(a, {**a, "config.x.y": "2"}) == (SettingDifference("config.x.y", "1", "2"),)
    assert differences(a, a) == () and differences({"k": "1"}, {})[0].words == "k 1 → unset"
    for odd in ({}, {"attempts": 3, "config": "text"}, {"attempts": [None, {"attempt": 1}], "versions": []}):
        assert isinstance(settings(odd, 1), dict)


def test_each_kind_has_a_shape_and_a_name_of_its_own_and_the_gravest_lends_its_shape() -> None:
    shapes = marks.KINDS.values()
    assert len({shape.symbol for shape in shapes}) == len({shape.glyph for shape in shapes}) == len(marks.KINDS)
    events = pl.DataFrame(
        [(step, kind, f"why {kind}", kind) for step, kind in enumerate(marks.KINDS)] + [(0, "sync", "late", "sync")],
        ["step", "event", "note", "kind"],
        orient="row",
    )
    for theme in (LIGHT, DARK):
        figure: Any = go.Figure()
        marks.add_events(figure, events, theme)
        (trace,) = figure.data
        assert list(trace.marker.symbol) == [shape.symbol for shape in shapes]
        assert trace.customdata[0].splitlines()[0].startswith("step 0: act why act<br>step 0: sync late")
        (legend,) = figure.layout.annotations
        assert all(shape.words in legend.text for shape in shapes) and "sync 2" in legend.text, "events, not marks"
        assert len(figure.layout.shapes) == len(marks.KINDS)


def test_many_syncs_leave_the_lines_to_what_is_grave() -> None:
    many = [(step, "weight_sync", "", "sync") for step in range(1000)] + [(500, "resume", "again", "resume")]
    figure: Any = go.Figure()
    marks.add_events(figure, pl.DataFrame(many, ["step", "event", "note", "kind"], orient="row"), LIGHT)
    assert [line.x0 for line in figure.layout.shapes] == [500] and len(figure.data[0].x) <= marks.SHOWN
    assert 500 in figure.data[0].x and "resume again" in figure.data[0].customdata[list(figure.data[0].x).index(500)]


def test_foreign_words_in_events_are_only_words() -> None:
    texts = hostile_texts()
    events = pl.DataFrame({"step": range(len(texts)), "event": texts, "note": texts, "kind": texts})
    figure: Any = go.Figure()
    marks.add_events(figure, events, LIGHT)
    assert set(figure.data[0].marker.symbol) == {marks.KINDS["event"].symbol}
    assert not any("<img" in words or "<script" in words for words in figure.data[0].customdata)
