"""Small real runs, and the script that made them."""
