"""Computes all statistics of a run that have to come from its token rows, on several processes or machines."""
