"""Sentences of the code keep the rules of CONTRIBUTING.md: the subject comes first, and data do not speak."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

FOLDERS = ("app", "benchmarks", "collectors", "docs", "ingest", "metrics", "ratioscope", "sample_data")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
START = r"(?:^|(?<=[.!?:] )|(?<=\n) *)"
LATE_SUBJECT = re.compile(START + r"(?:Of|Where|What) [^.\n]*")
"""A question may begin so."""
PARTICIPLE = re.compile(
    START + r"(?:Called|Computed|Given|Held|Kept|Made|Ordered|Read|Seen|Sorted|Taken|Told|Used|Written)"
    r" (?:as|at|by|from|in|of|on|to|with) [^.\n]*"
)
SPEAKING_DATA = re.compile(
    r"\b(?:array|chart|column|commit|digest|field|file|folder|footer|line|log|number|page|record|row|run|setting|table|value)s?"
    r" (?:itself )?(?:says?|tells?|speaks?|told|said)\b[^.\n]*"
)


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """(file and line, text) of the docstrings, comments, messages and labels."""
    found = [(f"{path.relative_to(ROOT)}:{line}", text) for path in SOURCES for line, text in _texts(path)]
    assert len(SOURCES) > 900 and len(found) > 30_000
    return found


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("rule", [LATE_SUBJECT, PARTICIPLE, SPEAKING_DATA], ids=["subject", "participle", "speaking"])
def test_the_subject_of_a_sentence_comes_first_and_data_do_not_speak(
    texts: list[tuple[str, str]], rule: re.Pattern[str]
) -> None:
    found = [f"{place}: {sentence}" for place, text in texts for sentence in rule.findall(text)]
    assert [sentence for sentence in found if not sentence.endswith("?")] == []


def test_the_rules_find_what_they_forbid_and_nothing_else() -> None:
    for sentence in ("Of a longer one nothing.", "A row. What it has.", "Places: Where it lies."):
        assert LATE_SUBJECT.search(sentence)
    for sentence in ("Where", "## Where", "The page says what.", "A value of What-if"):
        assert not LATE_SUBJECT.search(sentence)
    assert PARTICIPLE.search("Called with a row") and not PARTICIPLE.search("Kept rows")
    assert SPEAKING_DATA.search("a line tells of it") and not SPEAKING_DATA.search("a test says so")
