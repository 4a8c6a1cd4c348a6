"""Analyses of a run that the command line, the report and the dashboard share."""
