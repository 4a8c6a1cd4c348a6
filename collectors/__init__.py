"""Runs inside the trainer: takes what it logs and writes it to disk. `Collector` and `attach` are the doors."""
