"""How values, names, themes and texts are presented on every face: command line, report and dashboard."""
