"""Comparisons and decompositions of readings: runs, steps, slices, lags, quantiles."""
