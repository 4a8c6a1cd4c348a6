"""Golden answers: what the product says of a run, kept in golden/RUN.json.gz, so that a change can be proved to lose nothing.

`python -m support.golden`, in tests/, writes them again and prints each change; CONTRIBUTING says when that is allowed.
"""

import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found,import-untyped,unused-ignore]

from support.paths import ROOT, TESTS

FOLDER = TESTS / "golden"
TESTS_OF_ALL = (
    "tests/app/test_golden_answers.py",
    "tests/app/dashboard/test_pages.py::test_every_page_says_the_same_of_every_run_as_before",
)
"""The tests that call `holds`."""
WRITE_INTO = "RATIOSCOPE_GOLDEN"
"""The variable that names a folder: `holds` writes into it and compares nothing."""
RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Most that a number may differ: sums are taken in another order on another processor."""
ERRORS = ("error", "_se", "z")
"""Ends of names of standard errors, and of what is divided by one: a root of a difference of sums has half of their digits."""
LONG = 1000
"""Numbers and texts of a longer list are kept as their `digest`: ten thousand steps would take 4 MB."""
FEW = 20
"""Most distinct texts of a long list that are kept as they are."""
MOST_SHOWN = 20

PLACEHOLDERS = (
    (re.compile(r"\br\d{5}-[\w.-]+?-\d+-[0-9a-f]{6}\b"), "<writer>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?UTC|Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{64}\b|(?<=input )[0-9a-f]{12}\b"), "<digest>"),
    (re.compile(r"\b\d+\.\d+\.\d+\w*\b"), "<version>"),
    (re.compile(r"\b[\d,.]+ ([kKMGT]?B|bytes)\b"), "<size>"),
    (re.compile(r"\b\d+ (seconds?|minutes?|hours?|days?|s|min|h|d) ago\b"), "<age>"),
)
"""Pattern -> what stands for it: these differ from one making of a run to the next, or with what is installed."""
VOLATILE = ("bytes", "host", "pid")
"""Members of JSON objects whose values differ so."""
PRESENT = ("versions", "machine")
"""Members that differ with what the process has loaded, in their members too."""
ROUNDED = {("hostile", "page compare"), ("hostile", "static page charts")}
"""Run and part whose numbers lie on an edge of rounding: numpy adds in another order on a processor without AVX-512."""
AVX512 = bool(__cpu_features__["AVX512_SKX"])
VOLATILE_COLUMNS = ("host", "size")
"""Columns of a page's tables whose values differ so."""


def holds(runs: Path, run: str, part: str, found: Any) -> None:
    """Fails unless the answer is the golden one of this run and part: with the JSON path, the golden and the found value.

    Any: what JSON can hold. runs: the folder of the run, whose path is no part of an answer.
    """
    kept = without_volatile(found, str(runs))
    if folder := os.environ.get(WRITE_INTO):
        (Path(folder) / f"{run}={part}.json").write_text(json.dumps(kept))
        return
    if (run, part) in ROUNDED and not AVX512:
        return
    differences = [*islice(changes(golden(run).get(part), kept, part), MOST_SHOWN)]
    assert not differences, f"{run}: not the golden answer; CONTRIBUTING says what to do\n" + "\n".join(differences)


@cache
def golden(run: str) -> dict[str, Any]:
    """Part -> the golden answer."""
    file = FOLDER / f"{run}.json.gz"
    return dict(json.loads(gzip.decompress(file.read_bytes()))) if file.exists() else {}


def without_volatile(value: Any, runs: str, name: str = "") -> Any:
    """The value with placeholders, with numbers of 12 digits, and with a digest in place of each long list. Any: JSON."""
    if name in PRESENT:
        return f"<{name}>"
    if isinstance(value, dict):
        return {key: without_volatile(item, runs, key) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) > LONG and not any(isinstance(item, dict | list) for item in value):
            return without_volatile(digest(value), runs)
        return [without_volatile(item, runs) for item in value]
    if name in VOLATILE and value is not None:
        return f"<{name}>"
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return placeheld(value.replace(runs, "<runs>")) if isinstance(value, str) else value


