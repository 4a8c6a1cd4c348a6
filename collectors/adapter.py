"""Adapter: a row of the table of trainers, and what the package of an adapter contains.

An adapter is a package with HOOKS, the functions that it watches, and `recorder(recording)`, which returns an object with the
methods that HOOKS name (watching/hooks.py). An adapter whose trainer is an object may instead have
`start(trainer, recording) -> undo`, which puts hooks on that one object.
"""

from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, Literal, Protocol, cast

from .watching.hooks import Hook
from .watching.recording import Recording


class AdapterModule(Protocol):
    """Contents of an adapter's package."""

    HOOKS: tuple[Hook, ...]

    def recorder(self, recording: Recording) -> Any:
        """The object whose methods HOOKS name."""
        ...


SHARDED = (
    "its workers hold shards of the weights, so a second forward is a call that all ranks must join, and one that fails on one "
    "rank would hang the others; `ratioscope rescore --floor` measures the floor afterwards"
)
SERVICE = (
    "its trainer is a service, where each further forward is billed; `ratioscope rescore --floor` measures the floor"
)


@dataclass(frozen=True)
class Adapter:
    """A trainer that can be recorded."""

    name: str
    """Name of the trainer in `attach` and on the command line, and of its folder in adapters/."""
    title: str
    """Name of the trainer as its authors write it."""
    package: str
    """The package it is imported as. Hooks are put on when that is imported."""
    tested: tuple[str, ...]
    """Versions that the tests were run with, or dates of the source that was read."""
    against: Literal["package", "source", "stand-ins"]
    """"package" if the tests run the real package, "source" if they run the trainer's own loss and batch code from a checkout,
    with stand-ins for what it imports; "stand-ins" if they run imitations with its signatures."""
    lines: str
    """Lines that a user pastes; {run} is the run folder."""
    records: str
    """The data recorded from this trainer, in words."""
    rollout_by_default: bool = True
    """True if the trainer keeps the log-probs of its sampler with its usual settings."""
    rollout_setting: str = ""
    """The setting that has the trainer keep them; where it keeps them by default, what would lose them; "" if nothing does."""
    classes: tuple[str, ...] = ()
    """`module:Class` of the objects that `attach` takes. The module is a prefix, and subclasses count."""
    distribution: str | None = None
    """Name of its package for pip; None if it is not published."""
    unreached: str = ""
    """The parts that the tests only imitate though they run the trainer's source, each with the line that prevents it."""
    no_self_noise: str = SHARDED
    """Why the option `self_noise` is refused; "" where it is taken."""

    def load(self) -> AdapterModule:
        """The package in adapters/."""
        return cast(AdapterModule, import_module(f".adapters.{self.name}", __package__))

    def fits(self, trainer: Any) -> bool:
        """True if the class of the trainer, or a base of it, is one of `classes`."""
        return any(_is(base, name) for base in type(trainer).__mro__ for name in self.classes)

    @property
    def version(self) -> str | None:
        """The installed version; None if it is not known."""
        try:
            return None if self.distribution is None else metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None


def _is(base: type, name: str) -> bool:
    module, _, class_name = name.partition(":")
    return base.__name__ == class_name and f"{base.__module__}.".startswith(f"{module}.")


def installed(distribution: str) -> str:
    """`distribution 1.2.3`, or `distribution (version unknown)` if it runs from a checkout that is not installed."""
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"{distribution} (version unknown)"
