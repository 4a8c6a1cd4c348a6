"""The definitions of the metrics: statistics that are summed, and the metrics computed from the sums."""
