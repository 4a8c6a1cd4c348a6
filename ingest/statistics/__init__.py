"""Statistics on record, statistics computed from rows where none are on record, and the tables of metrics made of both."""
