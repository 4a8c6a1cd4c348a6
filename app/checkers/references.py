"""The checksums that replicas should have: those of a checkpoint, or of answers that were kept.

A checksum that equals is proof. One that differs is none by itself, because an engine may pack or quantise a tensor. Tensors of
one kind (one name but for its numbers) are held in one form. So a kind counts once a tensor of it has the checkpoint's checksum:
in another layer, rank or replica now, or in an earlier poll of the run.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratioscope.errors import ConfigError, SourceError
from ratioscope.flat_json import loaded

from .answers import CHECKSUM, MOST_BYTES, Held
from .checkpoint import Checkpoint

_KEPT = re.compile(r"(\d{1,18})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """Checksums that replicas with checksums of one maker should have."""

    by: str
    """The maker."""
    checksums: Mapping[str, str]
    """Name of a tensor -> its checksum."""
    unmapped: tuple[str, ...] = ()
    """Tensors of the engine for which no mapping is known. Buffers are among them, which no checkpoint has."""
    doubtful: tuple[str, ...] = ()
    """Tensors that differ, and of whose kind none equals: other weights, or another form."""


@dataclass(frozen=True)
class Kept:
    """An answer of an engine that was kept in a file."""

    step: int
    by: str
    """The maker of the checksums; "" where the file has none."""
    checksums: Mapping[str, str]
    """Name of a tensor -> its checksum."""


def kind_of(name: str) -> str:
    """The name with * for each number.

    >>> kind_of("tp1:model.layers.17.mlp.down_proj.weight")
    'tp*:model.layers.*.mlp.down_proj.weight'
    """
    return re.sub(r"\d+", "*", name)


def of_checkpoint(checkpoint: Checkpoint, held: Sequence[Held], known: Iterable[str]) -> Reference:
    """The checkpoint as replicas of one maker hold it. known: names that have equalled a checkpoint before."""
    owner = {name: one for one in held for name in one.checksums}
    made = {name: checkpoint.checksums(name, one) for name, one in owner.items()}
    wanted = _of_one_algorithm(held, {name: each for name, each in made.items() if each})
    equal = {kind_of(name) for one in held for name, own in one.checksums.items() if wanted.get(name) == own}
    sure = equal | {kind_of(name) for name in known}
    return Reference(
        held[0].by,
        {name: each for name, each in wanted.items() if kind_of(name) in sure},
        tuple(name for name in owner if name not in wanted),
        tuple(name for name in wanted if kind_of(name) not in sure),
    )


def _of_one_algorithm(held: Sequence[Held], made: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Name -> checksum by the algorithm with most equal ones: an engine uses one for all."""
    algorithms = range(min(map(len, made.values()), default=0))
    equal = {
        at: sum(one.checksums.get(name) == each[at] for one in held for name, each in made.items()) for at in algorithms
    }
    best = max(equal, key=lambda at: equal[at], default=0)
    return {name: each[best] for name, each in made.items()}


def kept(text: str) -> Kept:
    """The answer in STEP=FILE: a row of `ratioscope weights --json`, or a plain mapping of names to checksums."""
    match = _KEPT.fullmatch(text)
    if match is None:
        raise ConfigError(f"--digests {text}: wanted STEP=FILE, such as --digests 41=step41.json")
    file, wanted = Path(match[2]), "wanted the output of ratioscope weights --json, or an object of names and checksums"
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        own = loaded(content) if len(content) <= MOST_BYTES else None
    except (OSError, ValueError) as error:
        raise SourceError(f"{file} cannot be read: {str(error)[:100]}; {wanted}") from None
    by, rows = "", own.get("replicas") if isinstance(own, dict) else None
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        by, own = str(rows[0].get("by")), rows[0].get("checksums")
    if (
        not isinstance(own, dict)
        or not own
        or not all(isinstance(each, str) and _is_checksum(each) for each in own.values())
    ):
        raise SourceError(f"{file} has no checksums of an engine, or more than {MOST_BYTES:,} bytes; {wanted}")
    return Kept(int(match[1]), by, own)


def _is_checksum(text: str) -> bool:
    return any(form.fullmatch(text) for form in CHECKSUM.values())


def of_kept(answers: Collection[Kept], held: Sequence[Held]) -> dict[int, Reference]:
    """Step -> reference, of the answers with checksums of the kind and maker that these replicas have."""
    form, by = CHECKSUM[held[0].kind], held[0].by
    fitting = [one for one in answers if one.by in ("", by) and all(map(form.fullmatch, one.checksums.values()))]
    return {one.step: Reference(by, one.checksums) for one in fitting}
