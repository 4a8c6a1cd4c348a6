"""attach: records a running trainer in one line, whichever trainer it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ratioscope.errors import ConfigError

from .adapter import Adapter, AdapterModule
from .process.counts import reason_of
from .process.notice import warn
from .process.ranks import process_rank
from .process.variables import is_installed
from .self_noise import self_noise_of
from .trainers import ADAPTERS, adapter_named
from .unsupported_trainers import unsupported_trainer
from .watching.hooks import Refused, is_watched, lacks, missing, put_on
from .watching.recording import AttachOptions, Recording

if TYPE_CHECKING:
    from .collector import Collector

Trainer = Any
"""Another program's trainer object, or the name of an adapter. `Any`, because no trainer is a dependency."""


class Attachment:
    """The result of `attach`. `detach` removes every hook from the trainer and closes the collector."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def refused(self) -> str | None:
        """Why nothing is recorded, if the trainer lacks what the adapter needs; else None. A later import may bring that up."""
        return self._recording.refused

    @property
    def collector(self) -> Collector:
        """The collector of this process. It is made when there is something to record, or by this call."""
        return self._recording.collector

    def __repr__(self) -> str:
        return f"<Attachment of {self._recording!r}>"

    def detach(self, timeout: float | None = 10.0) -> bool:
        """Ends the recording. True if all that was recorded is on disk. A second call does nothing."""
        self._recording.take_off()
        return self._recording.close(timeout)


def attach(trainer: Trainer, run_dir: str | os.PathLike[str], **options: Unpack[AttachOptions]) -> Attachment:
    """Records what the trainer holds into `run_dir`, from now on until `detach`.

    trainer: the trainer's object; or its name, such as "areal", if the functions to watch belong to no object; or an adapter of
    your own, which is a module or object with HOOKS and recorder (docs/your_trainer.md). If this version of the trainer lacks
    what the adapter needs, nothing is recorded: an error is logged, `refused` says why, and training goes on. With
    `strict=True` the error is raised.
    """
    name, begin = _beginning(trainer)
    self_noise_of(options.get("self_noise"))  # raises for anything else
    if options.get("existing") == "error" and options.get("attempt") is None:
        from .writing.start_files import this_start
        from .writing.starts import demand_none

        demand_none(Path(run_dir).absolute(), this_start(process_rank(), "", None))
    recording = Recording(run_dir, options, name)
    try:
        recording.attached(begin(recording))
        recording.speak_at_the_end()
    except Exception as error:
        is_users = isinstance(error, ConfigError) and not (isinstance(error, Refused) or is_installed())
        if options.get("strict", False) or is_users:
            raise
        recording.refuse(str(error) if isinstance(error, ConfigError) else _unfit(name, error, recording.advice))
    return Attachment(recording)


def start(adapter: Adapter, recording: Recording, trainer: Trainer | None) -> Callable[[], None]:
    """Puts the hooks of the adapter on the trainer's functions in this process. The returned function takes them off.

    A hook on a module that is not loaded yet is put on when it is. Raises Refused if the trainer lacks a function it needs.
    """
    module = adapter.load()
    version = adapter.version
    if version is not None and version not in adapter.tested:
        warn(
            "%s %s is not among the versions this adapter was tested with (%s); what it needs is looked for by name.",
            adapter.title,
            version,
            ", ".join(adapter.tested),
        )
    recording.advice, recording.computed_apart = _tested_versions(adapter), True
    recording.title = f"{adapter.title} {adapter.version or '(version unknown)'}"
    if adapter.no_self_noise and recording.options.get("self_noise"):
        warn("%s: self_noise is refused, no trainer_again is recorded: %s", adapter.title, adapter.no_self_noise)
        recording.options["self_noise"] = None
    if trainer is not None and (begin := getattr(module, "start", None)) is not None:
        undo: Callable[[], None] = begin(trainer, recording)
    else:
        undo = _put_on(module, recording, adapter.title)
    recording.attached(undo)
    return undo


def _put_on(module: AdapterModule, recording: Recording, title: str) -> Callable[[], None]:
    loaded = [hook for hook in module.HOOKS if hook.module in sys.modules]
    if lacking := missing(loaded):
        raise Refused(lacks(lacking, recording))
    if any(is_watched(hook, adapter=recording.adapter) for hook in loaded):
        raise ConfigError(f"a collector is attached to {title} already; detach() it first")
    return put_on(module.HOOKS, module.recorder(recording), recording)


def _beginning(trainer: Trainer) -> tuple[str, Callable[[Recording], Callable[[], None]]]:
    """The name of the adapter, and the function that puts its hooks on."""
    if hasattr(trainer, "HOOKS") and callable(getattr(trainer, "recorder", None)):
        own = str(getattr(trainer, "__name__", type(trainer).__name__)).rpartition(".")[2]
        return own, lambda recording: _put_on(trainer, recording, own)
    adapter = adapter_named(trainer) if isinstance(trainer, str) else _adapter_of(trainer)
    if adapter is None:
        raise ConfigError(_unknown(trainer))
    return adapter.name, lambda recording: start(adapter, recording, None if isinstance(trainer, str) else trainer)


def _unfit(name: str, error: Exception, advice: str) -> str:
    what = f"{name} cannot be attached to: {reason_of(error)}"
    return f"{what}; nothing is recorded, training goes on{advice}"


def _adapter_of(trainer: Trainer) -> Adapter | None:
    return next((adapter for adapter in ADAPTERS if adapter.fits(trainer)), None)


def _unknown(trainer: Trainer) -> str:
    named = isinstance(trainer, str)
    if named and (nothing := unsupported_trainer(trainer)) is not None:
        return f"{nothing.why}. So there is no adapter"
    what = f"a trainer named {trainer!r}" if named else f"{type(trainer).__module__}.{type(trainer).__qualname__}"
    known = ", ".join(adapter.name if named else adapter.title for adapter in ADAPTERS)
    return (
        f"attach() does not know {what}; it knows {known}. "
        "Any trainer can call Collector(run_dir).log(step=..., rollout_logprobs=..., old_logprobs=..., mask=...) itself"
    )


def _tested_versions(adapter: Adapter) -> str:
    pin = f": pip install '{adapter.distribution}=={adapter.tested[-1]}'" if adapter.distribution else ""
    return f". This adapter was tested with {', '.join(adapter.tested)}{pin}"
