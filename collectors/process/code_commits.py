"""The commits of the code that trains, read from files beside the modules in memory. Nothing is imported and no git is run.

A checkout has its commit in `.git`; a package that pip installed from git has it in `direct_url.json` (PEP 610). Changes that
are not committed are not seen.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path

from ratioscope.inside import content

PROGRAM = "__main__"
SHORT = 12
"""Digits of a commit that are kept."""
_INSTALLED = {"site-packages", "dist-packages"}
_OURS = ("/ratioscope", "/ratioscope/__main__.py")  # the command line, which imports runs and trains nothing
_UP = 5  # folders above a module in which a checkout is looked for
_MOST = 1 << 22  # bytes read of one file
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def code_files(modules: Iterable[str]) -> dict[str, str]:
    """Name -> its file, for the program and those of these modules that are in memory. No file is touched."""
    commits: dict[str, str] = {}
    for name in (PROGRAM, *modules):
        with suppress(Exception):  # another library's object, in a trainer: whatever it raises stays here
            commits[name] = os.path.abspath(str(sys.modules[name].__file__ or ""))
    if commits.get(PROGRAM, "").endswith(_OURS):
        del commits[PROGRAM]
    return commits


def code_commits(files: Mapping[str, str]) -> dict[str, str]:
    """Name -> the first digits of its commit, for those files that have one. The writer's work, because a disk may hang."""
    commits: dict[str, str] = {}
    for name, file in files.items():
        with suppress(Exception):  # another library's files: whatever they raise stays here
            commit = _commit(name, Path(file))
            if _COMMIT.fullmatch(commit):
                commits["program" if name == PROGRAM else name] = commit[:SHORT]
    return commits


def _commit(name: str, file: Path) -> str:
    packages = next((folder for folder in file.parents if folder.name in _INSTALLED), None)
    if packages is None:
        return _head(next(folder / ".git" for folder in file.parents[:_UP] if (folder / ".git").exists()))
    (package,) = islice(distributions(name=name.replace(".", "-"), path=[str(packages)]), 1)
    return str(json.loads(package.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"])


def _head(git: Path) -> str:
    """The commit that is checked out. git: the folder `.git`, or the file of a worktree or submodule that leads to it."""
    if git.is_file():
        git = git.parent / _read(git.parent, git.name).removeprefix("gitdir:").strip()
    head = _read(git, "HEAD")
    return next(_of_branch(git, head.removeprefix("ref:").strip())) if head.startswith("ref:") else head


def _of_branch(git: Path, name: str) -> Iterator[str]:
    """The commits on record for the branch: the first is valid."""
    shared = git / _read(git, "commondir") if (git / "commondir").is_file() else git
    yield from (_read(folder, name) for folder in (git, shared) if (folder / name).is_file())
    yield from (line.split()[0] for line in _read(shared, "packed-refs").splitlines() if line.endswith(f" {name}"))


def _read(folder: Path, name: str) -> str:
    return content(folder, name, _MOST).decode().strip()
