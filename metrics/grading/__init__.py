"""From readings to a verdict: signals, floors, severities, alerts."""
