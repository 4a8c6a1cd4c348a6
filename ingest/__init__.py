"""Reads: our runs and other programs' dumps, into Records; statistics and caches."""
