"""The table of a format: which field of a file becomes which column, in a form that a person can proofread.

A line of a table reads

    old_logprobs = log_probs or train_log_probs | last(response_length) | absent_if_zero

The left side is an argument of `Collector.log`, `step`, `minibatch`, `extra.NAME`, or a key that two files are joined by
(`key.NAME`). The right side begins with places in the row, of which the first that is there counts: `a.b` leads inside, `^a` is
a place in the whole file, `@step` a part of the file's name, `@row` the number of the row in its file and `@source` the file's
path, where the source has several. Then come steps of steps.py, from left to right. A line that ends with `!` is of a field
without which the row is rejected. Options --map take such lines, too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ratioscope.errors import ConfigError

from .restricted.names import InertNames

FileSide = Literal["both", "rollout", "train"]
ONLY_IF_NAMED = r"(?!)"
"""The expression of files that are read if --from names their format, and never else."""
_STEP = re.compile(r"([a-z_]+)(?:\((.*)\))?")
_PLACE = re.compile(r"[\^@]?[\w. \-/:]+")


@dataclass(frozen=True)
class Conversion:
    """One step from the value in the file to the value of the column."""

    name: str
    arguments: tuple[str, ...] = ()
    """Its arguments, as the table has them."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})" if self.arguments else self.name


@dataclass(frozen=True)
class ColumnMapping:
    """One line of a table."""

    into: str
    """The column of the Record."""
    places: tuple[str, ...]
    """Places in the file, of which the first one that is there counts."""
    steps: tuple[Conversion, ...] = ()
    required: bool = False
    """True if a row without it is rejected."""

    def __str__(self) -> str:
        right = " | ".join((" or ".join(self.places), *map(str, self.steps)))
        return f"{self.into} = {right}{' !' if self.required else ''}"


@dataclass(frozen=True)
class FileKind:
    """One kind of file of a format."""

    what: str
    """The kind of file, in words."""
    file: str
    """A regular expression of the end of its path. The group `step` is the step, other groups are `@NAME`."""
    container: str
    """The way to open the file: a name of containers.py."""
    columns: tuple[ColumnMapping, ...]
    """The columns that it gives."""
    marks: tuple[str, ...] = ()
    """Places that are there in a row of such a file, or, with ^, in the file. They tell formats of the same names apart.
    `^a.*.b` is the place `b` of one of the first entries of a list `a`."""
    rows: str = ""
    """The place of the rows in the file: of a list of rows, or of columns; empty: the file is a sequence of rows."""
    counted_by: str = ""
    """The column whose length is the number of rows, where `rows` is a place of columns."""
    padding_rows: str = ""
    """The place in the file of how many of the last rows only fill up the batch."""
    of_tokens: bool = False
    """True if a row is one token; the rows of a sequence follow one another."""
    unwrapped: bool = False
    """True if each value of a row lies in a list of one."""
    prepared: Callable[[Any], Any] | None = None
    """Makes plain columns of the value of the file, where a trainer's class holds them."""
    split: Callable[[Any], Iterator[Any]] | None = None
    """Makes several rows of one, where a line holds a conversation of several samples."""
    once: str = ""
    """The place in a row of an id of which a log has one response: a second one with equal log-probs was written twice."""
    grows: bool = False
    """True if its writer adds lines while it is read: a last line that does not end is set aside."""
    annotated: str = ""
    """The place in a row of a list of mappings with an `id`, which rows of other files annotate."""
    annotates: str = ""
    """The place in a row of the `id` that it annotates. Such rows are no samples: each mapping gets its own as `annotations`."""
    grouped: bool = False
    """True if a row may have a list of lists: those of a group, which becomes a row for each of its completions."""
    refused: str = ""
    """Why such a file is not imported, where it holds nothing that can be measured."""
    side: FileSide = "both"
    lacks: str = ""
    """The values that the file lacks, and what follows."""


@dataclass(frozen=True)
class Format:
    """The files of one trainer or engine."""

    name: str
    title: str
    trainer: str
    parts: tuple[FileKind, ...]
    join_on: tuple[str, ...] = ()
    """The keys that rows of different parts are joined by; empty: a row is complete by itself."""
    step_inside: str = ""
    """The name of a number near the beginning of a .pt file that tells which files belong together, whatever their names."""
    part_of: str = ""
    """The format that holds all of this one and more: its files are passed over beside files of that format of the same step."""
    names: InertNames = field(default_factory=dict)
    """The names that its pickles may mention beside what any may."""
    notes: str = ""
    resolution: Mapping[str, float] = field(default_factory=dict)
    """Policy -> the largest error of its log-probs in the file, nats; empty: all digits."""


def columns(text: str) -> tuple[ColumnMapping, ...]:
    """The lines of a table. ConfigError for a line that is none."""
    return tuple(column(line) for line in text.strip().splitlines() if line.strip())


def column(line: str) -> ColumnMapping:
    """One line of a table.

    >>> str(column("mask=loss_mask|span(loss_mask)!"))
    'mask = loss_mask | span(loss_mask) !'
    """
    into, equals, right = line.strip().partition("=")
    required = right.rstrip().endswith("!")
    first, *steps = (part.strip() for part in right.rstrip().removesuffix("!").split("|"))
    places = tuple(place.strip() for place in first.split(" or "))
    if not equals or not all(map(_PLACE.fullmatch, places)):
        raise ConfigError(
            f"{line.strip()[:100]!r} is no line of a table; wanted COLUMN=FIELD, or COLUMN=FIELD|STEP(FIELD), such as"
            " rollout_logprobs=logprobs|span(mask)"
        )
    return ColumnMapping(into.strip(), places, tuple(map(_step, steps)), required)


def _step(text: str) -> Conversion:
    from .steps import STEPS

    match = _STEP.fullmatch(text)
    if match is None or match[1] not in STEPS:
        raise ConfigError(f"there is no step {text[:60]!r}; wanted one of {', '.join(STEPS)}")
    return Conversion(match[1], tuple(part.strip() for part in match[2].split(",")) if match[2] else ())
