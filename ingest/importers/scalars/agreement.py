"""Which logged number is a metric of ours: only where the trainer's definition, in the trainer's version, is the same.

Any other number keeps the trainer's name. `metrics/dialects` says of many how they differ.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.known.tables import table
from ratioscope.record import GAPS

from .number_row import STEP_NAMES

ANY = "any trainer"
"""The heading of names that most trainers log, in logged_names.toml."""
OWN = "ratioscope"
"""The dialect of what `ratioscope wandb sync` and `ratioscope sync` write: ratioscope/<gap>/<metric>."""


@dataclass(frozen=True)
class Agreement:
    """A number of a trainer that is defined as a metric of ours."""

    dialect: str
    name: str
    """The trainer's name for it."""
    metric: str
    """`<gap>/<metric>`."""
    source: str
    """The place in the trainer's code, and what was compared."""
    since: str = ""
    """The first version in which the definitions agree; empty: every version that logs the name."""


_HELPER = (
    "trainer/ppo/rollout_corr_helper.py: the masked mean over all tokens of the batch, once per step, by the driver"
)
_OVERWRITTEN = f"{_HELPER}; from 0.6.1 to 0.7.1 workers overwrote it with current over rollout"
_DEBUG = "utils/debug/metrics.py: over all response tokens of the batch, of old and rollout"
AGREEMENTS = (
    Agreement("verl", "rollout_corr/kl", "mismatch/kl_direct", _OVERWRITTEN, "0.8.0"),
    Agreement("verl", "rollout_corr/k3_kl", "mismatch/kl_k3", _OVERWRITTEN, "0.8.0"),
    Agreement("verl", "mismatch/mismatch_kl", "mismatch/kl_direct", "mismatch_helper.py of October 2025: the same mean"),
    Agreement("verl", "mismatch/mismatch_k3_kl", "mismatch/kl_k3", "mismatch_helper.py of October 2025: the same mean"),
    Agreement("verl", "training/rollout_probs_diff_mean", "mismatch/prob_diff", _DEBUG),
    Agreement("verl", "training/rollout_probs_diff_max", "mismatch/max_prob_diff", _DEBUG),
    Agreement("verl", "training/rollout_actor_probs_pearson_corr", "mismatch/prob_correlation", _DEBUG),
    Agreement(
        "skyrl", "policy/rollout_train_logprobs_abs_diff_mean", "mismatch/abs_log_ratio",
        "trainer.py: abs(rollout - old) pooled over all tokens with a positive mask",
    ),
    Agreement(
        "skyrl", "policy/rollout_train_logprobs_abs_diff_max", "mismatch/max_abs_log_ratio",
        "trainer.py: abs(rollout - old) pooled over all tokens with a positive mask",
    ),
    Agreement(
        "trl", "sampling/sampling_logp_difference/max", "mismatch/max_abs_log_ratio",
        "grpo_trainer.py: the largest of all processes; the mean beside it is a mean over processes, so it keeps its name",
    ),
)  # fmt: skip


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
        agreed = (each for each in AGREEMENTS if each.dialect == self.dialect and each.name == name)
        return next((each.metric for each in agreed if _holds(each, self.version)), None)


def since_versions(names: Collection[str], trainer: str | None, version: str | None) -> tuple[Agreement, ...]:
    """The numbers that would be metrics of ours if the trainer's version, which the import was not told, is new enough."""
    if version:
        return ()
    return tuple(each for each in AGREEMENTS if each.dialect == trainer and each.since and each.name in names)


def why_own(name: str, trainer: str | None, version: str | None) -> str:
    """Why a number keeps its own name, in the words of the tables."""
    for each in AGREEMENTS:
        if each.dialect == trainer and each.name == name and not _holds(each, version):
            known = f"{trainer} {version} is older" if version else f"name it with --dialect {trainer}@VERSION"
            return f"it is {each.metric} since {trainer} {each.since} alone, and {known}"
    if name in STEP_NAMES:
        return "it counts steps"
    if trainer is None or trainer == OWN:
        return "its definition is not known"
    tables = dialect(trainer)
    near, note = tables.CANONICAL.get(name), tables.NOTES.get(name)
    if near:
        return f"it comes close to {near}: {note or 'averaged otherwise'}"
    return note or "no metric of ours has its definition"


