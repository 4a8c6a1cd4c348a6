"""plotly.js, which draws charts in dashboards, reports and exported pages: the copy in vendor/, never one from elsewhere.

The font of files: that of the dashboard, which Streamlit serves.
"""

import base64
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "4.1.1"
SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
FILE = Path(__file__).parent / "vendor" / f"plotly-cartesian-{VERSION}.min.js"
PLACE = f"/charts/{FILE.name}"
"""Its path on the dashboard's server. Another version has another path, so that a browser may keep the script for good."""


@cache
def plotly_js() -> str:
    """The script; it defines `Plotly`."""
    return FILE.read_text(encoding="utf-8")


@cache
def font_face() -> str:
    """The style that gives a file the font, under the first name of `theme.FONT`; it is inside."""
    data = base64.b64encode((FILE.parent / "sans.woff2").read_bytes()).decode()
    return f'@font-face{{font-family:"Source Sans";src:url(data:font/woff2;base64,{data});font-weight:400 700}}'


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
