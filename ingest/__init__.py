"""Reads a run. The rooms files, commits, rows and statistics build on each other; `run` is the door. See README.md."""
