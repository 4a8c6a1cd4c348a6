"""`python -m ratioscope` is the command line."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder it was started in, which may be a stranger's: what is imported is what is installed

from ratioscope.app.cli import main  # noqa: E402

raise SystemExit(main())
