"""Shows: command line, dashboard pages, figures, report."""
