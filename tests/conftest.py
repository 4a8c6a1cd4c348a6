"""Fixtures every test file may use."""
