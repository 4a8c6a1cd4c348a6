"""How the server's process tells the pages which runs they may open."""

RUNS = "RATIOSCOPE_RUNS"
"""The environment variable: a JSON list of absolute paths."""
