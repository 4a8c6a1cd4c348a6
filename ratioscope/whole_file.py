"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path, suffix: str = ".part") -> Iterator[IO[bytes]]:
    """A file that takes this name at the end, in place of an older one, and is removed after an error. Its folder must be there.

    Its owner alone may read it. Its name until then begins with a dot. suffix: the end of that name.
    """
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
