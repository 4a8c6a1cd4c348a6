"""Trainers of other packages that inherit TRL's classes and replace the methods that this adapter watches.

A subclass of a user is recorded: its methods call TRL's. A package that replaces a method by another design is named here, with
the reason why nothing is recorded. Any other package that replaces a method is recorded, and named once in a notice, because
rows can be missing then.
"""

import sys
from collections.abc import Iterable
from typing import Any

FOREIGN: dict[str, str] = {
    "swift": (
        "this trainer is ms-swift's, which inherits TRL's and replaces its methods; it has an adapter of its own: "
        'ratioscope.attach("ms_swift", run_dir). This one records nothing; training goes on'
    ),
    "axolotl.core.trainers.grpo.async_trainer": (
        "this trainer is Axolotl's asynchronous one, which inherits TRL's and replaces its methods: a thread samples ahead of "
        "the steps, and old log-probs are computed later, so nothing is recorded; training goes on. Axolotl's synchronous "
        "trainer can be recorded: leave use_data_producer and async_prefetch out of the trl section"
    ),
}
"""Module, or package, that defines a watched method -> the reason why its trainer is not recorded."""
ADAPTED = ("swift.",)
"""Packages among them whose trainers have an adapter of their own."""
UNSLOTH = ("UnslothGRPOTrainer", "UnslothRLOOTrainer")
"""Classes that unsloth generates from TRL's source. They inherit none of TRL's trainers."""
NOT_UNSLOTH = (
    "this trainer is unsloth's, which rewrites TRL's; it has an adapter of its own: "
    'ratioscope.attach(trainer, run_dir) or ratioscope.attach("unsloth", run_dir). This one records nothing; training goes on'
)


def has_own_adapter(trainer: Any) -> bool:
    """True if another adapter records this trainer."""
    return is_unsloths(trainer) or any(base.__module__.startswith(ADAPTED) for base in type(trainer).__mro__)


def is_unsloths(trainer: Any) -> bool:
    """True if unsloth generated the class of this trainer."""
    return any(base.__name__ in UNSLOTH for base in type(trainer).__mro__)


def refusal(trainer: Any, watched: Iterable[str]) -> str | None:
    """The reason why this trainer is not recorded; None if it can be.

    Args:
        trainer: an object of a subclass of one of TRL's trainers.
        watched: names of the methods that the adapter watches.
    """
    modules = set(_replacing(trainer, watched).values())
    return next(
        (reason for name, reason in FOREIGN.items() if any(f"{m}.".startswith(f"{name}.") for m in modules)), None
    )


def replacements(trainer: Any, watched: Iterable[str]) -> str | None:
    """The methods that an installed package replaces, in words; None if no package does."""
    modules = {name: module for name, module in _replacing(trainer, watched).items() if _is_installed(module)}
    return ", ".join(f"{module} replaces {name}" for name, module in modules.items()) or None


def other_sampler(trainer: Any) -> str | None:
    """The code that samples in place of TRL's own, in words; None if TRL samples."""
    if getattr(trainer, "rollout_func", None) is not None:
        return "a rollout_func"
    if is_unsloths(trainer):
        return None
    methods = _replacing(trainer, ("_generate", "_generate_single_turn"))
    return next((f"{name} of {module}" for name, module in methods.items() if module != "builtins"), None)


def _replacing(trainer: Any, watched: Iterable[str]) -> dict[str, str]:
    """Name of a method -> the module of the class that defines it, unless the class is TRL's."""
    defining = {name: next((base for base in type(trainer).__mro__ if name in vars(base)), object) for name in watched}
    return {name: base.__module__ for name, base in defining.items() if not f"{base.__module__}.".startswith("trl.")}


def _is_installed(module: str) -> bool:
    """True if the module lies in a folder of installed packages and is not the program that runs."""
    if module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
