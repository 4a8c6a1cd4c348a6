"""Which logged number is a metric of ours: only where the trainer's definition, in the trainer's version, is the same.

Any other number keeps the trainer's name. metrics/logged_names.py has of each how it differs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ratioscope.errors import ConfigError
from ratioscope.metrics.definitions.registry import is_metric
from ratioscope.metrics.logged_names import (
    LoggedName,
    in_any_trainer,
    likely_trainers,
    logged_name,
    logged_names,
    trainers,
)

from .number_row import STEP_NAMES

OWN = "ratioscope"
"""The dialect of what `ratioscope wandb sync` and `ratioscope sync` write: ratioscope/<gap>/<metric>."""


def agreements() -> tuple[LoggedName, ...]:
    """Every number of a trainer that is a metric of ours."""
    return tuple(row for trainer in trainers() for row in logged_names(trainer) if row.same)


@dataclass
class LoggedMetrics:
    """The metric of ours that each name of a log is, by the dialect and version of its trainer."""

    dialect: str | None = None
    version: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    """name -> metric, as the user says with --map."""
    drawn: dict[str, str] = field(default_factory=dict)
    """metric -> the name that it is drawn from. The first name that is met keeps it."""

    def metric(self, name: str) -> str | None:
        """`<gap>/<metric>`, or None for a number that keeps its own name."""
        metric = self.given.get(name) or self._of_table(name)
        return metric if metric is not None and self.drawn.setdefault(metric, name) == name else None

    def why_own(self, name: str) -> str:
        """Why a number keeps its own name."""
        if (taken := self.given.get(name) or self._of_table(name)) is not None:
            return f"{taken} is drawn from {self.drawn.get(taken, 'another name')}"
        return why_own(name, self.dialect, self.version)

    def _of_table(self, name: str) -> str | None:
        if name.startswith(f"{OWN}/"):
            metric = name.removeprefix(f"{OWN}/")
            return metric if is_metric(metric) else None
        row = logged_name(self.dialect, name) if self.dialect else None
        return row.near if row is not None and row.same and _holds(row, self.version) else None


def since_versions(names: Collection[str], trainer: str | None, version: str | None) -> tuple[LoggedName, ...]:
    """The numbers that would be metrics of ours if the trainer's version, which the import was not told, is new enough."""
    if version or trainer not in trainers():
        return ()
    rows = (logged_name(trainer, name) for name in names)
    return tuple(row for row in dict.fromkeys(rows) if row is not None and row.same and row.since)


def why_own(name: str, trainer: str | None, version: str | None) -> str:
    """Why a number keeps its own name, in the words of the table."""
    row = logged_name(trainer, name) if trainer in trainers() else None
    if row is not None and row.same and not _holds(row, version):
        known = f"{trainer} {version} is older" if version else f"name it with --dialect {trainer}@VERSION"
        return f"it is {row.near} since {trainer} {row.since} alone, and {known}"
    if name in STEP_NAMES:
        return "it counts steps"
    if (row := row or in_any_trainer(name)) is None:
        return "its definition is not known"
    if row.near:
        return f"it comes close to {row.near}: {row.note or 'averaged otherwise'}"
    return row.note or "no metric of ours has its definition"


def trainer_named(text: str | None) -> tuple[str | None, str | None]:
    """(trainer, version) of TRAINER or TRAINER@VERSION. ConfigError for an unknown one."""
    name, _, version = (text or "").partition("@")
    if name and name not in (*trainers(), OWN):
        raise ConfigError(f"--dialect {text}: there is no trainer {name!r}; wanted one of {', '.join(trainers())}")
    if version and _numbers(version) is None:
        raise ConfigError(f"--dialect {text}: {version!r} is no version; wanted numbers, such as verl@0.9.1")
    return name or None, version or None


def likely_trainer(names: Iterable[str]) -> tuple[str | None, str | None]:
    """(trainer, None) of the trainer that most of these names are of, or (None, why it cannot be told)."""
    own = set(names)
    if any(name.startswith(f"{OWN}/") for name in own):
        return OWN, None
    best = likely_trainers(own)
    if len(best) == 1:
        return best[0], None
    return (
        None,
        f"its names are those of {' and '.join(best)} alike; to say which: --dialect {best[0]}" if best else None,
    )


def _holds(each: LoggedName, version: str | None) -> bool:
    if not each.since:
        return True
    own, first = _numbers(version or ""), _numbers(each.since)
    return own is not None and first is not None and own >= first


def _numbers(version: str) -> tuple[int, ...] | None:
    """The numbers of a version; None for a text without them.

    >>> _numbers("0.9.1"), _numbers("0.8.0.dev0"), _numbers("main")
    ((0, 9, 1), (0, 8, 0), None)
    """
    numbers = []
    for part in version.removeprefix("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) or None
