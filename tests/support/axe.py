"""axe-core in a tab: the accessibility violations that a reader with a screen reader or weak eyes meets.

axe-core is npm's; the package axe-playwright-python holds the same file, so that no test asks the network for it.
"""

from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
GRAVE = ("serious", "critical")
FOUND = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] })
  const told = ({ target, html, failureSummary }) => `${target.join(" ")} ${html.slice(0, 120)}: ${failureSummary}`
  return violations.map(({ impact, id, nodes }) => [impact, id, nodes.map(told)])
}"""


def grave(page: Page) -> list[str]:
    """The serious and critical violations of the page as it is now, a line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(SOURCE)
    found: list[Any] = page.evaluate(FOUND)
    return [f"{impact} {rule}: {node}" for impact, rule, nodes in found if impact in GRAVE for node in nodes]
