"""Did the weights arrive? Digests of the trainer's weights at a version against those of each engine.

Some trainers take digests of the engines alone. Then an engine is compared with what most engines hold. One that differs is
named; equal ones prove nothing about the trainer.
The proof that digests of weights give to a diagnosis: of a failed delivery, or that there was none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ratioscope.metrics.diagnosis.on_record import DELIVERY, OnRecord
from ratioscope.metrics.digits import first_few
from ratioscope.weights import FUSED

from ..commits.weight_entries import TensorTable, WeightDigests

if TYPE_CHECKING:
    from ..run import Run

ArrivalState = Literal["equal", "differs", "unknown"]
"""equal: every compared tensor equals the trainer's. differs: some do not. unknown: nothing could be compared."""
ABSENT = "are not on record"
OF_MOST = "compared with the weights that most engines hold"
OF_ENGINES = f"{OF_MOST}, because the trainer's digests {ABSENT}"
OURS = "ratioscope"
"""The maker of digests by `ratioscope.weights`."""


@dataclass(frozen=True)
class Arrival:
    """The weights that an engine held after a sync, against the trainer's of that version."""

    replica: str
    version: int
    step: int
    state: ArrivalState
    compared: int
    """Tensors, or groups of tensors, that were compared."""
    differing: tuple[str, ...]
    """Names of those that differ."""
    holds: int | None
    """The version whose weights the differing ones are; None if they are of no version on record."""
    why: str
    """Why some or all could not be compared, in words; empty if all could be."""
    is_older: bool = False
    """True if all weights of the engine are those of the version that it holds."""

    @property
    def is_complete(self) -> bool:
        """True if every tensor was compared and is equal."""
        return self.state == "equal" and not self.why

    @property
    def words(self) -> str:
        """The finding in one sentence, without a full stop."""
        engine = f"replica {self.replica}"
        left = f"; {self.why}" if self.why else ""
        if self.state == "unknown":
            return f"{engine}, version {self.version}: cannot be compared: {self.why}"
        if self.state == "equal":
            return f"{engine} holds the weights of version {self.version}: digests are equal{left}"
        if self.is_older or not self.differing:
            what = f"the weights of version {self.holds}" if self.holds is not None else "other weights"
            number = len(self.differing)
            apart = f": {number} of {self.compared} tensors differ, {first_few(self.differing)}" if number else ""
            return f"{engine} holds {what} where version {self.version} was sent{apart}{left}"
        many = f"{len(self.differing)} of {self.compared} tensors differ from version {self.version}: {first_few(self.differing)}"
        held = f"; it holds those of version {self.holds}" if self.holds is not None else ""
        return f"{engine}: {many}{held}{left}"


@dataclass(frozen=True)
class Replica:
    """All that is known of the weights of one engine."""

    newest: Arrival
    """The arrival of the newest version."""
    since: int | None
    """The first version of the unbroken row of newest versions that differ; None if the newest one does not."""
    versions: int
    """Versions of which digests of this engine are on record."""
    wrong: int
    """Those that differ."""
    unknown: int
    """Those that could not be compared, in whole or in part."""
    steps: tuple[int, ...]
    """The steps at which its digests were taken, ascending."""

    @property
    def words(self) -> str:
        """The newest finding, and since when it holds."""
        since = f" (since version {self.since})" if self.since not in (None, self.newest.version) else ""
        earlier = f"; {self.wrong} of {self.versions} versions differed" if self.wrong and self.since is None else ""
        return f"{self.newest.words}{since}{earlier}"


def weight_arrivals(run: "Run") -> tuple[Replica, ...]:
    """One entry per engine whose digests are on record, by name; empty without any."""
    return arrivals(*run.weights)


def arrivals(weights: Sequence[WeightDigests], tables: Mapping[str, TensorTable]) -> tuple[Replica, ...]:
    """The same of these digests, in the order of time. tables: key -> table of names of tensors."""
    # The lines, each with the digests of single tensors, which are written once for equal weights.
    each = {(line.digest, line.names): line.each for line in weights if line.each is not None}
    lines = [replace(line, each=each.get((line.digest, line.names))) for line in weights]
    sent = _Sent({_at(line): line for line in lines if line.replica is None}, _of_most_engines(lines), tables)
    engines: dict[str, dict[tuple[int, int], WeightDigests]] = {}
    for line in lines:
        if line.replica is not None:
            engines.setdefault(line.replica, {})[line.attempt, line.version] = line
    return tuple(_replica(list(own.values()), sent) for _, own in sorted(engines.items()))


_At = tuple[int, int, str]
"""(attempt, version, who made the digests)."""


def _at(line: WeightDigests) -> _At:
    return line.attempt, line.version, line.by


