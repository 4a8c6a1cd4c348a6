"""The machine that trains and the code on it, as far as modules in memory tell. Nothing is imported or started.

The commits of the code that trains are read from files beside the modules in memory, and no git is run. A checkout has its commit
in `.git`; a package that pip installed from git has it in `direct_url.json` (PEP 610). Changes that are not committed are not
seen.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.inside import content

_MOST_CHARACTERS = 200  # characters of one text


def machine() -> dict[str, Any]:
    """Facts that a change of hardware or of the number of processes changes. A fact that cannot be told is left out.

    device, devices: name and number of the accelerators that this process sees, if CUDA has begun. cuda, torch_build: versions
    that torch was built with. world_size, backend: of torch.distributed, else $WORLD_SIZE.
    """
    facts: dict[str, Any] = {}
    for name, fact in _FACTS.items():
        with suppress(Exception):  # another library's object, in a trainer: whatever it raises stays here
            value = fact(sys.modules)
            if isinstance(value, (str, int)):
                facts[name] = value[:_MOST_CHARACTERS] if isinstance(value, str) else value
    return facts


def _cuda(modules: Mapping[str, Any]) -> Any:
    cuda = modules["torch"].cuda
    return cuda if cuda.is_initialized() else None  # a question before that would begin CUDA in this process


def _world_size(modules: Mapping[str, Any]) -> int:
    distributed = getattr(modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return int(os.environ["WORLD_SIZE"])


_FACTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "device": lambda modules: str(_cuda(modules).get_device_name()),
    "devices": lambda modules: int(_cuda(modules).device_count()),
    "cuda": lambda modules: modules["torch"].version.cuda,
    "torch_build": lambda modules: modules["torch"].version.git_version[:12],
    "world_size": _world_size,
    "backend": lambda modules: str(modules["torch"].distributed.get_backend()),
}


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
        git = next(folder / ".git" for folder in file.parents[:_UP] if (folder / ".git").exists())
        if git.is_file():
            git = git.parent / _read(git.parent, git.name).removeprefix("gitdir:").strip()
        head = _read(git, "HEAD")
        return next(_of_branch(git, head.removeprefix("ref:").strip())) if head.startswith("ref:") else head
    (package,) = islice(distributions(name=name.replace(".", "-"), path=[str(packages)]), 1)
    return str(json.loads(package.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"])


def _of_branch(git: Path, name: str) -> Iterator[str]:
    """The commits on record for the branch: the first is valid."""
    shared = git / _read(git, "commondir") if (git / "commondir").is_file() else git
    yield from (_read(folder, name) for folder in (git, shared) if (folder / name).is_file())
    yield from (line.split()[0] for line in _read(shared, "packed-refs").splitlines() if line.endswith(f" {name}"))


def _read(folder: Path, name: str) -> str:
    return content(folder, name, _MOST).decode().strip()
