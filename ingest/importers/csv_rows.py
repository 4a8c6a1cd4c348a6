"""Rows of a CSV file, as spreadsheets, pandas and people write it.

Lists as files hold them in a text: JSON, or the way that Python prints them.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ratioscope.errors import UnsafeFile
from ratioscope.flat_json import loaded

from .confinement import FileLimits
from .row import Unreadable

LONGEST_LINE = 1 << 28
_OF_MEMORY = 16
"""A line may have this part of the memory that its file may take: values of Python take several times their text."""
_LONE_CR = re.compile(r"(?<=\r)(?=[^\n])")

_SCALAR = re.compile(r"np\.(?:float|int)\d\d\(([^()]*)\)")
_WORD = re.compile(r"\b(?:nan|inf|None|True|False)\b")
_JSON = {"nan": "NaN", "inf": "Infinity", "None": "null", "True": "true", "False": "false"}


def lines_within(file: io.BufferedReader, limits: FileLimits) -> Iterator[bytes | Unreadable]:
    """The lines; an Unreadable for one that is longer than the memory of the file allows, UnsafeFile if it is the first."""
    most = min(LONGEST_LINE, max(limits.nbytes // _OF_MEMORY, io.DEFAULT_BUFFER_SIZE))
    words = f"more than {most} bytes, the most that one may have; --most-memory allows more"
    known = False
    while line := file.readline(most):
        if len(line) < most or line.endswith(b"\n"):
            known = True
            yield line
            continue
        if not known:  # nothing tells what the file is
            raise UnsafeFile(f"its first line has {words}")
        while (rest := file.readline(io.DEFAULT_BUFFER_SIZE)) and not rest.endswith(b"\n"):
            pass
        yield Unreadable(f"the line has {words}")


def csv_rows(file: io.BufferedReader, limits: FileLimits) -> Iterator[Any]:
    """The rows below the line of names; a line with more or fewer cells is an Unreadable. UnsafeFile where it is no CSV."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.DictReader(_lines(file, limits))
    try:
        demand_once(reader.fieldnames or ())
        for row in reader:
            if None in row or None in row.values():
                yield Unreadable("the line has more or fewer cells than the first line has names")
            else:
                yield {name: _cell(cell) for name, cell in row.items()}
    except csv.Error as error:
        raise UnsafeFile(f"it is no CSV in line {reader.line_num} ({str(error)[:80]})") from error


def demand_utf8(line: bytes) -> None:
    """UnsafeFile for the first line of a file that begins with the mark of UTF-16."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnsafeFile(
            "it is text in UTF-16, as PowerShell writes what is sent into a file; wanted UTF-8: write it anew"
        )


def _lines(file: io.BufferedReader, limits: FileLimits) -> Iterator[str]:
    """The lines, whichever way they end, without the mark of UTF-8 that Excel writes before the first."""
    encoding = "utf-8-sig"
    for line in lines_within(file, limits):
        if isinstance(line, Unreadable):
            raise UnsafeFile(f"it is no CSV: {line.reason}")
        if encoding == "utf-8-sig":
            demand_utf8(line)
        yield from _LONE_CR.split(line.decode(encoding, "backslashreplace"))
        encoding = "utf-8"


def demand_once(names: Sequence[str]) -> None:
    """UnsafeFile where two columns have one name: nobody knows which is meant."""
    counts = Counter(names)
    if (twice := next((name for name in names if counts[name] > 1), None)) is not None:
        raise UnsafeFile(f"it has two columns of the name {twice[:80]!r}")


def _cell(cell: str) -> Any:
    """The value of a cell: a list where it is one in JSON or as Python prints it, nothing where it is empty, else its text."""
    if not cell:
        return None
    if cell[0] not in "[{":
        return cell
    try:
        return parsed(cell)
    except ValueError:
        return cell


def parsed(text: str | bytes) -> Any:
    """The value of a text in JSON, or of a list of numbers as Python prints it. ValueError where it is neither."""
    try:
        return loaded(text)
    except ValueError:
        if isinstance(text, bytes) or (other := _printed(text)) == text:
            raise
        return loaded(other)


def _printed(cell: str) -> str:
    """A list of numbers as Python prints it, in JSON: pandas writes `[-0.5, nan]` and `[np.float64(-0.5)]`.

    >>> _printed("[np.float64(-0.5), nan, -inf, None]")
    '[-0.5, NaN, -Infinity, null]'
    """
    if "'" in cell or '"' in cell:
        return cell
    return _WORD.sub(lambda word: _JSON[word[0]], _SCALAR.sub(r"\1", cell))
