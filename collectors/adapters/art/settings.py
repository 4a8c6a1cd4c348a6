"""The settings of an ART training for run.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def settings(trainer: Any, config: Any, experimental: Mapping[str, Any]) -> dict[str, Any]:
    """The model, and ART's two configurations. config: art.types.TrainConfig, a pydantic model."""
    model = getattr(getattr(trainer, "model", None), "config", None)
    return {
        "model": getattr(model, "_name_or_path", None),
        "config": config.model_dump(mode="json"),
        "experimental": dict(experimental),
    }
