"""TRL (written from 1.16): its trainer objects, each watched while it trains; their results do not change.

GRPOTrainer, RLOOTrainer    recorder.py: old and current log-probs, and rollout if the engine returns them
AsyncGRPOTrainer            asynchronous.py: rollout and current; it computes no old log-probs
Axolotl's async             refused: it inherits TRL's classes and replaces their methods (foreign.py); so do ms-swift's and
                            unsloth's, which have adapters of their own

`attach(trainer, run_dir)` wraps methods of one object. By name or by environment, the hook is on transformers' `Trainer.train`,
which all these trainers inherit; it attaches to the object while the object trains. Every rank records its own rows.
"""

from collections.abc import Callable

from ...foreign import Trainer
from ...process.notice import warn
from ...process.variables import is_installed
from ...watching.hooks import Hook, Refused
from ...watching.recording import Recording
from .asynchronous import AsyncRecorder
from .attaching import TRAIN, Starter, begin, is_attached, version
from .foreign import NOT_UNSLOTH, has_own_adapter, is_unsloths, refusal, replacements
from .recorder import GrpoRecorder

HOOKS = (TRAIN,)
RECORDERS: dict[str, type[AsyncRecorder] | type[GrpoRecorder]] = {
    "AsyncGRPOTrainer": AsyncRecorder,
    "GRPOTrainer": GrpoRecorder,
    "RLOOTrainer": GrpoRecorder,
}
OBJECT_HOOKS = tuple(
    Hook(f"trl.{module}", f"{name}.{method}")
    for name, module in {
        "GRPOTrainer": "trainer.grpo_trainer",
        "RLOOTrainer": "trainer.rloo_trainer",
        "AsyncGRPOTrainer": "experimental.async_grpo.async_grpo_trainer",
    }.items()
    for method in RECORDERS[name].WRAPPED
)
"""The watched methods of a trainer object, for the check of an installed version; `start` puts them on one object."""
UNSLOTHS = "unsloth's"
WRAPPED = GrpoRecorder.WRAPPED
ANOTHERS = (
    "methods of TRL's trainer are replaced in a subclass: %s. It is recorded as TRL's own; if rows are missing, this is why: "
    "please report it"
)


def recorder(recording: Recording) -> Starter:
    """Attaches to TRL's trainers while they train; under `ratioscope run` not to those that have an adapter of their own."""

    def takes(trainer: Trainer) -> bool:
        others = is_installed() and has_own_adapter(trainer)
        return _kind(trainer) is not None and not is_attached(trainer) and not others

    return Starter(recording, takes, start)


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Wraps the trainer's methods and adds a callback; the returned call undoes both."""
    made = RECORDERS[_demanded(trainer)]
    if (methods := replacements(trainer, made.WRAPPED)) is not None:
        warn(ANOTHERS, methods)
    return begin(trainer, recording, made, f"trl {version()}")


def _kind(trainer: Trainer) -> str | None:
    """The name of the most derived known class of the trainer; a user's subclasses are skipped. None if no class is known."""
    for base in type(trainer).__mro__:
        if base.__name__ in RECORDERS and f"{base.__module__}.".startswith("trl."):
            return base.__name__
    return UNSLOTHS if is_unsloths(trainer) else None


def _demanded(trainer: Trainer) -> str:
    kind = _kind(trainer)
    if kind is None or kind == UNSLOTHS:
        raise Refused(NOT_UNSLOTH)
    lacking = [name for name in RECORDERS[kind].WRAPPED if not callable(getattr(trainer, name, None))]
    if lacking:
        raise Refused(
            f"trl {version()} has no {', '.join(lacking)}, so nothing is recorded; training goes on. This adapter is written "
            "for 1.16: pip install 'trl==1.16.*'"
        )
    if (reason := refusal(trainer, RECORDERS[kind].WRAPPED)) is not None:
        raise Refused(reason)
    return kind
