"""Which format a file has: by its name first, then by what is in its first rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ratioscope.errors import ConfigError, UnsafeFile

from .compression import plain_name
from .containers import Content, container_of
from .formats import BY_NAME, FORMATS
from .restricted.inert import opened
from .restricted.names import Named
from .row import Row, SetAside, Unreadable, inside
from .samples import LOGPROBS, split_rows
from .table import ONLY_IF_NAMED, ColumnMapping, FileKind, Format
from .token_rows import is_number

TABLE = "table"
"""The name of the format of any table, whose columns the user names, or which have the names of the Record."""
_LOOKED_AT = 20
_FORMS = {"json": ("json", "json object"), "arrow": ("parquet",)}
"""The container of a name -> the containers of tables that read such a file. Rows of Arrow are those of Parquet."""
_SHARD = re.compile(r"-\d+-of-\d+(?=\.\w+$)")
"""The number of a part of a table, as Hugging Face datasets names its files: no step."""


@dataclass(frozen=True)
class Candidate:
    """A kind of file that a file may be, judged by its name."""

    format: Format
    part: FileKind
    facts: dict[str, Any]
    """The numbers that the name of the file has."""


def candidates(path: str, wanted: Format | None = None) -> tuple[Candidate, ...]:
    """The kinds of file that a path may be. wanted: the format that the user named; its files may have any name."""
    known = FORMATS if wanted is None else (wanted,)
    matches = tuple(_named(path, known))
    if matches or wanted is None:
        return matches
    container = container_of(path)
    containers = _FORMS.get(container or "", (container,))
    facts = (
        {"step": int(number[1])}
        if (number := re.search(r"(\d+)\D*$", PurePosixPath(_whole_name(path)).name)) and len(number[1]) < 16
        else {}
    )
    parts = (part for part in wanted.parts if part.container in containers)
    if container == "arrow":
        parts = (replace(part, container="arrow") for part in parts)
    return tuple(Candidate(wanted, part, facts) for part in parts)


def _whole_name(path: str) -> str:
    """The name without its compression, and without the number of a part of a table.

    >>> _whole_name("step_7/data-00001-of-00002.arrow")
    'step_7/data.arrow'
    """
    return _SHARD.sub("", plain_name(path))


def _named(path: str, known: Iterable[Format]) -> Iterator[Candidate]:
    for each in known:
        for part in each.parts:
            if (found := _has_name(part, path)) is not None:
                facts = {name: _number(value) for name, value in found.groupdict().items() if value is not None}
                yield Candidate(each, part, facts)


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() and len(text) < 16 else text


def promised(path: str, matches: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Those kinds that the name of a file promises: it has their form, which not every name with its ending has."""
    ending = "".join(PurePosixPath(plain_name(path)).suffixes[-1:])
    return tuple(each for each in matches if _has_name(each.part, path) and not _has_name(each.part, f"any{ending}"))


def _has_name(part: FileKind, path: str) -> re.Match[str] | None:
    return re.search(rf"(?:^|/)(?:{part.file})$", plain_name(path))


def renamed(path: str) -> tuple[Candidate, ...]:
    """The kinds that a file of any name may be by its content: those whose rows can be read and have marks."""
    return tuple(
        replace(each, part=replace(each.part, prepared=_or_nothing(each.part.prepared)))
        for known in FORMATS
        if not known.part_of
        for each in candidates(path, known)
        if each.part.marks and not (each.part.refused or each.part.annotates) and each.part.file != ONLY_IF_NAMED
    )


