"""What a click on a chart means to its page."""

from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st

from ratioscope.app.dashboard.panels import charts as drawn


@pytest.mark.parametrize(
    ("points", "meaning"),
    [
        (None, None),
        ([], None),
        ([{"x": 12, "customdata": ["step 12 ■ act", 12]}], ["step 12 ■ act", 12]),
        ([{"x": 12, "customdata": "weight_sync after 3 updates"}], None),
        ([{"x": 12}], None),
    ],
    ids=["nothing yet", "nothing", "a bar", "the mark of an event", "a point without data"],
)
def test_only_what_is_a_link_is_followed(
    monkeypatch: pytest.MonkeyPatch, points: list[dict[str, Any]] | None, meaning: object
) -> None:
    monkeypatch.setattr(st, "session_state", {"ribbon": SimpleNamespace(points=points)})
    assert drawn.clicked("ribbon") == meaning
