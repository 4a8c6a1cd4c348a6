"""The environment variable in which the server names the runs that pages may open."""

RUNS = "RATIOSCOPE_RUNS"
"""The environment variable: a JSON list of absolute paths."""
