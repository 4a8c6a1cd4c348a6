"""Windows as narrow as a telephone's: the notes under the titles of charts are broken where the sheet ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.browser import Chromium, Dashboard, chromium, is_well
from support.pages_open import Open, charts, well
from support.tour import notes_outside

from ratioscope.app.figures.drawing.canvas import _TAG, _wrapped, canvas
from ratioscope.app.presentation.escape import plotly as escaped
from ratioscope.app.presentation.theme import DARK, LIGHT, NARROW

NOTES = "() => [...document.querySelectorAll('.rs-chart')].map(chart => chart._fullLayout?.title.subtitle.text).join()"
"""What stands under the titles of the charts, broken into lines for the width they were drawn for."""
browsed = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")


@given(st.lists(st.text(st.characters(exclude_characters="\x00"), min_size=1, max_size=20)), st.integers(8, 70))
def test_a_line_is_broken_between_words_and_nothing_is_lost(words: list[str], columns: int) -> None:
    line = " ".join(f'<span style="color:#123456">●</span> {escaped(word)}' for word in words)
    found = _wrapped(line, columns)
    assert " ".join(found).split() == line.split()
    assert all(part.count("<") == part.count(">") for part in found)


def test_a_narrow_sheet_is_as_much_taller_as_its_notes_and_a_wide_one_is_as_ever() -> None:
    notes = ("nats/token", "every unmasked token of finite log-ratio counts once", "N = 203 tokens a step, of 60 steps")
    for wide in (LIGHT, DARK):
        narrow = NARROW[wide.name]
        one, other = (canvas("title", notes, theme=theme, height=300).to_dict()["layout"] for theme in (wide, narrow))
        lines = [layout["title"]["subtitle"]["text"].count("<br>") for layout in (one, other)]
        plots = [layout["height"] - layout["margin"]["t"] for layout in (one, other)]
        assert lines[1] >= lines[0] and plots[1] >= plots[0] and one["template"] is not other["template"]
        long = canvas("title", [" ".join(["words"] * 40)], theme=wide, height=300).to_dict()["layout"]
        assert "<br>" not in long["title"]["subtitle"]["text"] and long["height"] == 300


@pytest.mark.parametrize("page", ["overview", "charts", "distributions", "fix"])
def test_the_pages_are_drawn_for_a_narrow_window_once_it_is_told(opened: Open, page: str) -> None:
    app = opened(page, "stale")
    wide = charts(app)
    app.session_state["_narrow"] = True
    app.run()
    assert not app.exception and len(charts(app)) == len(wide)
    for chart in charts(app):
        told = json.loads(chart)["layout"]["title"].get("subtitle", {}).get("text", "")
        assert all(len(_TAG.sub("", line)) <= LIGHT.columns for line in told.split("<br>"))


@browsed
def test_no_note_of_two_runs_runs_out_of_its_sheet(dashboard: Dashboard, browser: Chromium) -> None:
    """The notes of the pages with their usual choices are seen in test_browser_every_page.py."""
    opened = browser.visit(f"{dashboard.url}/charts?groups=main&with=healthy&run=stale", width=400)
    assert notes_outside(opened) == []
    is_well(opened)


@browsed
def test_a_page_is_drawn_anew_when_its_window_becomes_narrow_and_not_otherwise(
    dashboard: Dashboard, browser: Chromium
) -> None:
    tall = 3000  # every chart is near the screen, and so drawn
    opened = browser.visit(f"{dashboard.url}/?run=stale", height=tall)
    asked, wide = opened.page.evaluate("runsAsked()"), opened.page.evaluate(NOTES)
    opened.resize(900, tall)
    opened.page.wait_for_timeout(1500)
    assert opened.page.evaluate("runsAsked()") == asked and opened.page.evaluate(NOTES) == wide
    for width, number, is_wide in ((400, 1, False), (900, 2, True)):
        opened.resize(width, tall)
        opened.page.wait_for_function(
            f"([wide, isWide]) => ({NOTES})() && (({NOTES})() === wide) === isWide", arg=[wide, is_wide]
        )
        opened.settled()
        opened.page.wait_for_timeout(1500)
        assert opened.page.evaluate("runsAsked()") == asked + number, "told once of each change"
    is_well(opened)


def test_a_narrow_window_shows_first_how_each_writer_ended_and_what_it_lost(opened: Open) -> None:
    app = opened("record", ["stale"])
    app.session_state["_narrow"] = True
    writers = well(app.run()).dataframe[0]
    assert list(writers.proto.column_order)[:4] == ["writer", "state", "lost", "dropped"]
