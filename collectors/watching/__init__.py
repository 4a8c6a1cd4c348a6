"""How a running trainer is watched: hooks on its functions, on imports and on Ray workers."""
