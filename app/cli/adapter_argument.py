"""The adapter of the trainer that a command line names."""

from typing import TYPE_CHECKING

from ratioscope.errors import ConfigError

if TYPE_CHECKING:
    from ratioscope.collectors.adapter import Adapter


def adapter_of(trainer: str) -> "Adapter":
    """The adapter of this trainer. ConfigError if there is none, with the reason if it is known."""
    from ratioscope.collectors.trainers import ADAPTERS, adapter_named
    from ratioscope.collectors.unsupported_trainers import unsupported_trainer

    from ..presentation.trainers import ANY_OTHER

    match = adapter_named(trainer)
    if match is None and (nothing := unsupported_trainer(trainer)) is not None:
        raise ConfigError(f"{nothing.why}. So there is no adapter; {ANY_OTHER}")
    if match is None:
        names = ", ".join(adapter.name for adapter in ADAPTERS)
        raise ConfigError(f"no trainer is named {trainer!r}; wanted one of {names}; {ANY_OTHER}")
    return match
