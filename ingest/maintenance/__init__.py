"""Verification, repair, compaction and pruning of a run."""
