"""The checkouts that the trainers' tests read are brought at their commits; what fails leaves nothing behind."""

import subprocess
from pathlib import Path

import pytest
from support import fetch_sources
from support.sources import Checkout

GIT = [
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "commit.gpgsign=false",
]


def test_a_checkout_is_of_its_commit_and_one_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = tmp_path / "host" / "their" / "trainer"
    origin.mkdir(parents=True)
    subprocess.run([*GIT, "init", "--quiet"], cwd=origin, check=True)
    for text in ("first", "second"):
        (origin / "loss.py").write_text(text)
        subprocess.run([*GIT, "add", "."], cwd=origin, check=True)
        subprocess.run([*GIT, "commit", "--quiet", "-m", text], cwd=origin, check=True)
    first = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD~1"], cwd=origin, check=True, capture_output=True, text=True
    )
    known = Checkout("their/trainer", first.stdout.strip(), "trainer")
    monkeypatch.setattr(fetch_sources, "CHECKOUTS", {"known": known, "absent": Checkout("their/other", "abc", "other")})
    host = f"file://{tmp_path}/host/"
    for _ in range(2):
        assert fetch_sources.bring(tmp_path / "sources", host) == 1
        (brought,) = (tmp_path / "sources").iterdir()
        assert (brought.name, (brought / "loss.py").read_text()) == (f"known-{known.commit}", "first")
    printed = capsys.readouterr()
    assert "absent-abc could not be brought" in printed.err and printed.out.count("their/trainer at") == 1
