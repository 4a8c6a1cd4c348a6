"""axe-core finds no serious violation on any page of the dashboard, in the report and in the pages as files, in both themes."""

from pathlib import Path
from typing import Literal

import pytest
from support.axe import grave
from support.browser import Chromium, Dashboard, chromium
from support.edge_runs import made

from ratioscope.app.dashboard.pages import PAGES
from ratioscope.app.report.data import report_data
from ratioscope.app.report.html import html_report
from ratioscope.app.static_site.document import one_file
from ratioscope.app.static_site.material import material
from ratioscope.ingest.run import open_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: tests/support/install_chromium.sh")
OPEN_ALL = "for (const e of document.querySelectorAll('details')) e.open = true"
SHOW_ALL = "for (const e of document.querySelectorAll('section.page')) e.hidden = false"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_of_the_dashboard_has_a_serious_violation(
    dashboard: Dashboard, browser: Chromium, theme: Literal["light", "dark"]
) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale", theme=theme)
    for card in PAGES:
        opened.go_to(card.title)
        assert grave(opened.page) == [], card.title


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report in its two forms, and all pages in one file."""
    folder, run = tmp_path_factory.mktemp("written"), open_run(made(runs, "stale"))
    data = report_data(run)
    texts = {
        "report": html_report(data),
        "live": html_report(data, interactive=True),
        "pages": one_file(material(run)),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return [folder / f"{name}.html" for name in texts]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_file_has_a_serious_violation(
    written: list[Path], browser: Chromium, theme: Literal["light", "dark"]
) -> None:
    for path in written:
        page = browser.file(path, theme=theme)
        page.evaluate(OPEN_ALL)
        page.evaluate(SHOW_ALL)
        assert grave(page) == [], path.name


@pytest.mark.parametrize(
    ("html", "rule"),
    [
        ("<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>", "image-alt"),
        ("<button></button>", "button-name"),
        ("<p style='color:#999;background:#fff'>faint words</p>", "color-contrast"),
        ("<div role=img aria-label=x><a href='#x'>link</a></div>", "nested-interactive"),
    ],
)
def test_a_violation_is_found(written: list[Path], browser: Chromium, html: str, rule: str) -> None:
    page = browser.file(written[1])
    page.evaluate("html => document.body.insertAdjacentHTML('afterbegin', html)", html)
    assert [line for line in grave(page) if f" {rule}:" in line]
