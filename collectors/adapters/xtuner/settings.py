"""The settings of an xtuner training worker for run.json."""

from __future__ import annotations

from typing import Any


def settings(worker: Any) -> dict[str, Any]:
    """The loss and its rollout correction, and how many optimizer steps a rollout takes. loss_cfg is a pydantic model."""
    config = worker.config
    return {
        "loss_cfg": config.loss_cfg.model_dump(mode="json"),
        "optimizer_steps": getattr(config, "optimizer_steps", None),
        "model": str(getattr(config, "load_from", None)),
    }
