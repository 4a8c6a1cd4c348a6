"""Every benchmark can start: `make bench` runs a package, `make bench-large` runs each file as a script."""

import subprocess
import sys

import pytest
from support.paths import ROOT

START = "import runpy, sys; sys.path[0] = 'benchmarks'; [runpy.run_path(file, run_name='imported') for file in sys.argv[1:]]"
FILES = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("-m", "benchmarks.performance", "--help"), ("-c", START, *FILES)], ids=("package", "files")
)
def test_the_benchmarks_start(arguments: tuple[object, ...]) -> None:
    ended = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
