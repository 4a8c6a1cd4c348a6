"""Writes, inside the trainer: Batch, Collector, sinks, one adapter file per trainer."""
