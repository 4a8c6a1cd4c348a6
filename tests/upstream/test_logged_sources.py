"""Every file that a card cites holds the name of its number: read in the trainers' packages and checkouts, not imported.

Needs the packages of tests/upstream/requirements.txt or the checkouts of SOURCES; a trainer of which there is neither is skipped.
A name is held by a text of the file that is its end, as `kl` of `rollout_corr/kl`; the values of an f-string stand for anything.
The name of an argument is a text too: AReaL hands its numbers over as arguments.
"""

import ast
import csv
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.paths import ROOT
from support.sources import CHECKOUTS, root

from ratioscope.metrics.logged_names import facts_of, logged_name, logged_names, trainers

pytestmark = pytest.mark.upstream

PACKAGES = {
    "trl": ("trl", "transformers"),
    "ms_swift": ("transformers",),
    "verl": ("verl",),
    "unsloth": ("unsloth", "unsloth_zoo"),
    "openrlhf": ("openrlhf",),
    "areal": ("areal",),
}
TAG = re.compile(r"@(sum|mean|max|min)$")
"""The ending of a name by which ROLL reduces it, and which its tracker strips."""
STATISTIC = re.compile(r"/(mean|avg|max|min|std|median|sum|p\d+)$")


def _folders(trainer: str) -> list[Path]:
    """The folders that hold the trainer's package; skips the test without one."""
    own = [root(trainer)] if trainer in CHECKOUTS else []
    wanted = PACKAGES.get(trainer, () if own else (trainer,))
    found = [spec for name in wanted if (spec := find_spec(name)) is not None]
    folders = own + [Path(place).parent for spec in found for place in spec.submodule_search_locations or ()]
    if not folders:
        pytest.skip(f"no package of {trainer}")
    return folders


@cache
def _texts(file: Path) -> tuple[re.Pattern[str], ...]:
    """The texts of a file that may be the end of a name."""
    return tuple(re.compile(text + r"\Z") for node in ast.walk(ast.parse(file.read_text())) for text in _text(node))


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search("[A-Za-z]{2}", node.value):
        yield re.escape(node.value.rstrip("/"))
        yield re.escape(TAG.sub("", node.value))
    elif isinstance(node, ast.keyword) and node.arg:
        yield re.escape(node.arg)
    elif isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else None for each in node.values]
        if re.search("[A-Za-z]{2}", "".join(str(each) for each in parts if each)):
            text = "".join(".+" if each is None else re.escape(str(each)) for each in parts)
            yield text
            yield TAG.sub("", text)


def _holds(file: Path, name: str) -> bool:
    """True if a text of the file is the name or its end."""
    wanted = {name, STATISTIC.sub("", name)}
    ends = {each[start:] for each in wanted for start in (0, *(found.end() for found in re.finditer("[/_-]", each)))}
    return any(text.match(end) for text in _texts(file) for end in ends)


def _names(trainer: str) -> Iterator[str]:
    """The names of the table that hold no *, and those of the drawn names, which stand for the others."""
    yield from (row.name for row in logged_names(trainer) if "*" not in row.name)
    for table in ("hundred_names.csv", "drawn_names.csv"):
        with (ROOT / "tests" / "data" / table).open(encoding="utf-8") as file:
            yield from (row["logged"] for row in csv.DictReader(file) if row["trainer"] == trainer)


@pytest.mark.parametrize("trainer", trainers())
def test_the_file_that_a_card_cites_holds_the_name(trainer: str) -> None:
    folders, missed, checked = _folders(trainer), [], 0
    for name in _names(trainer):
        row = logged_name(trainer, name)
        source = dict(facts_of(row, name)).get("source", "") if row is not None else ""
        for cited in re.findall(r"([\w/]+\.py)(?! of \w+ 20\d\d)", source):
            places = [
                file
                for folder in folders
                for file in (folder / cited, folder / cited.removeprefix("src/"))
                if file.exists()
            ]
            places = places or [file for folder in folders for file in folder.glob(f"*/**/{cited}")]
            checked += 1
            if not any(_holds(file, name) for file in places):
                missed.append((name, cited))
    assert missed == []
    assert checked or trainer in ("roll", "art", "fireworks")
