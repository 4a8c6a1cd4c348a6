"""What a chart offers in the browser, the same in dashboards, reports and exported pages: no button that sends it anywhere.

plotly.js adds buttons of its own with its versions ("Share chart…" uploads to a server), so those that are wanted are listed.
"""

from typing import Any

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "doubleClick": "autosize",
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
    "plotlyServerURL": "",
    "showSendToCloud": False,
}
"""For plotly.js; the dashboard adds a button for the whole screen."""
CLICKED = CONFIG | {"modeBarButtons": [["toImage"]]}
"""For charts whose points are links: nothing but the picture, for the tools of selection would be in the way."""
EMBEDDED = CONFIG | {"responsive": True}
"""For a file that holds its charts: they follow the width of the window by themselves."""
