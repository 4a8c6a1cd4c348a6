"""Hooks that watch a running trainer: on its functions, on imports and on Ray workers."""
