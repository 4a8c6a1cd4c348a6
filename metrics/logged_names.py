"""The numbers that trainers log: the metric of ours that each is or comes near, or why none has its definition.

One table for import, pages and `explain`: metrics/known/logged_names.toml, with the names that the dialects reproduce.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.record import GAPS

from .definitions.registry import BY_NAME
from .dialects import NAMES, dialect
from .known.references import references
from .known.tables import table
from .known.trainers import trainer_named

ANY = "any trainer"
"""The heading of names that most trainers log."""
_CUTS = {
    "before": "before any truncation or mask",
    "bounded": "after truncation, before rejection",
    "after": "after truncation and masks",
}
_STATISTICS = {
    "mean": "a mean", "avg": "a mean", "max": "the largest", "min": "the smallest", "std": "a standard deviation",
    "stddev": "a standard deviation", "median": "a median",
}  # fmt: skip
"""The last word of a name -> the statistic that it stands for."""
_FAMILY = 8
"""The most names of one trainer that a part of a name may stand for."""


@dataclass(frozen=True)
class LoggedName:
    """A name, or a pattern of names, under which a trainer logs a number."""

    trainer: str
    name: str
    """It may hold * for any text."""
    near: str
    """`<gap>/<metric>` of ours that has the definition, or is nearest; empty: none is near."""
    note: str
    """The difference from `near`, or the reason why no metric of ours has the definition."""
    same: bool = False
    """True: the definition is that of `near`."""
    since: str = ""
    """The first version in which it is; empty: every version that logs the name."""
    sides: str = ""
    """The two policies that are compared, later against earlier."""
    direction: str = ""
    """The direction of a divergence, where it is not that of `near`."""
    tokens: str = ""
    """The tokens of the number, and how means over parts of the batch join."""
    cut: str = ""
    """`before` or `after` truncation and masks; empty: they do not act on it, or nothing is on record."""
    statistic: str = ""
    """The statistic, where the last word of the name tells another."""
    source: str = ""
    """The place in the trainer's code; empty: that of its family, if the table has one."""


def trainers() -> tuple[str, ...]:
    """The trainers whose names are known."""
    return tuple(_about())


def logged_names(trainer: str) -> tuple[LoggedName, ...]:
    """All names of a trainer that the table has."""
    exact, patterns = _rows(trainer)
    return (*exact.values(), *patterns)


@lru_cache(1 << 15)
def logged_name(trainer: str, name: str) -> LoggedName | None:
    """The row of a number, by the name that the trainer, its tracker or a callback gives it; None: not known.

    >>> logged_name("trl", "train/sampling/sampling_logp_difference/max").near
    'mismatch/max_abs_log_ratio'
    """
    about = _about().get(trainer, {})
    name = re.sub(about.get("tag", "$^"), "", name)
    for prefix in about.get("held_out", ()):
        if name.startswith(prefix):
            own = (row for row in logged_names(trainer) if row.name.startswith(prefix) and fnmatchcase(name, row.name))
            return next(own, None) or _held_out(trainer, prefix, name)
    before = about.get("prefix", ())
    forms = (name, *map(name.removeprefix, before))
    bare = (row for each in forms if (row := _found(trainer, each)))
    whole = (row for each in before if (row := _rows(trainer)[0].get(f"{each}{name}")))
    found = next(chain(bare, whole), None)
    if found is not None or "like" not in about or not {*forms}.isdisjoint(about.get("without", "").split()):
        return found
    other = logged_name(about["like"], name)
    return None if other is None else replace(other, trainer=trainer)


def named_by_trainers(name: str, trainer: str | None = None) -> list[tuple[str, LoggedName]]:
    """(name, row) of every number that the name stands for, by the trainers that log it; empty: not known.

    A name may lack the parts before its last one, or be the first part of several, if it is more than a word such as mean.
    """
    asked = trainers() if trainer is None else (trainer,)
    if found := [(name, row) for each in asked if (row := logged_name(each, name)) is not None]:
        return [pair for pair in found if "*" not in pair[1].name] or found
    for each in asked:
        own = _rows(each)[0].items()
        parts = [pair for pair in own if pair[0].endswith(f"/{name}") or pair[0].startswith(f"{name}/")]
        found += parts if len(parts) <= _FAMILY and (trainer or re.search("[_/]", name)) else []
    return found or [(name, row) for row in [_found(ANY, name)] if row is not None]


def in_any_trainer(name: str) -> LoggedName | None:
    """The row of a name that most trainers give to the same kind of number; None: not known."""
    return _found(ANY, name)


def nearest_names(name: str, trainer: str | None = None) -> list[str]:
    """The known names that look most alike, at most four."""
    known = {own for each in (trainers() if trainer is None else (trainer,)) for own in _rows(each)[0]}
    known |= set() if trainer else set(BY_NAME)
    return get_close_matches(name, sorted(known), n=4)


