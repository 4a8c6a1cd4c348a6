"""Writing a run offline: importing, merging, deleting, mending, and notes. It imports nothing of the faces."""
