"""The exit codes of all verbs."""

OK, FINDINGS, USAGE, UNREADABLE, UNMEASURED, DEFECT, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130