def asked_of(text: str) -> tuple[str, str | None]:
    """(name, trainer) of NAME, NAME@TRAINER or TRAINER/NAME; the trainer is None where the text names none.

    ConfigError for a trainer whose names are in no table.

    >>> asked_of("kl@NeMo-RL"), asked_of("val-core/math/mean@8")
    (('kl', 'nemo_rl'), ('val-core/math/mean@8', None))
    """
    name, _, last = text.rpartition("@")
    trainer = trainer_named(last) if name else None
    if trainer in _about():
        return name, trainer
    is_ending = any(re.search(about["tag"], text) for about in _about().values() if "tag" in about)
    if name and last.isidentifier() and not is_ending:
        known = ", ".join(sorted(_about()))
        raise ConfigError(f"not known: the names that {last} logs are in no table; known are those of {known}")
    first, _, rest = text.partition("/")
    return (rest, first) if first in _about() else (text, None)


def facts_of(row: LoggedName, name: str = "") -> list[tuple[str, str]]:
    """(heading, text) of all that the table has on a number. name: the whole name, where the row is of a pattern."""
    metric = BY_NAME[row.near.partition("/")[2]] if row.near else None
    since = f", since {row.trainer} {row.since}" if row.since else ""
    other = f"no metric of ours; it comes close to {row.near}" if row.near else "no metric of ours has its definition"
    facts = [
        ("trainer", f"{row.trainer}{_read(row)}"),
        ("is", f"{row.near}{since}" if row.same else other),
        ("measures", metric.meaning if metric else ""),
        ("statistic", "" if metric else row.statistic or _statistic(name or row.name)),
        ("compares", row.sides),
        ("old", _about().get(row.trainer, {}).get("old", "") if "old" in row.sides.split() else ""),
        ("direction", row.direction or _direction(row.near)),
        ("tokens", row.tokens if row.sides else ""),
        ("truncation", _CUTS.get(row.cut, "")),
        ("note", row.note),
        ("usual", usual_of(row.near)),
        ("source", row.source or source_of(row.trainer, name or row.name)),
    ]
    return [(heading, text) for heading, text in facts if text]


def _statistic(name: str) -> str:
    """The statistic that the last word of a name stands for; empty for none, as for groups of zero_std, which are counted."""
    return "" if name.endswith("zero_std") else _STATISTICS.get(re.split("[/_]", name)[-1], "")


def source_of(trainer: str, name: str) -> str:
    """The files of the trainer that hold the name, by the family that it is of; empty: none is on record."""
    about = _about().get(trainer, {})
    bare = (name, *map(name.removeprefix, about.get("prefix", ())))
    files = table("logged_names")["source"].get(trainer, {}).items()
    families = ((own, file) for file, names in files for own in names.split())
    fits = [(len(own.replace("*", "")), file) for own, file in families if any(fnmatchcase(each, own) for each in bare)]
    return max(fits)[1] if fits else source_of(about["like"], name) if "like" in about else ""


def usual_of(near: str) -> str:
    """The usual size of a metric in published runs, or its value where both policies agree; empty for no metric.

    The perplexity of one policy has none, and a count neither.
    """
    if near in ("mismatch/kl_k3", "total/kl_k3"):
        sizes = (("{:g} to {:g}".format(*each.usual) if each.usual[1] else "0", each.words) for each in references())
        return "at fresh weights, nats/token: " + "; ".join(f"{size} in {words}" for size, words in sizes)
    sides = _sides(near)
    if not sides or sides.endswith("alone"):
        return ""
    return f"{BY_NAME[near.partition('/')[2]].neutral:g} where both policies agree"


def likely_trainers(names: Iterable[str]) -> list[str]:
    """The trainers that most of these names are of; empty: none is told by them. More than one: they cannot be told apart.

    Names of a distance count first, then those of other numbers that the trainers log. A fork logs names of its own beside
    those of its origin, so names that both have are the origin's; so are those that a trainer has from another's package.
    """
    own = set(names)
    rows = {
        each: [row for name in own if (row := logged_name(each, name)) and _is_own(each, row)] for each in trainers()
    }
    counts = {each: (sum(bool(row.near or row.sides) for row in found), len(found)) for each, found in rows.items()}
    most = max(counts.values(), default=(0, 0))
    best = [each for each, count in counts.items() if count == most and most[0]]
    return [each for each in best if not {_about()[each].get("fork"), _about()[each].get("like")} & {*best}]


def _is_own(trainer: str, row: LoggedName) -> bool:
    """False for a number that the code of another trainer logs, unless this one is its fork or has all of its names."""
    package = (row.source or source_of(trainer, row.name)).partition("/")[0]
    return package in ("", trainer) or package not in trainers() or not {"fork", "like"}.isdisjoint(_about()[trainer])


