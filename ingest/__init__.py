"""Reads a run: files, commits, rows, statistics, each built on the one before; `run` is the door."""
