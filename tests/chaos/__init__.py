"""The store and the collector under fire: kills, flipped bits, full disks, calls that fail, many processes at once.

Each scenario is one file with one function that takes a size and a seed and returns `Figures`. `make test` runs them small
(test_chaos.py), `make chaos` at full size and writes docs/reliability.md from what they return.
"""
