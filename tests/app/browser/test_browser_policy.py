"""What pages, exported charts and reports offer and allow in a real browser: nothing leaves them, no foreign script runs."""

from pathlib import Path

import pytest
from playwright.sync_api import Page
from support.browser import Chromium, Dashboard, chromium, is_well
from support.edge_runs import made
from support.site import report_of

from ratioscope import open_run
from ratioscope.app.dashboard.model.export import html_of
from ratioscope.app.figures.over_steps import metric_over_steps
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.metrics.definitions.registry import BY_NAME

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
OFFERED = {"Download plot as a PNG", "Download plot", "Download picture", "Zoom", "Pan", "Reset axes", "Full screen"}
TITLES = "[...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)"
ATTEMPTS = """async () => {
  const refused = [];
  document.addEventListener("securitypolicyviolation", event => refused.push(event.effectiveDirective));
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.body.append(script);
  const place = document.createElement("div");
  place.innerHTML = "<img src='data:,' onerror='window.ran = true'><iframe src='http://127.0.0.1:9/'></iframe>";
  document.body.append(place);
  const form = Object.assign(document.createElement("form"), { action: "http://127.0.0.1:9/", method: "post" });
  document.body.append(form);
  form.submit();
  const sent = await fetch("http://127.0.0.1:9/", { method: "POST", mode: "no-cors", body: "chart" }).catch(() => null);
  await new Promise(resolve => setTimeout(resolve, 300));
  return { ran: window.ran ?? null, sent: sent !== null, refused: [...new Set(refused)].sort() };
}"""
REFUSED = ["connect-src", "form-action", "frame-src", "script-src-attr", "script-src-elem"]


def test_no_button_of_a_chart_sends_it_away(dashboard: Dashboard, browser: Chromium, files: list[Page]) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    shown = [set(opened.page.evaluate(TITLES))]
    opened.go_to("Charts")
    shown.append(set(opened.page.evaluate(TITLES)))
    is_well(opened)
    for page in files:
        # a report draws a chart once it is near the window
        page.locator("[data-figure]:visible, .js-plotly-plot").first.scroll_into_view_if_needed()
        page.wait_for_selector(".modebar-btn", state="attached")
        shown.append(set(page.evaluate(TITLES)))
    for titles in shown:
        assert titles and titles <= OFFERED
    assert all("Zoom" in titles for titles in shown[1:])


def test_no_script_of_others_runs_and_nothing_is_sent(
    dashboard: Dashboard, browser: Chromium, files: list[Page]
) -> None:
    pages = [browser.visit(f"{dashboard.url}/tokens?run=stale").page, *files]
    for page in pages:
        found = page.evaluate(ATTEMPTS)
        assert found == {"ran": None, "sent": False, "refused": REFUSED}


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A report and a page of charts."""
    folder, run = tmp_path_factory.mktemp("written"), open_run(made(runs, "stale"))
    figure = metric_over_steps(run.metrics(), BY_NAME["kl_k3"], "mismatch")
    (report := folder / "report.html").write_text(report_of(runs, "stale", interactive=True), encoding="utf-8")
    (charts := folder / "charts.html").write_bytes(html_of("stale", [("kl_k3", figure)], LIGHT))
    return [report, charts]


@pytest.fixture
def files(browser: Chromium, written: list[Path]) -> list[Page]:
    """Each of them opened from its file."""
    return [browser.file(path) for path in written]
