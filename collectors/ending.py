"""A last flush where a signal ends the trainer: torchrun and Slurm end ranks with SIGTERM, a lost terminal with SIGHUP.

Not needed to keep what was logged: the writer's process writes that after the trainer's end, too. It serves where that process
ends with the trainer, as everything in a container does.
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
    """Has everything logged written when one of these signals comes, in `seconds`, and then does what was done before.

    To be called in the main thread, after the trainer has set handlers of its own: each is called after the flush.
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
