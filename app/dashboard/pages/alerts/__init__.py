"""The Alerts page."""
