"""Engines that compute statistics from rows: numpy for records, torch for tensors."""
