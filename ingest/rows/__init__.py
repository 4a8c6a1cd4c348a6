"""Token rows of committed files: as tables, as lazy scans, as one sequence."""
