"""The known effect on the gap of a setting in which two runs differ. Most settings have none that is known.

None of it proves that the setting made the difference between these two runs: it is a place to look first.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.known.faults import at_key, faults_in
from ratioscope.metrics.known.references import Reference, reference_for
from ratioscope.metrics.known.setting_keys import allowed_lag, causes_of_key
from ratioscope.metrics.known.trainers import trainer_named

from .comparability import ENGINES, LIBRARIES, VERSIONS, comparability, run_facts
from .run_settings import settings

EffectKind = Literal["known fault", "sides of the gap", "lag", "published range", "remedy", "version"]
"""The kinds of knowledge, the surest first."""
ORDER: tuple[EffectKind, ...] = get_args(EffectKind)
MOST_KEYS = 200
"""Keys that are tried for their effect on the class of the run."""
_Found = Iterator[tuple[str, str]]
"""(key, words) of the keys of one kind."""
_Info = Mapping[str, Any]
"""The content of run.json."""


@dataclass(frozen=True)
class SettingEffect:
    """The knowledge of one setting."""

    kind: EffectKind
    words: str

    @property
    def place(self) -> int:
        """To sort by: the surest kind first."""
        return ORDER.index(self.kind)


def setting_effects(a: _Info, b: _Info, keys: Collection[str]) -> dict[str, SettingEffect]:
    """Key -> the surest knowledge of its effect, of the dotted keys in which two runs differ. a, b: content of run.json."""
    found: dict[str, SettingEffect] = {}
    for kind, told in zip(ORDER, (_faults, _sides, _lag, _published, _remedies, _versions), strict=True):
        for key, words in told(a, b, keys):
            found.setdefault(key, SettingEffect(kind, words))
    return found


def _faults(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    """Keys of a known fault that one of the two runs has alone."""
    of_a, of_b = (faults_in(settings(info), trainer_named(info.get("trainer"))) for info in (a, b))
    for letter, own, others in (("B", of_b, of_a), ("A", of_a, of_b)):
        both = {each.fault.code for each in others}
        for fault in (each.fault for each in own if each.fault.code not in both):
            ends = [str(condition["key"]) for condition in fault.when]
            for key in keys:
                if any(at_key(end, {key: ""}) for end in ends):
                    yield key, f"{letter} alone has a known fault. {fault.statement}"


def _sides(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    """Keys of a setting of which engine and trainer may make different things."""
    for one, other in zip(comparability(a), comparability(b), strict=True):
        are_equal = (one.rollout, one.trainer, one.state) == (other.rollout, other.trainer, other.state)
        if not are_equal and {one.state, other.state} != {"ok"}:
            sources = {f"config.{part}" for each in (one, other) for part in each.source.split(", ")}
            yield from ((key, other.why) for key in keys if key in sources)


def _lag(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    one, other = (allowed_lag(settings(info), trainer_named(info.get("trainer"))) for info in (a, b))
    if one is not None and other is not None and one.lag != other.lag:
        words = f"The settings allow a lag of {one.lag} in A and of {other.lag} in B: older weights make a larger gap."
        yield from ((key, words) for key in keys if any(at_key(end, {key: ""}) for end in (*one.keys, *other.keys)))


def _published(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    """Keys that alone move A into another published class."""
    own, other = reference_for(run_facts(a)), reference_for(run_facts(b))
    if own is other:
        return
    config = {key.removeprefix("config."): text for key, text in settings(a).items() if key.startswith("config.")}
    theirs, unmoved = settings(b), reference_for(run_facts({**a, "config": config}))
    for key in [key for key in keys if key.startswith("config.")][:MOST_KEYS]:
        moved = {**config, key.removeprefix("config."): theirs.get(key)}
        if reference_for(run_facts({**a, "config": moved})) is not unmoved:
            yield key, f"It decides the published range: {_usual(own)} in A, {_usual(other)} in B."


def _usual(reference: Reference | None) -> str:
    if reference is None:
        return "none"
    low, high = reference.usual
    return f"K3 {low:.2g} to {high:.2g} ({reference.words})"


def _remedies(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    for key in keys:
        codes = [code for info in (a, b) for code in causes_of_key(key, trainer_named(info.get("trainer")))]
        if titles := [CAUSE[code].title for code in dict.fromkeys(codes) if code in CAUSE]:
            yield key, f"A remedy names it, for this cause: {' or '.join(titles[:2])}."


def _versions(a: _Info, b: _Info, keys: Collection[str]) -> _Found:
    yield from ((key, VERSIONS) for key in keys if key.removeprefix("versions.") in (*ENGINES, *LIBRARIES))
