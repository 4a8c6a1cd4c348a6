"""The Sequences page."""
