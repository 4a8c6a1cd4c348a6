"""One folder per trainer: which tensors it holds, where it holds them, and how they become a call of `log`."""
