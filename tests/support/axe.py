"""axe-core in a tab: the accessibility violations that a reader with a screen reader or weak eyes meets.

axe-core is npm's; the package axe-playwright-python holds the same file, so that no test asks the network for it.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
GRAVE = ("serious", "critical")
AT_REST = """
*, ::before, ::after { transition: none !important; animation-duration: 0s !important; animation-delay: 0s !important }
[data-stale] { opacity: 1 !important }"""
"""A part of the dashboard that is being drawn anew fades meanwhile, and what appears fades in: neither is what a reader reads."""
FOUND = """async ([style, within, rules]) => {
  const still = new CSSStyleSheet(), sheets = [...document.adoptedStyleSheets]
  still.replaceSync(style)
  document.adoptedStyleSheets = [...sheets, still]
  const tried = rules.length ? { runOnly: rules } : {}
  const { violations } = await axe.run(document.querySelector(within), { resultTypes: ["violations"], ...tried })
  document.adoptedStyleSheets = sheets
  const told = ({ target, html, failureSummary }) => `${target.join(" ")} ${html.slice(0, 120)}: ${failureSummary}`
  return violations.map(({ impact, id, nodes }) => [impact, id, nodes.map(told)])
}"""


def grave(page: Page, within: str = "html", rules: Sequence[str] = ()) -> list[str]:
    """The serious and critical violations of the page as it is now, with all motion at its end, a line each.

    within: selector of the part that is looked at. rules: those of axe that are tried; empty for all.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(SOURCE)
    found: list[Any] = page.evaluate(FOUND, [AT_REST, within, [*rules]])
    return [f"{impact} {rule}: {node}" for impact, rule, nodes in found if impact in GRAVE for node in nodes]