def _direction(near: str) -> str:
    """The direction of a metric in a gap, by the names of the two policies."""
    gap, _, metric = near.partition("/")
    if gap not in GAPS:
        return ""
    earlier, later = GAPS[gap]
    sampled, _, drift = BY_NAME[metric].direction.partition(" for mismatch and total; for drift ")
    return (drift or sampled if gap == "drift" else sampled).replace("earlier", earlier).replace("later", later)


def _found(trainer: str, name: str) -> LoggedName | None:
    exact, patterns = _rows(trainer)
    return exact.get(name) or next((each for each in patterns if fnmatchcase(name, each.name)), None)


def _about() -> dict[str, Any]:
    """trainer -> facts about its log. Any: the shape is that of the TOML file."""
    about: dict[str, Any] = table("logged_names")["about"]
    return about


def _kind(kind: str) -> list[Any]:
    """[words], or [words, further facts]."""
    text = table("logged_names")["kinds"][kind]
    return [text] if isinstance(text, str) else text


def _held_out(trainer: str, prefix: str, name: str) -> LoggedName:
    """The row of a number of the evaluation set, with the words of the same number of training if the trainer has it too."""
    about = _about()[trainer]
    row = _row(trainer, f"{prefix}*", ["", *_kind("held_out")], about)
    trained = name.removeprefix(prefix)
    is_one = about.get("mirrored") and not trained.startswith(tuple(about["held_out"]))  # else a prefix stands twice
    same = logged_name(trainer, trained) if is_one else None
    if same is None:
        return row
    words, source = ", ".join(filter(None, (same.near, same.note))), same.source or source_of(trainer, trained)
    note = f"{row.note}; the number of this name in training: {words}"
    return replace(row, note=note, statistic=same.statistic, source=source)


@cache
def _rows(trainer: str) -> tuple[dict[str, LoggedName], tuple[LoggedName, ...]]:
    """(name -> row, patterns): the pattern with most characters beside * first."""
    listed, about = table("logged_names"), _about().get(trainer, {})
    tables = [rows for heading, rows in listed.items() if trainer == heading or trainer in heading.split()]
    named = [
        (name, _words_of(row, place))
        for rows in tables
        for names, row in rows.items()
        for place, name in enumerate(names.split())
    ]
    own = [_row(trainer, name, row, about) for name, row in named]
    for kind, names in listed["plain"].get(trainer, {}).items():
        own += [_row(trainer, name, ["", *_kind(kind)], about) for name in names.split()]
    exact = {each.name: each for each in own if "*" not in each.name}
    patterns = sorted((each for each in own if "*" in each.name), key=lambda row: -len(row.name.replace("*", "")))
    if trainer in NAMES:
        for name in {**dialect(trainer).CANONICAL, **dialect(trainer).NOTES}:
            like = exact.get(name) or next((each for each in patterns if fnmatchcase(name, each.name)), None)
            exact[name] = _of_dialect(trainer, name, like, about)
    return exact, tuple(patterns)


def _words_of(row: Any, place: int) -> Any:
    """A row of several names for the one at this place, whose words of `each` take the place of {}."""
    each = row[2].get("each") if len(row) > 2 else None
    facts = {key: value for key, value in row[2].items() if key != "each"} if each else {}
    return [row[0], row[1].replace("{}", each[place]), facts] if each else row


def _row(trainer: str, name: str, row: Any, about: dict[str, Any]) -> LoggedName:
    """row: as the TOML file has it."""
    near, note = row[:2]
    facts = row[2] if len(row) > 2 else {}
    plain = {"sides": _sides(near), "tokens": about.get("tokens", "")}
    return LoggedName(trainer, name, near, note, **(plain | facts))


def _sides(near: str) -> str:
    """The two policies of a metric in a gap, later against earlier; the one policy of a perplexity; empty for none or a count."""
    gap, _, name = near.partition("/")
    policies = () if near and BY_NAME[name].estimator == "count" else GAPS.get(gap, ())
    alone = near.rpartition("_")[2]
    return f"{alone} alone" if alone in policies else " against ".join(reversed(policies))


def _of_dialect(trainer: str, name: str, like: LoggedName | None, about: dict[str, Any]) -> LoggedName:
    """A name of a dialect, with what a row of the table adds: the meaning of a number that no metric of ours is near."""
    tables = dialect(trainer)
    near = tables.CANONICAL.get(name) or ""
    row = _row(trainer, name, (near, tables.NOTES.get(name, "")), about)
    if like is None:
        return row
    same, both = like.name == name and like.same, "; ".join(filter(None, (like.note, row.note)))
    note = (row.note or ("" if like.name != name else like.note)) if near else both
    since, sides = like.since if same else "", row.sides or like.sides
    return replace(like, name=name, near=near, note=note, same=same, since=since, sides=sides)


def _read(row: LoggedName) -> str:
    if row.trainer in NAMES and row.name in {**(tables := dialect(row.trainer)).CANONICAL, **tables.NOTES}:
        return f" (compared with {', '.join(tables.VERSIONS)})"
    return f" (read in {_about()[row.trainer]['read']})" if row.trainer in _about() else ""
