"""Labelled runs of several families of generators, and how well the diagnosis names their faults."""
