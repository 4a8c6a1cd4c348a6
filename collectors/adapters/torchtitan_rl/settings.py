"""The settings of torchtitan's policy trainer for run.json."""

from __future__ import annotations

import dataclasses
from typing import Any


def settings(trainer: Any) -> dict[str, Any]:
    """The trainer's own configuration, a tree of dataclasses; one whose values cannot be copied is named."""
    config = trainer.config
    return {
        "loss": type(trainer.loss_fn).__name__,
        **({"config": dataclasses.asdict(config)} if dataclasses.is_dataclass(config) else {}),  # type: ignore[arg-type]
    }
