"""Checksums of the weights that running engines hold: read, compared with each other and with a checkpoint, and recorded."""
