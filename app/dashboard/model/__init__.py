"""What pages read: runs at a revision, cached frames and figures, jobs, the choices in the address."""
