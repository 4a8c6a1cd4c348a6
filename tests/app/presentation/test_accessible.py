"""What everybody can read: contrast of every text colour, words beside every colour, a text for every chart and table."""

import ast
import itertools
import re
from pathlib import Path
from typing import Literal

import pytest
from support.browser import Chromium, chromium
from support.frames import tokens

from ratioscope.app import dashboard, documents
from ratioscope.app.figures import token_text
from ratioscope.app.figures.html.tinted_text import OPACITIES
from ratioscope.app.presentation.theme import DARK, LIGHT, MARKS, Theme

LEAST = 4.5
"""WCAG 2.1, 1.4.3 (AA) for text; 3 for lines and areas that carry data (1.4.11)."""
LEAST_DRAWN = 3.0


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_text_can_be_read_on_every_ground(theme: Theme) -> None:
    texts = {"text": theme.text, "muted": theme.muted, "primary": theme.primary, **theme.ink, **theme.gaps}
    for (name, colour), ground in itertools.product(texts.items(), (theme.background, theme.panel)):
        assert _contrast(colour, ground) >= LEAST, f"{name} {colour} on {ground}: {_contrast(colour, ground):.2f}"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_line_of_a_chart_can_be_seen(theme: Theme) -> None:
    lines = {**theme.policies, **theme.gaps, "less": theme.less, "more": theme.more}
    for name, colour in lines.items():
        assert _contrast(colour, theme.background) >= LEAST_DRAWN, f"{name} {colour}"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_token_can_be_read_on_every_tint(theme: Theme) -> None:
    style = token_text(tokens(3), "mismatch", theme=theme)
    tints = re.findall(r" \.[lma]\d\{background:rgba\((\d+), (\d+), (\d+), ([\d.]+)\)(;color:#000)?\}", style)
    assert len(tints) == 3 * len(OPACITIES)
    for *parts, opacity, black in tints:
        under = [int(theme.background[at : at + 2], 16) for at in (1, 3, 5)]
        over = [
            float(opacity) * int(part) + (1 - float(opacity)) * ground
            for part, ground in zip(parts, under, strict=True)
        ]
        ground = "#" + "".join(f"{round(part):02x}" for part in over)
        assert _contrast("#000000" if black else theme.text, ground) >= LEAST, (ground, black)


def test_every_severity_has_a_mark_of_its_own() -> None:
    assert len(set(MARKS.values())) == len(MARKS) == 5


def test_charts_and_tables_are_shown_by_functions_that_want_a_text() -> None:
    """`draw` and `table` ask for it; nothing else may show one."""
    folder = Path(dashboard.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "st"):
                continue
            if node.attr in (
                "plotly_chart",
                "altair_chart",
                "dataframe",
                "table",
                "data_editor",
                "line_chart",
                "bar_chart",
            ):
                assert path.name == "charts.py", f"{path.name}:{node.lineno} shows a chart or table past charts.py"


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of sRGB, WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


LIKED = "@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }"
MOVES = ("transition", "animation", "@keyframes", "<animate", "<marquee", "scroll-behavior")


def test_nothing_of_ours_moves_but_for_readers_who_like_it() -> None:
    """No transition and no animation, but for what the style of the report keeps from those who asked for less motion.

    What plotly.js could move is looked for where it draws, in test_browser_every_page.py.
    """
    for path in Path(documents.__file__).parents[1].rglob("*"):
        if path.suffix in (".py", ".css", ".html", ".js") and path.parent.name != "vendor":
            text = path.read_text().replace(LIKED, "")
            assert [word for word in MOVES if word in text] == [], path.name


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_the_report_scrolls_at_once_for_readers_who_want_less_motion(browser: Chromium, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(f"<style>{(Path(documents.__file__).parent / 'page.css').read_text()}</style>")
    page = browser.file(report)
    wanted: dict[Literal["reduce", "no-preference"], str] = {"reduce": "auto", "no-preference": "smooth"}
    for motion, scrolls in wanted.items():
        page.emulate_media(reduced_motion=motion)
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == scrolls
