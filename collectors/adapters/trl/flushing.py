"""A callback of transformers that passes each step to the writer when the step ends."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...collector import Collector

_TRAIN_END_SECONDS = 30.0


def flushing_callback(collector: Collector) -> Any:
    """The callback; it waits for the disk once, at the end of training."""
    # Any: for the types of all its models mypy and pyright would each read 2,800 files
    made: Any = import_module("transformers").TrainerCallback

    class FlushingCallback(made):  # type: ignore[misc]
        """Notes a resumption, and flushes at the end of each step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            if state.global_step > 0:
                collector.event("resume", state.global_step + 1, f"training goes on after {state.global_step} steps")

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(0)

        def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(_TRAIN_END_SECONDS)

    return FlushingCallback()
