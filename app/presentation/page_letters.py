"""The letters that open a page after `g`, the same in the dashboard and in static pages."""

LETTERS = {
    "o": "overview", "d": "why", "m": "charts", "i": "distributions", "w": "where", "s": "staleness", "q": "samples",
    "t": "tokens", "c": "fix", "x": "compare", "a": "alerts", "h": "record", "r": "runs",
}  # fmt: skip
"""The letter after `g` -> the path of the page that it opens."""
