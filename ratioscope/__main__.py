"""`python -m ratioscope` is the command line."""

import os
import sys

if sys.path[0] in ("", os.path.abspath(".")) and not sys.flags.safe_path:
    del sys.path[0]  # the folder it was started in, which may be a stranger's: what is imported is what is installed

from ratioscope.app.cli import main  # noqa: E402

raise SystemExit(main())
