"""Reading without the wall, for tests that read thousands of small files: a fork takes longer than each."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


def answered_here(work: Callable[[], Iterable[bytes]], limits: Any, mapped: int = 0) -> Iterator[memoryview]:
    """The frames that a child would have told."""
    return (memoryview(frame) for frame in work() if frame)


@pytest.fixture(scope="module")
def no_wall() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("reading", "wall"):
            patch.setattr(f"ratioscope.ingest.importers.{module}.allow", lambda _: None)
            patch.setattr(f"ratioscope.ingest.importers.{module}.apart", answered_here)
        yield
