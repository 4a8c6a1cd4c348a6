"""Long computations over the steps of a run, in the background. Results are cached; a job can be stopped at any time."""
