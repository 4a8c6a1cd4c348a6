"""`python -m ratioscope` is the command line."""

from ratioscope.app.cli import main

raise SystemExit(main())