@dataclass(frozen=True)
class _Sent:
    """The weights that engines should hold."""

    trainer: Mapping[_At, WeightDigests]
    """The trainer's own."""
    most: Mapping[_At, WeightDigests]
    """Those that most engines hold."""
    tables: Mapping[str, TensorTable]
    """Key -> names of tensors."""

    def known(self, line: WeightDigests) -> list[WeightDigests]:
        """The weights of all versions that can be compared with those of an engine, the trainer's where both are on record."""
        return [
            one for one in ({**self.most, **self.trainer}).values() if (one.attempt, one.by) == (line.attempt, line.by)
        ]


def _of_most_engines(lines: Sequence[WeightDigests]) -> dict[_At, WeightDigests]:
    """Version -> the line of an engine with the weights that most engines have. Only versions of two or more engines."""
    held: dict[_At, dict[str | None, WeightDigests]] = {}
    for line in lines:
        if line.replica is not None:
            held.setdefault(_at(line), {})[line.replica] = line
    replicas = {}
    for at, engines in held.items():
        (digest, count), *_ = Counter(line.digest for line in engines.values()).most_common()
        if 2 * count > len(engines) > 1:
            replicas[at] = next(line for line in engines.values() if line.digest == digest)
    return replicas


def plain_arrivals(replicas: Sequence[Replica]) -> list[dict[str, Any]]:
    """The same as values that JSON can hold."""
    return [
        {
            "replica": one.newest.replica, "version": one.newest.version, "step": one.newest.step,
            "state": one.newest.state, "compared": one.newest.compared, "differing": list(one.newest.differing),
            "holds": one.newest.holds, "since": one.since, "why": one.newest.why, "versions": one.versions,
            "wrong": one.wrong, "unknown": one.unknown, "words": one.words,
        }
        for one in replicas
    ]  # fmt: skip


def _replica(lines: Sequence[WeightDigests], sent: _Sent) -> Replica:
    arrivals = [_arrival(line, sent) for line in sorted(lines, key=lambda line: (line.attempt, line.version))]
    since = None
    for arrival in reversed(arrivals):
        if arrival.state != "differs":
            break
        since = arrival.version
    wrong = sum(arrival.state == "differs" for arrival in arrivals)
    unknown = sum(arrival.state != "differs" and not arrival.is_complete for arrival in arrivals)
    return Replica(
        arrivals[-1], since, len(arrivals), wrong, unknown, tuple(sorted(arrival.step for arrival in arrivals))
    )


def _arrival(line: WeightDigests, sent: _Sent) -> Arrival:
    """The engine against the trainer; where that leaves tensors open, against most engines, too."""
    none = Arrival(line.replica or "", line.version, line.step, "unknown", 0, (), None, "")
    trainers, most = sent.trainer.get(_at(line)), sent.most.get(_at(line))
    absent = _absent(line, sent.trainer.values())
    found = replace(none, why=absent) if trainers is None else _compared(none, line, trainers, sent)
    if most is None or found.state == "differs" or found.is_complete:
        return found
    if most.digest == line.digest:
        return found if trainers is not None else replace(none, why=f"{absent}; most engines hold the same weights")
    among = _compared(none, line, most, sent)
    if trainers is not None:
        settled = {name for name, _ in sent.tables.get(trainers.names, ())}
        among = replace(among, differing=tuple(name for name in among.differing if name not in settled))
        if not among.differing:
            return found
    because = OF_ENGINES if absent.endswith(ABSENT) or trainers is not None else f"{OF_MOST}, because {absent}"
    return replace(among, why="; ".join(filter(None, (among.why, because))))


def _absent(line: WeightDigests, trainers: Iterable[WeightDigests]) -> str:
    """Why the engine is not compared with the trainer, in words."""
    others = [one.by for one in trainers if (one.attempt, one.version) == (line.attempt, line.version)]
    if others:
        return f"the trainer's digests are made by {others[-1]}, those of the engine by {line.by}"
    return f"the trainer's digests of version {line.version} {ABSENT}"


def _compared(none: Arrival, line: WeightDigests, sent: WeightDigests, known: _Sent) -> Arrival:
    if sent.digest == line.digest:
        return replace(none, state="equal", compared=line.tensors)
    if (older := _held(line, known)) is not None:
        few = _by_tensor(none, line, sent, known).differing if _are_single(line, sent, known.tables) else ()
        named = few if len(few) < line.tensors else ()
        return replace(none, state="differs", compared=line.tensors, holds=older, is_older=True, differing=named)
    if not _are_single(line, sent, known.tables):
        why = "digests of single tensors of this version are not on record"
        return replace(none, state="differs" if sent.names == line.names else "unknown", why=why)
    return _by_tensor(none, line, sent, known)


