"""Clicks and choices of a reader, and the seconds until it has answered: the script has run, and every chart is drawn anew."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from _painted import PATIENCE, WHOLE
from playwright.sync_api import Page

WATCH = """() => {
  window.acted = window.answered = 0;
  for (const kind of ["click", "keydown"]) document.addEventListener(kind, () => (acted = performance.now()), true);
  new MutationObserver(() => (answered = performance.now())).observe(document, {
    subtree: true, attributes: true, attributeFilter: ["data-waits", "data-test-script-state"],
  });
}"""
"""Notes when the reader acted, and when a chart was last drawn or the script last ended."""
HEARD = 2500
"""Milliseconds until a page that was opened listens to keys."""


@dataclass(frozen=True)
class Act:
    """about: what is done, and on which page. page: its path. do: does it; its second argument counts."""

    about: str
    page: str
    do: Callable[[Page, int], object]


def _gap(page: Page, number: int) -> None:
    gap = ("total", "mismatch")[number % 2]
    page.get_by_test_id("stButtonGroup").get_by_role("radio", name=gap, exact=True).click()


def _slid(key: str) -> Callable[[Page, int], object]:
    """A slider moved to its next value, and back."""

    def slide(page: Page, number: int) -> None:
        page.locator(f".st-key-{key}").get_by_role("slider").focus()
        page.keyboard.press(("ArrowRight", "ArrowLeft")[number % 2])

    return slide


def _pressed(*keys: str) -> Callable[[Page, int], object]:
    """One key after the other."""
    return lambda page, number: page.keyboard.press(keys[number % len(keys)])


OF_A_RUN = (
    Act("another gap on Overview", "", _gap),
    Act("the cap moved on Distributions", "distributions", _slid("cap")),
    Act("the threshold moved on Fix", "fix?try=true", _slid("cap_at")),
    Act("another step on Sequences", "samples", _pressed("[", "]")),
    Act("the next sequence on Tokens", "tokens", _pressed("j", "k")),
)
OF_A_LONG_SEQUENCE = (Act("the next worse of 32,768 tokens", "tokens", _pressed("n")),)


def answers(page: Page, url: str, run: str, step: int, act: Act, repeat: int) -> list[float]:
    """How long each answer took. The first two are left out: both sides of what is done have been seen by then."""
    page.goto(f"{url}/{act.page}{'&' if '?' in act.page else '?'}run={quote(run)}&step={step}")
    page.wait_for_function(WHOLE, timeout=PATIENCE)
    page.evaluate(WATCH)
    page.wait_for_timeout(HEARD)
    took = []
    for number in range(2 * repeat + 2):
        asked = page.evaluate("runsAsked()")
        act.do(page, number)
        page.wait_for_function("asked => hasRun(asked)", arg=asked, timeout=PATIENCE)
        page.wait_for_function("number => isAtRest(number)", arg=f"{act.about} {number}", timeout=PATIENCE)
        took.append(page.evaluate("(answered - acted) / 1000"))
    return took[2:]
