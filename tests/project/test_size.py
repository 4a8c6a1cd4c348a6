"""A ratchet on size: no room grows unseen, and what was simplified stays simple. size.toml has the numbers."""

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

BOUNDS = tomllib.loads((Path(__file__).parent / "size.toml").read_text())
ROOMS = ("app", "metrics", "ingest", "collectors", "ratioscope", "tests")
FREE = 0.005
"""A room may be smaller than its bound by this share, so that not every commit that deletes a line has to write a number."""


def tracked(*patterns: str) -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return (ROOT / name for name in listed.decode().split("\0") if name)


def size(paths: Iterator[Path]) -> tuple[int, int]:
    """(lines, files)."""
    lengths = [len(path.read_bytes().splitlines()) for path in paths if path.is_file() and not path.is_symlink()]
    return sum(lengths), len(lengths)


def measured(room: str) -> tuple[int, int]:
    """(lines, files) of Python; of the room "other" those of our scripts, style sheets, pages and tables beside it."""
    if room != "other":
        return size(tracked(f"{room}/*.py"))
    kinds = [f"{name}/*.{kind}" for name in ROOMS[:5] for kind in ("js", "css", "html", "toml")]
    return size(path for path in tracked(*kinds) if "vendor" not in path.parts)


@pytest.mark.parametrize("room", [*ROOMS, "other"])
def test_no_room_grows_unseen(room: str) -> None:
    for name, found in zip(("lines", "files"), measured(room), strict=True):
        most = BOUNDS[room][name]
        assert found <= most, (
            f"{room} has {found} {name}; simplify, or raise {most} in size.toml with a comment on what is gained"
        )
        assert found >= most - max(1, int(FREE * most)), (
            f"{room} has {found} {name}: lower {most} in size.toml, so that it stays"
        )
