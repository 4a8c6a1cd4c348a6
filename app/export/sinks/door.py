"""Door: the one form in which numbers of a step leave for a logger. Each logger is a row of DOORS."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ratioscope.errors import ConfigError

from .loggers import mlflow_door, swanlab_door, trackio_door
from .prometheus import prometheus_door
from .tensorboard import tensorboard_door


class Door(Protocol):
    """An opened logger."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Takes the numbers of a step. A step that is written again replaces the older one."""

    def close(self) -> None:
        """Everything that was written is kept after this."""


@dataclass(frozen=True)
class Logger:
    """A logger that numbers can be sent to."""

    name: str
    place: str
    """The part after the colon of --to."""
    opened: Callable[[str, str, str], Door]
    """(place, the run's id, its name) -> the opened logger. MissingExtra where its package is not installed."""
    newest_only: bool = False
    """True if it holds the newest step alone."""


DOORS = (
    Logger("tensorboard", "DIR", tensorboard_door),
    Logger("mlflow", "URI", mlflow_door),
    Logger("trackio", "PROJECT", trackio_door),
    Logger("swanlab", "PROJECT", swanlab_door),
    Logger("prometheus", "FILE", prometheus_door, newest_only=True),
)
FORMS = "|".join(f"{each.name}:{each.place}" for each in DOORS)


def logger_of(text: str) -> tuple[Logger, str]:
    """The logger and the place that --to names. ConfigError for another."""
    name, colon, place = text.partition(":")
    door = next((each for each in DOORS if each.name == name), None)
    if door is None or not colon or not place:
        raise ConfigError(f"--to {text}: wanted {FORMS}; for W&B: ratioscope wandb sync RUN")
    return door, place
