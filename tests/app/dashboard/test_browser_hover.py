"""What a chart tells under the pointer in a real browser: the events of a step at that step, in a label that is not cut off."""

from pathlib import Path
from typing import Any

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium, is_well
from support.run_folders import FakeWriter
from support.statistics_runs import write_statistics_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
SYNC = "the engine samples with the weights after 50 updates"
CHART = ".st-key-chart_kl_k3 .rs-chart"
PLACE = f"""step => {{
  const chart = document.querySelector("{CHART}"), {{ xaxis, yaxis }} = chart._fullLayout;
  const box = chart.getBoundingClientRect();
  return [box.left + xaxis._offset + xaxis.d2p(step), box.top + yaxis._offset + yaxis._length / 2];
}}"""
LABEL = f"""() => {{
  const label = document.querySelector("{CHART} .hoverlayer .legend");
  if (!label) return null;
  const box = label.getBoundingClientRect(), chart = document.querySelector("{CHART}").getBoundingClientRect();
  return {{
    text: [...label.querySelectorAll("text")].map(text => text.textContent).join("\\n"),
    room: [box.left - chart.left, chart.right - box.right, box.top - chart.top, chart.bottom - box.bottom],
  }};
}}"""

MARKS = f"""() => {{
  const chart = document.querySelector("{CHART}"), {{ uid, customdata }} = chart._fullData.find(trace => trace.name === "events");
  return [chart.querySelectorAll(`.trace${{uid}} .point`).length, customdata.length];
}}"""

BEGINS = """() => [...document.querySelectorAll(".rs-chart .hoverlayer .hovertext tspan.line")].map(
  line => line.getBoundingClientRect().left)"""


def synced(runs: Path) -> Path:
    path = write_statistics_run(runs / "synced", 60, size=0.05, rise=1.2)
    FakeWriter(path, "r00001-host-2-bbbbbb").open().event("weight_sync", 51, SYNC).close()
    return path


SERVED = (synced,)


@pytest.mark.parametrize("width", [1280, 420])
def test_an_event_is_told_at_its_own_step_in_a_label_within_the_chart(
    dashboard: Dashboard, browser: Chromium, width: int
) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=synced", width=width)
    opened.page.locator(CHART).scroll_into_view_if_needed()
    opened.settled()
    labels = {step: _label(opened, step) for step in range(60)}
    assert [step for step, label in labels.items() if "weight_sync" in label["text"]] == [51]
    assert all(label["text"].startswith(f"step {step}\n") for step, label in labels.items())
    quiet = {step: label["text"].count("\n") for step, label in labels.items() if f"step {step}:" not in label["text"]}
    assert len(quiet) > 50 and set(quiet.values()) == {2}, "beside the step its value and severity, and nothing else"
    assert all(min(label["room"]) >= 0 for label in labels.values()), {
        s: v for s, v in labels.items() if min(v["room"]) < 0
    }
    rang = {step: label["text"] for step, label in labels.items() if " alert " in label["text"]}
    assert rang and all("peak" in text for text in rang.values())
    drawn, marks = opened.page.evaluate(MARKS)
    assert drawn == marks > 1, "the silent points beside the marks are no elements of the page"
    is_well(opened)


def test_the_mode_bar_covers_neither_the_definition_nor_the_newest_steps(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/charts?run=synced")
    page = opened.page
    page.locator(".rs-chart").first.hover()
    page.locator(".rs-chart .modebar-btn").first.wait_for()
    parts = (".modebar", ".nsewdrag", ".annotation")
    bar, plot, mark = (page.locator(f".rs-chart {part}").first.bounding_box() for part in parts)
    assert bar and plot and mark
    assert page.locator(".rs-chart .annotation").first.text_content() == "?"
    assert bar["y"] + bar["height"] <= min(plot["y"], mark["y"])
    page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    page.locator(".rs-chart .hoverlayer").get_by_text("exp(x)").first.wait_for()
    begins = page.evaluate(BEGINS)
    assert len(begins) > 5 and max(begins) - min(begins) < 3, "its lines are flush left"
    is_well(opened)


def test_a_key_pressed_after_a_click_frames_the_page_for_nobody(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/charts?run=synced")
    page = opened.page
    frame = "() => getComputedStyle(document.querySelector('[data-testid=stMain]'), '::before').content"
    page.locator("[data-testid=stMain]").focus()
    page.keyboard.press("Shift")
    page.wait_for_function("() => document.querySelector('[data-testid=stMain]').matches(':focus-visible')")
    assert page.evaluate(frame) != "none", "who comes by keyboard sees where the focus is"
    page.mouse.click(1250, 500)
    page.keyboard.press("x")
    assert page.evaluate("document.activeElement.dataset.testid") == "stMain" and page.evaluate(frame) == "none"
    is_well(opened)


CUT_OFF = """() => [...document.querySelectorAll('.rs-chart')].filter(chart => {
  const label = chart.querySelector('.hoverlayer .hovertext')?.getBoundingClientRect(), sheet = chart.getBoundingClientRect()
  return label && (label.left < sheet.left || label.right > sheet.right || label.top < sheet.top || label.bottom > sheet.bottom)
}).map(chart => chart.textContent)"""
"""Charts whose label does not lie within them whole."""


def _label(opened: Opened, step: int) -> Any:
    """The text of the label under a pointer at this step, and how far its edges lie within the chart's."""
    page = opened.page
    page.locator(CHART).scroll_into_view_if_needed()
    page.mouse.move(*page.evaluate(PLACE, step))
    page.wait_for_function(f"""step => ({LABEL})()?.text.startsWith(`step ${{step}}\\n`)""", arg=step)
    return page.evaluate(LABEL)


def test_the_definition_of_a_metric_is_reached_by_pointer_and_keyboard_and_nothing_covers_it(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/charts?run=synced")
    page = opened.page
    chart = page.locator(".st-key-main_kl_k3 .rs-chart")
    mark = chart.locator(".annotation [role=note]")
    assert "exp(" in (mark.get_attribute("aria-label") or "") and mark.count() == 1
    chart.hover()
    boxes = [chart.locator(part).first.bounding_box() for part in (".annotation [role=note]", ".nsewdrag", ".modebar")]
    question, plot, buttons = (box for box in boxes if box is not None)
    for covered in (question, plot):
        assert buttons["y"] + buttons["height"] <= covered["y"], "the buttons lie above"
    mark.focus()
    chart.locator(".hoverlayer .hovertext").wait_for()
    page.keyboard.press("Tab")
    chart.locator(".hoverlayer .hovertext").wait_for(state="detached")
    opened.go_to("Overview")
    assert page.locator(".st-key-chart_kl_k3 .annotation [role=note]").count() == 1
    opened.drawn_whole()
    marks = page.locator(".rs-chart .annotation [role=note]")
    assert marks.count() == page.locator(".rs-chart").count() > 3, "each chart says how it was made"
    for mark in marks.all():
        mark.focus()
        page.locator(".rs-chart .hoverlayer .hovertext").wait_for()
        assert page.evaluate(CUT_OFF) == []
        mark.blur()
        page.locator(".rs-chart .hoverlayer .hovertext").wait_for(state="detached")
    is_well(opened)
