"""The Distributions page."""
