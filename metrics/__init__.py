"""The number machinery: statistics merge; metrics are read from statistics; findings are read from metrics."""
