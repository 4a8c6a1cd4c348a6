"""What the browser is told of a chart."""

import gc
import json

import plotly.graph_objects as go
import pytest

from ratioscope.app.browser import chart


def test_a_figure_is_put_into_words_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, object] = {}
    monkeypatch.setattr(chart, "_TOLD", kept)
    figure = go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name="</script>\n"))
    look, text = chart._told(figure)
    assert json.loads(text)["data"][0]["name"] == "</script>\n" and "\n" not in text
    assert chart._told(figure)[1] is text and len(kept) == 1
    assert look["height"] == chart.USUAL_HEIGHT and chart._told(figure.update_layout(height=90))[0] == look
    assert chart._told(go.Figure(layout={"height": 90}))[0]["height"] == 90
    del figure
    gc.collect()
    assert not kept
