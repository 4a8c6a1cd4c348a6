"""Reference ranges: the size that a gap usually has in runs of one class. They are context for a run's floor, and no grade."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from .tables import table


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run that decide which published measurements it can be compared with. None: not on record."""

    model: str | None = None
    """Name of the model."""
    billions: float | None = None
    """Parameters of the model in billions."""
    moe: bool | None = None
    """Whether the model is a mixture of experts."""
    hybrid: bool | None = None
    """Whether the model has linear attention or state-space layers."""
    vision: bool | None = None
    """Whether the model reads images."""
    replay: bool | None = None
    """Whether the trainer replays the engine's routes through the experts."""
    engine: str | None = None
    """Precision of the engine's weights: bfloat16, float16, float32, float8, float4, int8 or int4."""
    trainer: str | None = None
    """Precision in which the trainer computes, in the same words."""
    exact: bool = False
    """Whether the settings ask both sides to compute the same bits."""


FACTS: Mapping[str, str] = {
    "model": "the model's name",
    "billions": "the size of the model",
    "moe": "whether the model is a mixture of experts",
    "hybrid": "whether the model has linear attention",
    "vision": "whether the model reads images",
    "replay": "whether the engine's routes are replayed",
    "engine": "the engine's precision",
    "trainer": "the trainer's precision",
}
"""Fact -> its name in sentences."""
OF_THE_MODEL = ("billions", "moe", "hybrid", "vision")
"""Facts that follow from the model's name."""


@dataclass(frozen=True)
class Measurement:
    """One published value or bound, in the quantity of its source."""

    setting: str
    """Model, engine, trainer and task."""
    quantity: str
    """The quantity and its estimator, as its source defines it."""
    value: str
    kind: Literal["measured", "limit", "ours"]
    """`limit` is a bound that somebody tests or advises; `ours` was measured in tests/data/real."""
    form: Literal["thread", "source", "published"]
    """A thread, the code or documentation of a repository, or a blog or paper."""
    source: str


@dataclass(frozen=True)
class Reference:
    """The usual size of a gap in one class of runs."""

    name: str
    words: str
    """The class, for a sentence that begins "usual for"."""
    usual: tuple[float, float]
    """Range of K3 per token, in nats, that most measurements have at fresh weights and without truncation."""
    odd: float
    """K3 above every healthy value that was published."""
    note: str
    """A further condition; empty if there is none."""
    measurements: tuple[Measurement, ...]
    fits: Mapping[str, Any]
    """Fact -> its wanted value. `Any`: a boolean, bounds, or a list of precisions."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of its measurements, each once."""
        return tuple(dict.fromkeys(each.source for each in self.measurements))


@cache
def references() -> tuple[Reference, ...]:
    """Every class of runs with its measurements."""
    rows = table("reference_ranges")
    references = []
    for row in rows["class"]:
        measured = [dict(each) for each in rows["measurement"] if each["class"] == row["name"]]
        own = tuple(Measurement(**{key: value for key, value in each.items() if key != "class"}) for each in measured)
        low, high = row["usual"]
        references.append(
            Reference(row["name"], row["words"], (low, high), row["odd"], row.get("note", ""), own, row["fits"])
        )
    return tuple(references)


def reference_for(facts: RunFacts) -> Reference | None:
    """The class of a run with these facts; None if the facts are too few, or if nobody has published that class.

    >>> reference_for(RunFacts("Qwen3-8B", 8, False, False, False, None, "bfloat16", "bfloat16")).name
    'dense bf16'
    """
    return next((each for each in references() if all(_states(each, facts).values())), None)


def missing_facts(facts: RunFacts) -> tuple[str, ...]:
    """Facts without which the class of the run cannot be told. Empty if the class is known or was never published."""
    if reference_for(facts) is not None:
        return ()
    open_classes = [states for each in references() if False not in (states := _states(each, facts)).values()]
    unknown = {fact for states in open_classes for fact, state in states.items() if state is None}
    if facts.model is None and unknown & set(OF_THE_MODEL):
        unknown = {"model", *unknown} - set(OF_THE_MODEL)
    if not facts.moe:
        unknown -= {"replay"}  # only a mixture of experts has routes
    return tuple(fact for fact in FACTS if fact in unknown)


def _states(reference: Reference, facts: RunFacts) -> dict[str, bool | None]:
    """Fact -> whether it has the wanted value; None if it is not on record."""
    states: dict[str, bool | None] = {}
    for fact, wanted in reference.fits.items():
        if fact == "any":
            states |= _either(facts, wanted)
        elif (value := getattr(facts, fact)) is None:
            states[fact] = None
        elif fact == "billions":
            states[fact] = wanted[0] < value <= wanted[1]
        else:
            states[fact] = value in wanted if isinstance(wanted, list) else value == wanted
    return states


def _either(facts: RunFacts, wanted: Sequence[str]) -> dict[str, bool | None]:
    """Whether one of the two precisions is a wanted one."""
    sides = {"engine": facts.engine, "trainer": facts.trainer}
    if any(side in wanted for side in sides.values()):
        return {"engine": True}
    unknown = [name for name, side in sides.items() if side is None]
    return dict.fromkeys(unknown, None) if unknown else {"engine": False}
