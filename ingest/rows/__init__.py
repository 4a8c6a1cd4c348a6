"""Reads token rows: as Arrow tables, as lazy polars scans, as one sequence."""
