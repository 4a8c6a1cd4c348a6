"""One file per trainer: what it holds, where it holds it, and how that becomes a call of `log`. table.py lists them."""
