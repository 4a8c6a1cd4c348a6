"""Files of a run and of the cache: opened without leaving the run, bounded before they are decoded, set aside with a reason."""