def _or_nothing(prepared: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """The same; None of a value that is of another kind."""

    def tried(value: Any) -> Any:
        assert prepared is not None
        try:
            return prepared(value)
        except UnsafeFile:
            return None

    return prepared and tried


def names_of(matches: Sequence[Candidate]) -> dict[str, Named]:
    """The names that a pickle may mention, if it is of one of these kinds."""
    return {name: known for candidate in matches for name, known in candidate.format.names.items()}


def by_name(name: str) -> Format:
    """The format of this name. ConfigError for an unknown one."""
    if name not in BY_NAME:
        raise ConfigError(f"--from {name}: there is no such format; wanted one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def fitting(content: Content, matches: Sequence[Candidate]) -> tuple[Candidate | None, Content]:
    """The first kind whose marks are all there, and the content with its rows still to be read."""
    first: list[Any] = []
    if content.rows is not None:
        first = list(islice(content.rows, _LOOKED_AT))
        if not first:
            raise UnsafeFile("it holds no row")
        content = replace(content, rows=chain(first, content.rows))
    elif isinstance(content.whole, list):
        first = content.whole[:_LOOKED_AT]
    for candidate in matches:
        part = candidate.part
        whole = content.whole if part.prepared is None else part.prepared(content.whole)
        marked = all(_has(mark, part, whole, first) for mark in part.marks)
        if marked and (not part.of_tokens or _are_tokens(part, first)):
            return candidate, replace(content, whole=whole)
    return None, content


def _has(mark: str, part: FileKind, whole: Any, first: Sequence[Any]) -> bool:
    places = mark.split(" or ")
    if mark.startswith("^"):
        return any(_is_there(whole, place.removeprefix("^")) for place in places)
    rows = [row for row in first if not isinstance(row, Unreadable)]
    if part.split is not None:
        rows = [one for row in rows for one in islice(split_rows(part, row), 3) if not isinstance(one, Unreadable)]
    if any(isinstance(row, SetAside) for row in rows):  # what is set aside was known for what it is
        return True
    return any(opened(Row(row, whole, {}).at(place)) is not None for row in rows for place in places)


def _are_tokens(part: FileKind, first: Sequence[Any]) -> bool:
    """True if a row has log-probs that are one number each, and no row has lists alone. A damaged row may have both."""
    places = [place for line in part.columns if line.into in LOGPROBS for place in line.places]
    rows = [[opened(inside(row, place)) for place in places] for row in first if not isinstance(row, Unreadable)]
    cells = [any(map(is_number, row)) for row in rows]
    lists = [any(isinstance(value, list | tuple | np.ndarray) for value in row) for row in rows]
    both = list(zip(lists, cells, strict=True))
    return (False, True) in both and (True, False) not in both


def _is_there(whole: Any, place: str) -> bool:
    """True if the file has the place; `a.*.b` is there where one of the first of a list `a` has a `b`."""
    before, star, after = place.partition(".*.")
    held = opened(inside(whole, before))
    if not star:
        return held is not None
    return isinstance(held, (list, tuple)) and any(
        opened(inside(each, after)) is not None for each in held[:_LOOKED_AT]
    )


def framed(matches: Iterable[Candidate], whole: Any) -> tuple[Candidate, ...]:
    """Those kinds whose rows the file would hold: it has all that marks the file, though not what marks a row."""
    return tuple(
        each
        for each in matches
        if each.part.rows
        and _is_there(whole, each.part.rows)
        and all(
            _has(mark, each.part, whole, ()) for mark in each.part.marks if mark.startswith("^") and "*" not in mark
        )
    )


def generic(path: str, lines: Sequence[ColumnMapping]) -> tuple[Candidate, ...]:
    """A table of any kind, with the columns that the user named, and those that have the names of the Record.

    A pickle and a .pt file may be one of columns or of rows. A row is a sequence, or one token of it.
    """
    container = container_of(path)
    if container is None:
        return ()
    named = {column.into for column in lines}
    table = (*lines, *(column for column in BY_RECORD if column.into not in named))
    counted, ids = (_places(table, into) for into in (LOGPROBS, ("sequence_ids",)))
    of_rows = FileKind("a table", ".*", container, table, marks=(counted,), grouped=True)
    of_columns = replace(of_rows, counted_by=counted, marks=(_in_file(counted),))
    of_tokens = replace(of_rows, what="a table of tokens", of_tokens=True, grouped=False, marks=(counted, ids))
    parts = (
        *(of_columns,) * (container in _OF_COLUMNS),
        *(of_tokens, of_rows) * (container not in ("npz", "safetensors")),
    )
    whole = _whole_name(path)
    number = re.search(r"step[_=-]?(\d{1,15})", whole) or re.search(r"(\d{1,15})\.\w+$", whole)
    facts = {"step": int(number[1])} if number else {}
    return tuple(Candidate(Format(TABLE, "a table", "", (part,)), part, facts) for part in parts)


def _places(table: Iterable[ColumnMapping], into: Sequence[str]) -> str:
    return " or ".join(place for line in table if line.into in into for place in line.places)


_OF_COLUMNS = ("npz", "safetensors", "torch", "pickle")


def _in_file(places: str) -> str:
    return " or ".join(f"^{place}" for place in places.split(" or "))


def _by_record() -> Iterator[ColumnMapping]:
    from .table import column

    for line in (
        "step=step or @step", "minibatch=minibatch", "sequence_ids=sequence_ids or sequence_id or sample_id",
        "group_ids=group_ids or group_id", "rollout_logprobs=rollout_logprobs or rollout_logprob",
        "old_logprobs=old_logprobs or old_logprob", "current_logprobs=current_logprobs or current_logprob",
        "reference_logprobs=reference_logprobs or reference_logprob", "entropy=entropy", "mask=mask", "loss_mask=loss_mask",
        "token_ids=token_ids or token_id", "prompt_ids=prompt_ids", "turns=turns or turn", "advantages=advantages or advantage",
        "rewards=rewards or reward", "rollout_versions=rollout_versions or rollout_version",
        "rollout_version_min=rollout_version_min", "prompt_tokens=prompt_tokens", "cached_tokens=cached_tokens",
        "rollout_version_max=rollout_version_max", "trainer_version=trainer_version", "generation_step=generation_step",
        "replica=replica", "finish_reasons=finish_reasons or finish_reason", "prompt_texts=prompt_texts or prompt_text",
    ):  # fmt: skip
        yield column(line)


BY_RECORD = tuple(_by_record())
"""The table of a file whose columns have the names of the Record."""
