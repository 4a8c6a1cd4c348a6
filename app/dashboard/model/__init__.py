"""The data behind pages: runs at a revision, cached frames and figures, jobs, the choices in the address."""
