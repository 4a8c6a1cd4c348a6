"""Statistics on record, statistics computed from rows where none are on record, and frames of metrics made from both."""
