"""Every example in a docstring of the product holds."""

import doctest
from importlib import import_module

import pytest
from support.paths import ROOT

ROOMS = ("app", "metrics", "ingest", "collectors", "ratioscope")
WITH_EXAMPLES = [
    path.relative_to(ROOT)
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_the_examples_of_a_file_hold(path: object) -> None:
    name = str(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("ratioscope.")
    tried = doctest.testmod(import_module(f"ratioscope.{name}"))
    assert tried.attempted and not tried.failed
