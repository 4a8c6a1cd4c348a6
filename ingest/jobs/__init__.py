"""Long computations over the steps of a run: in the background, kept in the cache, stopped on request."""
