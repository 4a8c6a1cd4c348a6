"""The answers that an agent gets over the Model Context Protocol: those of the verbs, bounded, escaped and marked as data."""
