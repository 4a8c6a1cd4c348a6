"""Questions about a run that more than one of the command line, the report and the dashboard asks."""