def _are_single(line: WeightDigests, sent: WeightDigests, tables: Mapping[str, TensorTable]) -> bool:
    """True if the digests of single tensors of both sides are on record."""
    return line.each is not None and sent.each is not None and {line.names, sent.names} <= set(tables)


def _held(line: WeightDigests, known: _Sent) -> int | None:
    """The newest version of the trainer with all these weights."""
    return max((one.version for one in known.known(line) if one.digest == line.digest), default=None)


def _by_tensor(none: Arrival, line: WeightDigests, sent: WeightDigests, known: _Sent) -> Arrival:
    own, wanted = known.tables[line.names], known.tables[sent.names]
    mine, theirs = _by_name(line, own), _by_name(sent, wanted)
    both = [pair for pair in wanted if pair in mine]
    why = "" if len(both) == len(own) == len(wanted) else _not_compared(own, wanted, has_hint=line.by == OURS)
    if not both:
        return replace(none, why=why)
    apart = [pair for pair in both if mine[pair] != theirs[pair]]
    if not apart:
        return replace(none, state="equal", compared=len(both), why=why or "the digests of all tensors together differ")
    earlier = [(one.version, _by_name(one, known.tables.get(one.names, ()))) for one in known.known(line) if one.each]
    versions = [version for version, held in earlier if all(held.get(pair) == mine[pair] for pair in apart)]
    differing = tuple(name for name, _ in apart)
    return replace(
        none, state="differs", compared=len(both), differing=differing, holds=max(versions, default=None), why=why
    )


def _by_name(line: WeightDigests, table: TensorTable) -> dict[tuple[str, str], str]:
    """(name, dtype and shape) -> digest."""
    return {pair: line.of(at) for at, pair in enumerate(table)}


def _not_compared(own: TensorTable, wanted: TensorTable, *, has_hint: bool) -> str:
    """Why some tensors of the two sides have no partner. has_hint: also the call that would give names that engines fuse."""
    mine, theirs = dict(own), dict(wanted)
    shapes = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    only = [name for name in mine if name not in theirs]
    missing = [name for name in theirs if name not in mine]
    parts = []
    if shapes:
        name = shapes[0]
        parts.append(
            f"{_count(shapes)} of another dtype or shape, such as {name} ({mine[name]} in the engine, {theirs[name]} in the "
            "trainer): shards and quantised tensors cannot be compared with whole ones"
        )
    if only or missing:
        parts.append(
            f"names differ and no mapping is known: {_count(only)} only in the engine"
            + (f" ({first_few(only)})" if only else "")
            + f", {_count(missing)} only in the trainer"
            + (f" ({first_few(missing)})" if missing else "")
        )
    fused = sorted({engine for engine, own in FUSED.items() for module in own if any(f".{module}." in n for n in only)})
    if fused and has_hint:
        parts.append(f'for names that engines fuse, make the trainer\'s with digests(model, fused="{fused[-1]}")')
    return "; ".join(parts)


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} tensor{'' if len(names) == 1 else 's'}"


def weight_proof(run: "Run", steps: Sequence[int], replicas: Sequence[str]) -> OnRecord:
    """The proof about these steps. replicas: names of the engines in the token rows; empty if they are not on record."""
    found = weight_arrivals(run)
    wrong = [one for one in found if one.newest.state == "differs"]
    if wrong:
        words = "; ".join(one.words for one in wrong)
        return OnRecord(shown={_code(wrong, found): words}, side="engine", side_because=words, side_of=DELIVERY)
    if equal := _equal(found, steps, replicas):
        return OnRecord(ruled_out=dict.fromkeys(DELIVERY, f"digests equal: {equal}"))
    return OnRecord()


def _code(wrong: Sequence[Replica], replicas: Sequence[Replica]) -> str:
    """The cause that such digests show."""
    if any(not one.newest.is_older for one in wrong):
        return "corrupted_load"
    if len(wrong) < len(replicas):
        return "stuck_replica"
    return "never_synced" if all(one.wrong >= one.versions - 1 for one in wrong) else "sync_broke"


def _equal(found: Sequence[Replica], steps: Sequence[int], replicas: Sequence[str]) -> str:
    """That all weights arrived during these steps, in words; empty if the digests do not show it.

    Each engine must have whole and equal digests at every version on record, from the first of the steps to the last one but the
    distance of two of its versions.
    """
    if not found or not steps or not set(replicas) <= {one.newest.replica for one in found}:
        return ""
    for one in found:
        apart = max((b - a for a, b in zip(one.steps, one.steps[1:], strict=False)), default=0)
        if one.wrong or one.unknown or one.steps[0] > min(steps) or one.steps[-1] + apart < max(steps):
            return ""
    engines = f"{len(found)} engine{'' if len(found) == 1 else 's'}"
    return f"{engines} held the trainer's weights at each of {max(one.versions for one in found)} versions"
