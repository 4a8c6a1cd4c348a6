"""What app knows of a metric stands on the metric or in the one table of places: no other file of app tells metrics by name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

from ratioscope.app.presentation import metric_places
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.record import GAPS

TABLE = Path(metric_places.__file__).resolve()
WORDS = {"tokens", "sequences", "slope"}
"""Names of metrics that are words, too: pages, files and columns are called so."""
NAMES = {metric.name for metric in METRICS} - WORDS
COLUMN = re.compile(rf"(?:(?:{'|'.join(GAPS)})?/)?(.+?)(?:_se)?")
BEGINS = {"startswith", "removeprefix"}
ENDS = {"endswith", "removesuffix"}
SHORTEST = 3
"""Characters of a text that can be taken for a part of a metric's name."""


def found_in(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every name of a metric among the literals, and of every test on a part of one."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_a_metric(node.value):
            yield node.lineno, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _tests_of_ends(node, node.func)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            held = node.comparators[0]
            if isinstance(node.left, ast.Constant) and isinstance(held, ast.Attribute) and held.attr == "name":
                yield node.lineno, ast.unparse(node)


def _names_a_metric(text: str) -> bool:
    column = COLUMN.fullmatch(text)
    return column is not None and column.group(1) in NAMES


def _tests_of_ends(call: ast.Call, function: ast.Attribute) -> Iterator[tuple[int, str]]:
    texts = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    parts = [text for text in texts if len(text) >= SHORTEST]
    begins = function.attr in BEGINS and any(name.startswith(part) for name in NAMES for part in parts)
    ends = function.attr in ENDS and any(
        f"{name}{error}".endswith(part) for name in NAMES for error in ("", "_se") for part in parts
    )
    if begins or ends:
        yield call.lineno, ast.unparse(call)


def test_no_file_of_app_but_the_table_names_a_metric() -> None:
    files = [file for file in (ROOT / "app").rglob("*.py") if file.resolve() != TABLE]
    assert len(files) > 100
    told = [f"{file.relative_to(ROOT)}:{line}: {text}" for file in files for line, text in found_in(file.read_text())]
    assert not told, "put a fact on Metric, a place into app/presentation/metric_places.py: " + "; ".join(told)


@pytest.mark.parametrize(
    "source",
    [
        'NEUTRAL = {"ppl_ratio"}',
        'frame["mismatch/kl_k3_se"]',
        'frame[f"{gap}/kl_k3"]',
        'metric.name.startswith(("ess", "mean_weight"))',
        'metric.name.endswith("_correlation")',
        '"share" in metric.name',
        'column.removesuffix("_se")',
    ],
)
def test_the_test_finds(source: str) -> None:
    assert list(found_in(source))


@pytest.mark.parametrize(
    "source", ['open("tokens")', '"a text about kl_k3"', 'path.endswith(".html")', '"step" in frame.columns']
)
def test_the_test_lets_pass(source: str) -> None:
    assert not list(found_in(source))
