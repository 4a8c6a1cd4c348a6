"""Both scorers read the same tokens, and each of them in other arms: the rows of the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError

from ...presentation.digits import count, digits, percent, plus_minus
from ..engines import Engine
from ..inputs import Sequence_
from ..model import Referee
from . import engine_arms
from .arm import Arm, Known, Pair, Plan, Wanted, columns
from .command import Command, output_of
from .comparison import Columns, Comparison, compared
from .limits import PUBLISHED, Limits, Published, all_words, breaches

Scorer = Engine | Referee | Command
OnArm = Callable[[int, int, str], None]
"""A function of (arms done, arms, the name of the one that begins)."""
OWN_BATCHES = "a command chooses its batches itself"


def _of_model(name: str) -> Arm:
    """An arm of models, whose file imports torch."""

    def arm(scorer: Any, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
        try:
            found: list[Pair] | str = getattr(import_module(".model_arms", __package__), name)(
                scorer, sequences, plan, known
            )
        except RatioscopeError:
            raise
        except Exception as error:  # a model of transformers raises anything for a mask or a cache that it lacks
            said = (str(error).splitlines() or [""])[0][:200]
            return f"the model could not be read so: {type(error).__name__}: {said}"
        return found

    return arm


def _again(scorer: Scorer, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    return [Pair("once", "again", (known["base"], columns(scorer, sequences)))]


ARMS: Mapping[str, Mapping[type, Arm | str]] = {
    "again": dict.fromkeys((Engine, Referee, Command), _again),
    "batch": {
        Engine: engine_arms.together_or_alone,
        Referee: _of_model("together_or_alone"),
        Command: OWN_BATCHES,
    },
    "packed": {
        Engine: "a server lays out its batches itself",
        Referee: _of_model("packed_or_not"),
        Command: OWN_BATCHES,
    },
    "prefix": {
        Engine: engine_arms.cached_or_not,
        Referee: _of_model("cached_or_not"),
        Command: "a command has no prefix cache that could be switched from here",
    },
    "decode": {
        Engine: engine_arms.decode_or_prefill,
        Referee: _of_model("decode_or_prefill"),
        Command: "a command scores given tokens and samples none",
    },
    "adapter": {
        Engine: "no adapter is loaded into a server: load one and give it as URL#NAME, or with --sync",
        Referee: _of_model("perturbed_or_not"),
        Command: "the weights of a command are not known here: --sync can change them",
    },
}
"""Arm -> kind of scorer -> the arm, or why that kind has none."""
SYNC, AFTER = "sync", "after sync"
"""The arm of --sync, and its second reading."""


@dataclass(frozen=True)
class Row:
    """Two readings of the same tokens, compared and judged."""

    arm: str
    """A name of ARMS, "sync", or "" for two scorers."""
    who: str
    """The name of the scorer, or of both."""
    earlier: str
    """The first reading, in words."""
    later: str
    """The second one."""
    found: Comparison
    """Their comparison."""
    broken: list[str]
    """Faults in words: limits that are broken, a perturbation that moved nothing, or one that was not taken back."""
    doubt: str = ""
    """As `Pair.doubt`."""
    wanted: Wanted = "within"
    """As `Pair.wanted`."""


@dataclass
class Parity:
    """The answer."""

    names: tuple[str, str]
    """The names of both scorers; twice the same if there is one."""
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


def arms_of(text: str | None) -> tuple[str, ...]:
    """The arms of "batch,prefix"; all without a text, none for "none". ConfigError for a name of none."""
    names = tuple(ARMS) if text is None else tuple(part.strip() for part in text.split(",") if part.strip() != "none")
    if unknown := [name for name in names if name not in ARMS]:
        raise ConfigError(f"--arms {unknown[0]}: wanted some of {', '.join(ARMS)}, or none; try: --arms batch,decode")
    return names


def parity(
    scorers: Mapping[str, Scorer],
    sequences: Sequence[Sequence_],
    arms: Sequence[str],
    plan: Plan,
    limits: Limits,
    *,
    sync: Command | None = None,
    progress: OnArm | None = None,
) -> Parity:
    """The scorers on the same tokens, two or one, which is then read twice. sync: a command between two readings of each."""
    tell = progress or (lambda done, total, name: None)
    names, total = list(scorers), 1 + len(arms) * len(scorers)
    done = Parity((names[0], names[-1]))
    tell(0, total, "first readings")
    known: dict[str, Known] = {name: {"base": columns(scorer, sequences)} for name, scorer in scorers.items()}
    first = known[names[0]]["base"]
    second = known[names[1]]["base"] if len(names) > 1 else columns(scorers[names[0]], sequences)
    done.readings = {"a": first, "b": second}
    if len(names) > 1:
        done.rows.append(_row("", " and ".join(names), Pair(names[0], names[1], (first, second)), limits))
    else:
        done.rows.append(_row("again", names[0], Pair("once", "again", (first, second)), limits))
    for number, (arm, (letter, name)) in enumerate(
        (arm, own) for arm in arms for own in zip("ab", names, strict=False)
    ):
        if arm == "again" and len(names) == 1:
            continue  # it is the row of the answer
        tell(1 + number, total, f"{arm}, {name}")
        own = ARMS[arm][type(scorers[name])]
        found = own if isinstance(own, str) else own(scorers[name], sequences, plan, known[name])
        _add(done, (arm, letter, name), found, limits)
    if sync is not None:
        _synced(done, scorers, sequences, sync, limits)
    _across(done, names, limits)
    return done


def _add(done: Parity, at: tuple[str, str, str], found: list[Pair] | str, limits: Limits) -> None:
    """Adds the rows of an arm, or why there is none, and keeps its readings. at: arm, "a" or "b", and name of the scorer."""
    arm, letter, who = at
    if isinstance(found, str):
        done.absent.append((arm, who, found))
        return
    for pair in found:
        done.rows.append(_row(arm, who, pair, limits))
        for title, own in zip((pair.earlier, pair.later), pair.columns, strict=True) if pair.sequences is None else ():
            if not any(own is kept for kept in done.readings.values()):
                done.readings[f"{letter}_{title.replace(' ', '_')}"] = own


def _row(arm: str, who: str, pair: Pair, limits: Limits) -> Row:
    found = compared(*pair.columns)
    broken = []
    if pair.wanted == "within":
        broken = breaches(found, limits)
    elif pair.wanted == "moved" and found.first is None:
        broken = ["the perturbation moved no log-prob: it did not arrive"]
    elif pair.wanted == "equal" and found.first is not None:
        broken = ["the log-probs are not those from before: it was not taken back"]
    return Row(arm, who, pair.earlier, pair.later, found, broken, pair.doubt, pair.wanted)


def _synced(
    done: Parity, scorers: Mapping[str, Scorer], sequences: Sequence[Sequence_], sync: Command, limits: Limits
) -> None:
    """Runs the command, and reads with each scorer once more."""
    output_of(sync.words, "", 1 << 24, sync.seconds)
    wanted: Wanted = "any" if len(scorers) > 1 else "within"
    for letter, (name, scorer) in zip("ab", scorers.items(), strict=False):
        if isinstance(scorer, Referee):
            done.absent.append((SYNC, name, "its weights are in this process, where no command reaches them"))
            continue
        pair = Pair("before sync", AFTER, (done.readings[letter], columns(scorer, sequences)), wanted=wanted)
        _add(done, (SYNC, letter, name), [pair], limits)


def _across(done: Parity, names: Sequence[str], limits: Limits) -> None:
    """Adds both scorers beside each other after a perturbation of both, and after --sync."""
    if len(names) < 2:
        return
    for arm, title in (("adapter", "perturbed"), (SYNC, AFTER)):
        own = [done.readings.get(f"{letter}_{title.replace(' ', '_')}") for letter in "ab"]
        if arm == SYNC and any(each is not None for each in own):  # a model that no command reaches is as it was
            own = [each if each is not None else done.readings[letter] for letter, each in zip("ab", own, strict=True)]
        if own[0] is not None and own[1] is not None:
            pair = Pair(f"{names[0]} {title}", f"{names[1]} {title}", (own[0], own[1]))
            done.rows.append(_row(arm, " and ".join(names), pair, limits))


def published_beside(done: Parity) -> Iterator[tuple[Published, Row]]:
    """Each published limit, with each comparison that it is of. One scorer alone has its largest distance beside those of two."""
    judged = [row for row in done.rows if row.wanted == "within"]
    whole = max(judged, key=lambda row: row.found.distance.mean) if done.rows[0].arm else done.rows[0]
    for own in PUBLISHED:
        yield from ((own, row) for row in ([row for row in judged if row.arm == own.arm] if own.arm else [whole]))


def sentences(done: Parity, limits: Limits) -> list[str]:
    """The answer: how far both are from each other, each from itself, and what the limits say."""
    said = [*_between(done), *_within(done)]
    if done.broken:
        return [*said, f"{count(len(done.broken), 'fault')}: {'; '.join(done.broken)}."]
    number = count(sum(row.wanted == "within" for row in done.rows), "comparison")
    return [*said, f"All of {number} are within the limits: {all_words(limits)}." if limits else "No limit was given."]


def _between(done: Parity) -> Iterator[str]:
    """The distance of both scorers, in sentences."""
    found = done.rows[0].found
    own, over = found.distance, f"{count(found.distance.tokens, 'token')} of {count(found.sequences, 'sequence')}"
    who = " and ".join(done.names) if done.names[0] != done.names[1] else f"Two readings by {done.names[0]}"
    if not own.tokens:
        yield f"{who} have no token in common with a finite log-prob: nothing was measured."
    elif found.first is None:
        yield f"{who} are equal to the last bit at all {over}."
    else:
        sequence, place = found.first
        yield f"{who} differ by {plus_minus(own.mean, own.mean_error)} nats/token (mean |x|) over {over}."
        yield (
            f"{percent(found.equal)} are equal to the last bit; the first difference is at token {place} of sequence"
            f" {sequence}, both counted from 0."
        )
    if own.set_aside:
        yield f"{count(own.set_aside, 'token')} were set aside: a log-prob is not finite."


def _within(done: Parity) -> Iterator[str]:
    """The distance of each scorer from itself in its arms, a sentence each."""
    for name in dict.fromkeys(done.names):
        own = [row for row in done.rows if row.arm and row.who == name and row.wanted == "within"]
        same = [row.arm for row in own if row.found.first is None]
        apart = [
            f"{row.arm} ({digits(row.found.distance.mean)} nats/token)" for row in own if row.found.first is not None
        ]
        parts = [f"is equal to itself to the last bit in {', '.join(same)}"] if same else []
        parts += [f"differs from itself in {', '.join(apart)}"] if apart else []
        if parts:
            yield f"{name} {', and '.join(parts)}."
