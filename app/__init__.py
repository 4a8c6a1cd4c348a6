"""Shows: command line, dashboard pages, figures, report."""

import os
import signal
import sys


def end_in_silence(*_: object) -> None:
    """Ctrl-C before the command line is imported: no traceback of half an import."""
    os._exit(128 + signal.SIGINT)


_PROGRAM = (f"{os.sep}ratioscope", os.path.join("ratioscope", "__main__.py"))
if sys.argv[:1] and sys.argv[0].endswith(_PROGRAM) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_in_silence)
