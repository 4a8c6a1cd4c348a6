"""The commits of the code that trains, read from files beside the modules in memory. Nothing is imported and no git is run.

A checkout has its commit in `.git`; a package that pip installed from git has it in `direct_url.json` (PEP 610). Changes that
are not committed are not seen.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

PROGRAM = "__main__"
SHORT = 12
"""Digits of a commit that are kept."""
_INSTALLED = {"site-packages", "dist-packages"}
_UP = 5  # folders above a module in which a checkout is looked for
_MOST = 1 << 22  # bytes read of one file
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def code_commits(modules: Iterable[str]) -> dict[str, str]:
    """Name -> the first digits of its commit, for the program and those of these modules that are in memory."""
    found: dict[str, str] = {}
    for name in (PROGRAM, *modules):
        with suppress(Exception):  # another library's object or file, in a trainer: whatever it raises stays here
            commit = _commit(name, Path(sys.modules[name].__file__ or "").absolute())
            if _COMMIT.fullmatch(commit):
                found["program" if name == PROGRAM else name] = commit[:SHORT]
    return found


def _commit(name: str, file: Path) -> str:
    if _INSTALLED.isdisjoint(file.parts):
        return _head(next(folder / ".git" for folder in file.parents[:_UP] if (folder / ".git").exists()))
    told = distribution(name.replace(".", "-")).read_text("direct_url.json")
    return str(json.loads(told or "{}")["vcs_info"]["commit_id"])


def _head(git: Path) -> str:
    """The commit that is checked out. git: the folder `.git`, or the file of a worktree or submodule that leads to it."""
    if git.is_file():
        git = git.parent / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD").strip()
    return next(_of_branch(git, head.removeprefix("ref:").strip())) if head.startswith("ref:") else head


def _of_branch(git: Path, name: str) -> Iterator[str]:
    """The commits on record for the branch: the first is valid."""
    shared = git / _read(git / "commondir").strip() if (git / "commondir").is_file() else git
    yield from (_read(folder / name).strip() for folder in (git, shared) if (folder / name).is_file())
    yield from (line.split()[0] for line in _read(shared / "packed-refs").splitlines() if line.endswith(f" {name}"))


def _read(file: Path) -> str:
    with file.open(encoding="utf-8") as opened:
        return opened.read(_MOST)
