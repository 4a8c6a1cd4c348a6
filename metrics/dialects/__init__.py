"""One file per trainer: its own metric names, averaging conventions and correction settings, reproduced."""
