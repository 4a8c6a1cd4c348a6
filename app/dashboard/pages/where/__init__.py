"""The Where page."""
