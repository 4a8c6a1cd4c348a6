"""Labelled runs of several families of generators, made independently of each other, and how well the diagnosis names their faults."""