def placeheld(text: str) -> str:
    """The text with placeholders in place of what differs from one making of a run to the next."""
    for pattern, stands in PLACEHOLDERS:
        text = pattern.sub(stands, text)
    return text


def digest(values: Sequence[Any]) -> dict[str, Any]:
    """What tells a list from another one, to a relative error: kinds, sums that do not cancel, a sum by place, the texts.

    >>> digest([1.5, -2.0, None])
    {'of': 3, 'kinds': {'float': 2, 'NoneType': 1}, 'plus': 1.5, 'minus': -2.0, 'by_place': 5.5}
    """
    numbers = [(place, v) for place, v in enumerate(values, 1) if isinstance(v, int | float) and math.isfinite(v)]
    plus = math.fsum(v for _, v in numbers if v > 0)
    minus = math.fsum(v for _, v in numbers if v < 0)
    by_place = math.fsum(place * abs(v) for place, v in numbers)
    found = {"of": len(values), "kinds": dict(Counter(type(v).__name__ for v in values)), "plus": plus, "minus": minus}
    texts = [placeheld(v) for v in values if isinstance(v, str)]
    if texts:
        counts = dict(sorted(Counter(texts).items()))
        found["texts"] = counts if len(counts) <= FEW else sha256("\n".join(texts).encode()).hexdigest()[:16]
    return {**found, "by_place": by_place}


def changes(golden: Any, found: Any, path: str) -> Iterator[str]:
    """A line for each place in which the values differ: its JSON path, the golden and the found value. Any: JSON."""
    if isinstance(golden, dict) and isinstance(found, dict):
        if [*golden] != [*found]:
            yield f"{path}: members {_shown(_only([*golden], [*found]))} -> {_shown(_only([*found], [*golden]))}"
        for key in golden.keys() & found.keys():
            yield from changes(golden[key], found[key], f"{path}.{key}")
    elif isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            yield f"{path}: {len(golden)} -> {len(found)} items: {_shown(_only(golden, found))} -> {_shown(_only(found, golden))}"
            return
        for place, (old, new) in enumerate(zip(golden, found, strict=True)):
            yield from changes(old, new, f"{path}[{place}]")
    elif not _equal(golden, found, is_error=path.rpartition(".")[2].split("[")[0].endswith(ERRORS)):
        yield f"{path}: {_shown(golden)} -> {_shown(found)}"


def _only(items: list[Any], others: list[Any]) -> list[Any]:
    """The items that the others lack; all, if only the order differs."""
    return [item for item in items if item not in others] or items


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 400 else f"{text[:300]} … {text[-90:]}"


def _equal(golden: Any, found: Any, *, is_error: bool) -> bool:
    if isinstance(golden, float) and isinstance(found, float):
        relative, absolute = (1e-6, 1e-7) if is_error else (RELATIVE, ABSOLUTE)
        return math.isclose(golden, found, rel_tol=relative, abs_tol=absolute)
    return type(golden) is type(found) and bool(golden == found)


def gathered(folder: Path) -> dict[str, dict[str, Any]]:
    """Run -> part -> answer, from the files that `holds` wrote."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.iterdir()):
        run, _, part = file.stem.partition("=")
        found.setdefault(run, {})[part] = json.loads(file.read_text())
    return found


def rewritten(found: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Writes the files of runs whose answers differ. Yields a line for each change."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json.gz"):
        if file.name.removesuffix(".json.gz") not in found:
            file.unlink()
            yield f"{file.name}: the run is gone"
    for run, parts in found.items():
        lines = [*changes(golden(run), parts, run)]
        if lines:
            packed = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
            (FOLDER / f"{run}.json.gz").write_bytes(gzip.compress(packed, mtime=0))
        yield from lines


def main() -> int:
    """Asks every face again, by its tests, and writes what they found."""
    with tempfile.TemporaryDirectory() as folder:
        added = ("-k", "not without_a_page")  # which fails for a page that was added, until its answers are written
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *added, *TESTS_OF_ALL]
        ended = subprocess.run(command, cwd=ROOT, env=os.environ | {WRITE_INTO: folder})
        if ended.returncode:
            print("nothing was written: the tests above failed before they had an answer")
            return ended.returncode
        lines = [*rewritten(gathered(Path(folder)))]
    print("\n".join(lines) or "no answer has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
