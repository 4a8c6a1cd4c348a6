"""Values, names, themes and texts in the form that command line, report and dashboard all show."""
