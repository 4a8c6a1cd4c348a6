"""The environment variables in which the server names the runs that pages may open, and what of them."""

RUNS = "RATIOSCOPE_RUNS"
"""The environment variable: a JSON list of absolute paths."""
ATTEMPT = "RATIOSCOPE_ATTEMPT"
"""The same for the number of the start of the job that pages show; null for all."""
