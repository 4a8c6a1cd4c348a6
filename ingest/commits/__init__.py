"""Commit logs: their lines, the writers and attempts, and the catalog of the files that form the run."""
