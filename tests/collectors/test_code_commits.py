"""Commits of the code in run.json: read from files beside modules in memory, in each form in which git and pip keep them."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ratioscope import Collector, open_run
from ratioscope.collectors.process.machine import PROGRAM, code_commits, code_files
from ratioscope.ingest.analysis.info import info
from ratioscope.ingest.analysis.run_settings import differences, settings

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
SHORT = {"verl": COMMIT[:12]}


def detached(git: Path) -> None:
    (git / "HEAD").write_text(f"{COMMIT}\n")


def on_a_branch(git: Path) -> None:
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    (git / "packed-refs").write_text(f"{OTHER} refs/heads/main\n")


def packed(git: Path) -> None:
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{OTHER} refs/heads/x/refs/heads/main\n{COMMIT} refs/heads/main\n^{OTHER}\n"
    )


def worktree(git: Path) -> None:
    shared, own = git.parent.parent / "main.git", git.parent.parent / "main.git" / "worktrees" / "w"
    git.rmdir()
    git.write_text("gitdir: ../main.git/worktrees/w\n")
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (shared / "packed-refs").write_text(f"{COMMIT} refs/heads/main\n")


def commits_of(modules: list[str]) -> dict[str, str]:
    return code_commits(code_files(modules))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a module into memory that was loaded from this path below the folder, and no program."""

    def loaded(path: str, name: str = "verl") -> None:
        found: Any = ModuleType(name)
        found.__file__ = str(tmp_path / path)
        monkeypatch.setitem(sys.modules, name, found)

    monkeypatch.delitem(sys.modules, PROGRAM)
    return loaded


@pytest.mark.parametrize("form", [detached, on_a_branch, packed, worktree])
def test_a_checkout_tells_its_commit(tmp_path: Path, module: Callable[..., None], form: Callable[[Path], None]) -> None:
    git = tmp_path / "checkout" / ".git"
    git.mkdir(parents=True)
    form(git)
    module("checkout/src/verl/__init__.py")
    module("checkout/train.py", PROGRAM)
    assert commits_of(["verl", "absent"]) == {"program": COMMIT[:12], **SHORT}
    module("checkout/bin/ratioscope", PROGRAM)  # its command line imports runs and trains nothing
    assert commits_of(["verl"]) == SHORT


def test_a_package_tells_the_commit_that_pip_installed(
    tmp_path: Path, module: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "env" / "site-packages"
    origins: dict[str, Any] = {"verl": {"vcs_info": {"commit_id": COMMIT}}, "trl": {"archive_info": {}}, "areal": None}
    for name, told in origins.items():
        metadata = packages / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        if told is not None:
            (metadata / "direct_url.json").write_text(json.dumps({"url": "https://x", **told}))
        module(f"env/site-packages/{name}/__init__.py", name)
    (tmp_path / ".git").mkdir()
    detached(tmp_path / ".git")  # a checkout around an environment says nothing of the packages in it
    monkeypatch.syspath_prepend(str(packages))
    assert commits_of(["verl", "trl", "areal", "ray"]) == SHORT


@pytest.mark.parametrize("head", ["", "nonsense", "ref: refs/heads/../../../secret", "\0", "a" * 41])
def test_what_is_no_commit_is_left_out(tmp_path: Path, module: Callable[..., None], head: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "secret").write_text("hunter2")
    module("verl.py")
    module("../elsewhere.py", "trl")
    assert commits_of(["verl", "trl"]) == {}


def test_a_pipe_in_the_place_of_head_holds_nobody_up(tmp_path: Path, module: Callable[..., None]) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    module("verl.py")
    assert commits_of(["verl"]) == {}


def test_another_commit_at_a_restart_is_on_record(tmp_path: Path, module: Callable[..., None]) -> None:
    (tmp_path / ".git").mkdir()
    module("verl.py")
    for attempt, commit in enumerate((COMMIT, OTHER)):
        (tmp_path / ".git" / "HEAD").write_text(commit)
        collector = Collector(tmp_path / "run", rank=0, attempt=attempt, writer="thread")
        collector.log(step=attempt, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        assert collector.close()
    run = open_run(tmp_path / "run")
    assert info(run)["code"] == SHORT
    (changed,) = differences(settings(run.info, 0), settings(run.info, 1))
    assert changed.words == f"code.verl {COMMIT[:12]} → {OTHER[:12]}"
