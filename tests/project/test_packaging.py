"""The wheel and the sdist hold what git tracks, and the wheel works alone in an empty environment."""

import os
import shlex
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.paths import ROOT
from support.serving import DEADLINE

ROOMS = ("app", "metrics", "ingest", "collectors", "sample_data")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The (wheel, sdist) built in a temporary clone of HEAD, so that nothing untracked can slip in."""
    clone = tmp_path_factory.mktemp("clone") / "project"
    _run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(clone / "dist"), cwd=clone)
    (wheel,), (sdist,) = (clone / "dist").glob("*.whl"), (clone / "dist").glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_exactly_the_tracked_files_of_the_rooms(distributions: tuple[Path, Path]) -> None:
    held = {name for name in zipfile.ZipFile(distributions[0]).namelist() if ".dist-info/" not in name}
    tracked = {f"ratioscope/{name}" for name in _tracked(*ROOMS)} | set(_tracked("ratioscope"))
    links = {f"ratioscope/{room}" for room in ROOMS}
    assert held == tracked - links


def test_the_sdist_holds_what_the_wheel_is_built_from(distributions: tuple[Path, Path]) -> None:
    names = {name.split("/", 1)[1] for name in tarfile.open(distributions[1]).getnames() if "/" in name}
    sources = set(_tracked(*ROOMS)) | {"pyproject.toml", "README.md", "LICENSE"}
    assert sources <= names


def test_the_wheel_alone_runs_the_demo(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    # not compiled: most of what is installed is never imported, and compiling it takes longer than all the rest
    install = [*pip, "install", "--quiet", "--no-compile", *constraints]
    _run(*install, str(distributions[0]))
    _run(*install, *advised(home / "bin" / "ratioscope", tmp_path))
    listing = _run(str(home / "bin" / "ratioscope"), "--help", cwd=tmp_path)
    assert "dashboard" in listing
    with _demo(home / "bin" / "ratioscope", tmp_path) as url:
        assert urllib.request.urlopen(url, timeout=DEADLINE).status == 200


def advised(command: Path, folder: Path) -> list[str]:
    """What the program says to install where it lacks its extra: it is on no index, and pip finds it installed."""
    done = subprocess.run([command, "demo"], cwd=folder, capture_output=True, text=True)
    return shlex.split(done.stderr.partition("pip install ")[2])


@contextmanager
def _demo(command: Path, folder: Path) -> Iterator[str]:
    """The URL of a demo that runs until the block ends."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HOME": str(folder)}
    process = subprocess.Popen(
        [command, "demo", "--no-browser"], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield next(word for line in process.stdout for word in line.split() if word.startswith("http://127.0.0.1:"))
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)


def _tracked(*folders: str) -> list[str]:
    return _run("git", "ls-files", *folders, cwd=ROOT).split()


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
