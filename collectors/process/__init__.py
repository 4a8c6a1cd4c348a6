"""This process: its rank and variables, the notices it gives, and the counts of what it was offered."""