def named_by_trainers(name: str) -> list[tuple[str, str]]:
    """(trainer, its own name) of the numbers that this name may stand for; empty where no table has it.

    The name may have a prefix, as trackers and callbacks add one, or be the end or the beginning of the trainer's.
    """
    known = [(trainer, own) for trainer in NAMES for own in sorted(_known_names(trainer) | set(dialect(trainer).NOTES))]
    listed = [(trainer, own) for trainer, names in _listed().items() if trainer != ANY for own in names]
    ends = [name.split("/", skipped)[-1] for skipped in range(1, name.count("/") + 1)]
    for found in (
        [each for each in known if name in (each[1], "/".join(each))],
        [(trainer, name) for trainer in _listed() if trainer != ANY and _near(trainer, name)],
        [each for each in known if name.endswith(f"/{each[1]}")],
        [(trainer, end) for end in ends for trainer in _listed() if trainer != ANY and _near(trainer, end)],
        [each for each in (*known, *listed) if f"/{each[1]}".endswith(f"/{name}") or each[1].startswith(f"{name}/")],
        [(ANY, name)] if _near(ANY, name) else [],
    ):
        if found:
            return found
    return []


def facts_of(trainer: str, name: str) -> list[tuple[str, str]]:
    """(heading, text) of all that the tables know of a trainer's number."""
    agreed = [each for each in AGREEMENTS if (each.dialect, each.name) == (trainer, name)]
    near, note = _near(trainer, name) or ("", "")
    compared = ""
    if trainer in NAMES and name in {*_known_names(trainer), *dialect(trainer).NOTES}:
        tables = dialect(trainer)
        near, note = tables.CANONICAL.get(name) or "", tables.NOTES.get(name, "")
        compared = f" (compared with {', '.join(tables.VERSIONS)})"
    other = f"no metric of ours; it comes close to {near}" if near else "no metric of ours has its definition"
    return [
        ("trainer", f"{trainer}{compared}"),
        *(("is", f"{each.metric}{f', since {trainer} {each.since}' if each.since else ''}") for each in agreed),
        *([] if agreed else [("is", other)]),
        *([("note", note)] if note else []),
        *(("source", each.source) for each in agreed),
        *((f"in {each}", own[1]) for each in _listed() if each not in (trainer, ANY) and (own := _near(each, name))),
    ]


def _listed() -> dict[str, Any]:
    """trainer -> its names, as metrics/known/logged_names.toml has them. Any: a table of another file may differ in shape."""
    return table("logged_names")


def _near(trainer: str, name: str) -> tuple[str, str] | None:
    """(metric of ours that is nearest, or "", the difference) of a name that logged_names.toml has; None for another."""
    found = (facts for pattern, facts in _listed().get(trainer, {}).items() if fnmatchcase(name, pattern))
    return next(((near, note) for near, note in found), None)


def is_metric(name: str) -> bool:
    """True for `<gap>/<metric>` of ours."""
    gap, _, metric = name.partition("/")
    return gap in GAPS and metric in BY_NAME and BY_NAME[metric].is_of(gap)


def trainer_named(text: str | None) -> tuple[str | None, str | None]:
    """(dialect, version) of TRAINER or TRAINER@VERSION. ConfigError for an unknown one."""
    name, _, version = (text or "").partition("@")
    if name and name not in (*NAMES, OWN):
        raise ConfigError(f"--dialect {text}: there is no trainer {name!r}; wanted one of {', '.join(NAMES)}")
    if version and _numbers(version) is None:
        raise ConfigError(f"--dialect {text}: {version!r} is no version; wanted numbers, such as verl@0.9.1")
    return name or None, version or None


def likely_trainer(names: Iterable[str]) -> tuple[str | None, str | None]:
    """(dialect, None) of the trainer that most of these names are of, or (None, why it cannot be told)."""
    own = set(names)
    if any(name.startswith(f"{OWN}/") for name in own):
        return OWN, None
    known = {name: len(own & _known_names(name)) for name in NAMES}
    most = max(known.values())
    best = [name for name, count in known.items() if count == most and most]
    if len(best) == 1:
        return best[0], None
    return (
        None,
        f"its names are those of {' and '.join(best)} alike; to say which: --dialect {best[0]}" if best else None,
    )


def _known_names(trainer: str) -> set[str]:
    return {*dialect(trainer).CANONICAL, *(each.name for each in AGREEMENTS if each.dialect == trainer)}


def _holds(each: Agreement, version: str | None) -> bool:
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
