"""The loggers that numbers of a step can be sent to, one row each, and the form in which an opened one takes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ratioscope.errors import ConfigError

from .loggers import mlflow_logger, swanlab_logger, trackio_logger
from .prometheus import prometheus_logger
from .tensorboard import tensorboard_logger


class OpenedLogger(Protocol):
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
    opened: Callable[[str, str, str], OpenedLogger]
    """(place, the run's id, its name) -> the opened logger. MissingExtra where its package is not installed."""
    newest_only: bool = False
    """True if it holds the newest step alone."""


LOGGERS = (
    Logger("tensorboard", "DIR", tensorboard_logger),
    Logger("mlflow", "URI", mlflow_logger),
    Logger("trackio", "PROJECT", trackio_logger),
    Logger("swanlab", "PROJECT", swanlab_logger),
    Logger("prometheus", "FILE", prometheus_logger, newest_only=True),
)
FORMS = "|".join(f"{each.name}:{each.place}" for each in LOGGERS)


def logger_of(text: str) -> tuple[Logger, str]:
    """The logger and the place that --to names. ConfigError for another."""
    name, colon, place = text.partition(":")
    logger = next((each for each in LOGGERS if each.name == name), None)
    if logger is None or not colon or not place:
        raise ConfigError(f"--to {text}: wanted {FORMS}; for W&B: ratioscope wandb sync RUN")
    return logger, place
