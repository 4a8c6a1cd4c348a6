"""The documents of a run: the report as HTML, Markdown and JSON, and its pages as files that a browser opens from disk."""
