"""unsloth (written from 2026.10.9): the trainers that it generates from TRL's source, each watched while it trains.

UnslothGRPOTrainer    recorder.py: rollout, old, current and reference log-probs, where its own loss takes them
UnslothRLOOTrainer    its loss is TRL's, so TRL's recorder watches it

The generated module holds copies of unsloth_zoo's functions, so these are watched there and not in unsloth_zoo. Compiled code is
not touched: a wrapper inside it would change how it is compiled. unsloth is AGPL-3.0; nothing of it is copied here.
"""

from collections.abc import Callable

from ...foreign import Trainer
from ...watching.hooks import Hook, Refused
from ...watching.recording import Recording
from ..installed_name import installed
from ..trl.attaching import begin, is_attached
from ..trl.foreign import UNSLOTH, is_unsloths
from ..trl.recorder import GrpoRecorder
from ..trl.rloo import is_rloo
from ..trl.starter import TRAIN, Starter
from .recorder import UnslothRecorder

HOOKS = (
    TRAIN,
    *(Hook(name, f"{name}.train", before="begin", after="end", needed=False) for name in UNSLOTH),
)
"""The generated classes keep the `train` that transformers had when they were made."""
NEEDED = "unsloth's {} has no {}, so nothing is recorded; training goes on. This adapter is written for 2026.10.9"


def recorder(recording: Recording) -> Starter:
    """Attaches to unsloth's trainers while they train."""
    return Starter(recording, lambda trainer: is_unsloths(trainer) and not is_attached(trainer), start)


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Wraps methods of the trainer and two functions of its generated module; the returned call undoes it."""
    made = GrpoRecorder if is_rloo(trainer) else UnslothRecorder
    lacking = [name for name in made.WRAPPED if not callable(getattr(trainer, name, None))]
    if made is UnslothRecorder:
        lacking += UnslothRecorder.lacking(trainer)
    if lacking:
        raise Refused(NEEDED.format(type(trainer).__name__, ", ".join(lacking)))
    return begin(trainer, recording, made, installed("unsloth"))
