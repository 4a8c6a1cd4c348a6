"""axe-core finds no serious violation in the report and in the pages as files, in both themes.

The pages of the dashboard are seen in test_browser_every_page.py.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from support.axe import grave
from support.browser import Chromium, chromium
from support.site import material_of, report_of

from ratioscope.app.documents.document import one_file

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: tests/support/install_chromium.sh")
OPEN_ALL = "for (const e of document.querySelectorAll('details')) e.open = true"
PLANTED = {
    "image-alt": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
    "button-name": "<button></button>",
    "color-contrast": "<p style='color:#999;background:#fff'>faint words</p>",
    "nested-interactive": "<div role=img aria-label=x><a href='#x'>link</a></div>",
}
"""rule of axe-core -> what violates it."""
FADING = """() => {
  const [stale, entering] = ["stale", "entering"].map(words => Object.assign(document.createElement("p"), { innerText: words }))
  const part = document.createElement("div")
  part.id = "fading"
  part.append(stale, entering)
  document.body.prepend(part)
  stale.dataset.stale = "true"
  stale.style.opacity = entering.style.opacity = 0.2
  entering.getBoundingClientRect()
  Object.assign(entering.style, { transition: "opacity 1000s", opacity: 1 })
}"""
"""A part that is being drawn anew, and one that appears."""
SHOW_ALL = "for (const e of document.querySelectorAll('section.page')) e.hidden = false"


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report in its two forms, and all pages in one file."""
    folder = tmp_path_factory.mktemp("written")
    texts = {
        "report": report_of(runs, "stale"),
        "live": report_of(runs, "stale", interactive=True),
        "pages": one_file(material_of(runs, "stale")),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return [folder / f"{name}.html" for name in texts]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_file_has_a_serious_violation(
    written: list[Path], browser: Chromium, theme: Literal["light", "dark"]
) -> None:
    """In the dark the colours alone differ, which the two forms of the report share."""
    for path in written if theme == "light" else written[1:]:
        page = browser.file(path, theme=theme)
        page.evaluate(OPEN_ALL)
        page.evaluate(SHOW_ALL)
        assert grave(page, rules=() if theme == "light" else ("color-contrast",)) == [], path.name


@pytest.fixture(scope="module")
def planted(written: list[Path]) -> Callable[[Chromium], list[str]]:
    """The violations of a part of the report that holds everything of PLANTED: the whole report takes axe-core 8 s."""

    @cache
    def found(browser: Chromium) -> list[str]:
        page = browser.file(written[1])
        part = f"<div id=planted>{''.join(PLANTED.values())}</div>"
        page.evaluate("html => document.body.insertAdjacentHTML('afterbegin', html)", part)
        return grave(page, "#planted")

    return found


@pytest.mark.parametrize("rule", PLANTED)
def test_a_violation_is_found(planted: Callable[[Chromium], list[str]], browser: Chromium, rule: str) -> None:
    assert [line for line in planted(browser) if f" {rule}:" in line]


def test_what_fades_is_judged_as_it_will_be(written: list[Path], browser: Chromium) -> None:
    page = browser.file(written[0])
    page.evaluate(FADING)
    assert grave(page, "#fading") == []
