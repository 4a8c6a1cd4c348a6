"""Runs on URLs: addresses without their secrets, files on any store that fsspec knows, and copies of runs in the user's cache."""
