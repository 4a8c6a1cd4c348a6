"""Verifies, repairs, compacts and prunes a run. Nothing here writes: the verbs in app/cli/ carry out what it proposes."""
