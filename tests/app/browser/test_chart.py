"""What the browser is told of a chart."""

import gc
import json

import plotly.graph_objects as go
import pytest

from ratioscope.app.browser import chart


def test_a_figure_is_put_into_words_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, str] = {}
    monkeypatch.setattr(chart, "_TEXTS", kept)
    figure = go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name="</script>\n"))
    text = chart._text(figure)
    assert json.loads(text)["data"][0]["name"] == "</script>\n" and "\n" not in text
    assert chart._text(figure) is text and len(kept) == 1
    del figure
    gc.collect()
    assert not kept
