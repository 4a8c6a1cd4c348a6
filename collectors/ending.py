"""A last flush when a signal ends the trainer: torchrun and Slurm end ranks with SIGTERM, a lost terminal with SIGHUP.

Usually this is not needed, because the writer's process writes what was logged even after the trainer has ended. It helps where
that process ends together with the trainer, as all processes of a container do.
"""

import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from .process.notice import warn

if TYPE_CHECKING:
    from .collector import Collector


def flush_at(
    collector: "Collector", signals: Sequence[int] = (signal.SIGTERM, signal.SIGHUP), *, seconds: float = 5.0
) -> None:
    """Flushes the collector, for at most `seconds`, when one of these signals comes. Then the earlier handler is called.

    Call it in the main thread, after the trainer has set its own handlers.
    """
    for number in signals:
        signal.signal(number, _flushing(collector, signal.getsignal(number), seconds))


def _flushing(collector: "Collector", before: Any, seconds: float) -> Callable[[int, FrameType | None], Any]:
    def flush(number: int, frame: FrameType | None) -> Any:
        try:
            if not collector.flush(seconds):
                warn("%s: not all that was logged is on disk %s s after signal %d", collector.run_dir, seconds, number)
        except Exception as error:  # with strict
            warn("%s: %s", collector.run_dir, error)
        if callable(before):
            return before(number, frame)
        if before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return flush
