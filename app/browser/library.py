"""plotly.js, which draws charts in dashboards, reports and exported pages: the copy in vendor/, never one from elsewhere."""

from functools import cache
from pathlib import Path

VERSION = "4.1.1"
SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
FILE = Path(__file__).parent / "vendor" / f"plotly-cartesian-{VERSION}.min.js"
PLACE = f"/charts/{FILE.name}"
"""Its path on the dashboard's server. Another version has another path, so that a browser may keep the script for good."""


@cache
def plotly_js() -> str:
    """The script; it defines `Plotly`."""
    return FILE.read_text(encoding="utf-8")
