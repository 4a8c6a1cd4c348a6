"""Every chart of every page says how many tokens, sequences or steps it is of, and how sure it is or that all were counted."""

import json
import re
from typing import Any

import pytest
from support.pages_read import Read

PAGES: tuple[tuple[str, dict[str, str | list[str]]], ...] = (
    ("overview", {}),
    ("charts", {}),
    ("charts", {"smooth": "5", "groups": ["main", "tails"]}),
    ("charts", {"smooth": "5", "with": ["healthy", "bypass", "two_policies"]}),
    ("distributions", {}),
    ("distributions", {"level": "sequence", "over": "step", "density": "true"}),
    ("where", {"heat": "position", "measured": ["token_class"]}),
    ("staleness", {}),
    ("staleness", {"gap": "drift"}),
    ("tokens", {}),
    ("fix", {"lab": "none,truncate:token:2,truncate:sequence:2", "more_effects": "true"}),
    ("compare", {}),
    ("alerts", {}),
)
SIZE = re.compile(r"\bN( [AB])? [=≈] [\d,]+|(step|steps) [\d–]+: [\d,]+ (token|sequence)s?\b")
SURE = (
    "standard error",
    "counted",  # every one: nothing was estimated
    "as recorded",
    "after allowing for sampling error",
    "solid: out of bounds",
    "resolution of the histogram",
)
SHADED = ("band", "shaded")


@pytest.mark.parametrize("name", ["stale", "bypass", "holes", "one_step", "many_steps"])
@pytest.mark.parametrize(("page", "query"), PAGES, ids=lambda value: value if isinstance(value, str) else "")
def test_charts_say_how_many_and_how_sure(read: Read, name: str, page: str, query: dict[str, str | list[str]]) -> None:
    said = read(page, [*dict.fromkeys((name, "stale", *query.get("with", ())))], **query)
    drawn = [json.loads(chart) for chart in said.charts]
    assert drawn or name != "stale"
    for figure in drawn:
        says = _notes(figure)
        if not _is_empty(figure):
            assert SIZE.search(says), says
            assert any(word in says for word in SURE), says
            shaded = any(trace.get("fill") == "toself" for trace in figure["data"])
            told = any(word in says.replace("without bands", "") for word in SHADED)
            assert shaded == told or "a ridge" in says, says


def _notes(figure: dict[str, Any]) -> str:
    layout = figure["layout"]
    title, marks = layout["title"], [each for each in layout.get("annotations", ()) if each["text"] == "?"]
    behind = " · ".join(mark["hovertext"] for mark in marks)
    return f"{title['text']} · {title.get('subtitle', {}).get('text', '')} · {behind}".replace("<br>", " · ")


def _is_empty(figure: dict[str, Any]) -> bool:
    """Whether it says why there is nothing to draw."""
    return not figure["data"] and bool(figure["layout"].get("annotations"))
