"""The verbs of the command line: one file each, heavy imports inside the functions, an exit code as the result."""
