"""The Corrections page."""
