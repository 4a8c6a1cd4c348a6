"""Both scorers read the same tokens, and each of them in other arms: the rows of the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError

from ..engines import Engine
from ..model import Referee
from . import engine_arms
from .command import Command, output_of
from .comparison import Columns, Comparison, Pair, Reader, Wanted, columns, compared
from .limits import Limits, breaches

Scorer = Engine | Referee | Command
OnArm = Callable[[int, int, str], None]
"""A function of (arms done, arms, the name of the one that begins)."""
ARMS = ("again", "batch", "packed", "prefix", "decode", "adapter")
OWN_BATCHES = "a command chooses its batches itself"
ABSENT: Mapping[type, Mapping[str, str]] = {
    Engine: {
        "packed": "a server lays out its batches itself",
        "adapter": "no adapter is loaded into a server: load one and give it as URL#NAME, or with --sync",
    },
    Referee: {},
    Command: {
        "batch": OWN_BATCHES,
        "packed": OWN_BATCHES,
        "prefix": "a command has no prefix cache that could be switched from here",
        "decode": "a command scores given tokens and samples none",
        "adapter": "the weights of a command are not known here: --sync can change them",
    },
}
"""Kind of scorer -> arm -> why that kind has none."""
SYNC, AFTER = "sync", "after sync"
"""The arm of --sync, and its second reading."""


@dataclass(frozen=True)
class Row:
    """Two readings of the same tokens, compared and judged."""

    arm: str
    """A name of ARMS, "sync", or "" for two scorers."""
    who: str
    """The name of the scorer, or of both."""
    pair: Pair
    found: Comparison
    """Their comparison."""
    broken: list[str]
    """Faults in words: limits that are broken, a perturbation that moved nothing, or one that was not taken back."""


@dataclass
class Parity:
    """The answer."""

    names: Sequence[str]
    """The names of the scorers, one or two."""
    limits: Limits
    rows: list[Row] = field(default_factory=list)
    """The row of both scorers first."""
    absent: list[tuple[str, str, str]] = field(default_factory=list)
    """(arm, scorer, why it is not available)."""
    readings: dict[str, Columns] = field(default_factory=dict)
    """Name -> a reading of the tokens that all scorers read; first those of the scorers, "a" and "b"."""

    @property
    def broken(self) -> list[str]:
        """All that is wrong, in words."""
        return [f"{row.arm or 'both'}, {row.who}: {words}" for row in self.rows for words in row.broken]

    def add(self, arm: str, who: str, found: list[Pair] | str) -> None:
        """Adds the rows of an arm, or why there is none, and keeps the readings of one scorer."""
        if isinstance(found, str):
            self.absent.append((arm, who, found))
            return
        for pair in found:
            comparison = compared(*pair.columns)
            self.rows.append(Row(arm, who, pair, comparison, _broken(pair.wanted, comparison, self.limits)))
            for title, own in zip((pair.earlier, pair.later), pair.columns, strict=True):
                is_kept = who not in self.names or any(own is kept for kept in self.readings.values())
                if not pair.is_of_others and not is_kept:
                    self.readings[f"{'ab'[self.names.index(who)]}_{title.replace(' ', '_')}"] = own


def _broken(wanted: Wanted, found: Comparison, limits: Limits) -> list[str]:
    if wanted == "moved" and found.first is None:
        return ["the perturbation moved no log-prob: it did not arrive"]
    if wanted == "equal" and found.first is not None:
        return ["the log-probs are not those from before: it was not taken back"]
    return breaches(found, limits) if wanted == "within" else []


def arms_of(text: str | None) -> tuple[str, ...]:
    """The arms of "batch,prefix"; all without a text, none for "none". ConfigError for a name of none."""
    names = ARMS if text is None else tuple(part.strip() for part in text.split(",") if part.strip() != "none")
    if unknown := [name for name in names if name not in ARMS]:
        raise ConfigError(f"--arms {unknown[0]}: wanted some of {', '.join(ARMS)}, or none; try: --arms batch,decode")
    return names


def parity(
    readers: Mapping[str, Reader], arms: Sequence[str], limits: Limits, sync: Command | None, progress: OnArm | None
) -> Parity:
    """The scorers on the same tokens, two or one, which is then read twice. sync: a command between two readings of each."""
    names, total = list(readers), 1 + len(arms) * len(readers)
    tell = progress or (lambda done, total, name: None)
    tell(0, total, "first readings")
    one, *others = readers.values()
    first, second = one.once(), others[0].once() if others else _again(one)
    done = Parity(names, limits, readings={"a": first, "b": second})
    titles, arm = (names, "") if others else (("once", "again"), "again")
    done.add(arm, " and ".join(names), [Pair(titles[0], titles[1], (first, second))])
    wanted = [(arm, name) for arm in arms for name in names if others or arm != "again"]  # it is the first row already
    for number, (arm, name) in enumerate(wanted):
        tell(1 + number, total, f"{arm}, {name}")
        done.add(arm, name, _pairs(arm, readers[name]))
    if sync is not None:
        _synced(done, readers, sync)
    _across(done)
    return done


def _again(own: Reader) -> Columns:
    return columns(own.scorer, own.sequences)


def _pairs(arm: str, own: Reader) -> list[Pair] | str:
    """The pairs of an arm, or why there is none."""
    if why := ABSENT[type(own.scorer)].get(arm):
        return why
    if arm == "again":
        return [Pair("once", "again", (own.once(), _again(own)))]
    if arm in ("batch", "packed") and len(own.sequences) < 2:
        return "there is one sequence alone"
    if isinstance(own.scorer, Engine):
        return engine_arms.ARMS[arm](own)
    try:  # the arms of models import torch
        found: list[Pair] | str = import_module(".model_arms", __package__).ARMS[arm](own)
    except RatioscopeError:
        raise
    except Exception as error:  # a model of transformers raises anything for a mask or a cache that it lacks
        said = (str(error).splitlines() or [""])[0][:200]
        return f"the model could not be read so: {type(error).__name__}: {said}"
    return found


def _synced(done: Parity, readers: Mapping[str, Reader], sync: Command) -> None:
    """Runs the command, and reads with each scorer once more."""
    output_of(sync.words, "", 1 << 24, sync.seconds)
    for name, own in readers.items():
        if isinstance(own.scorer, Referee):
            done.add(SYNC, name, "its weights are in this process, where no command reaches them")
        else:
            pair = Pair("before sync", AFTER, (own.once(), _again(own)), wanted="any" if len(readers) > 1 else "within")
            done.add(SYNC, name, [pair])


def _across(done: Parity) -> None:
    """Adds both scorers beside each other after a perturbation of both, and after --sync."""
    for arm, title in (("adapter", "perturbed"), (SYNC, AFTER)):
        own: list[Any] = [done.readings.get(f"{letter}_{title.replace(' ', '_')}") for letter in "ab"]
        if arm == SYNC and any(each is not None for each in own):  # a model that no command reaches is as it was
            own = [done.readings[letter] if each is None else each for letter, each in zip("ab", own, strict=True)]
        if len(done.names) > 1 and all(each is not None for each in own):
            one, two = (f"{name} {title}" for name in done.names)
            done.add(arm, " and ".join(done.names), [Pair(one, two, (own[0], own[1]))])
