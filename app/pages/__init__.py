"""One file per page of the dashboard."""
