"""Two scorers on the same tokens, before a run: how far they are from each other, and each from itself in other arms."""
