"""What the pages show is run: their Python, their commands, and the output that they promise."""

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from support.paths import ROOT

import ratioscope

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
pytestmark = pytest.mark.slow
COLUMNS = "100"
"""Of the terminal in which the output of the pages was printed."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page."""
    return [(language, text) for language, text in FENCE.findall(page.read_text())]


def assert_promised(promised: str, printed: str) -> None:
    """`...` stands for any text; blanks at the ends of lines do not count."""
    wanted, got = (
        "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n" for text in (promised, printed)
    )
    assert doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS), f"promised:\n{wanted}\nprinted:\n{got}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as its reader's: a clone with the shipped runs, and a run of their own that has begun."""
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    shutil.copytree(ROOT / "sample_data" / "runs" / "trl-vllm-stale", tmp_path / "runs" / "tonight")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trainer_values() -> dict[str, Any]:
    """What a trainer has at hand when a page's line is pasted into it."""
    import template_adapter  # type: ignore[import-not-found]  # of docs/

    sides = {name: torch.full((2, 3), -value) for name, value in (("rollout", 1.0), ("old", 1.1), ("current", 1.2))}
    known = {**sides, "mask": torch.ones(2, 3, dtype=torch.bool), "step": 1000, "trainer": template_adapter}
    return {**known, "my_logprobs": lambda prompt, response: [-1.0 for _ in response], "__name__": "page"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if {"python", "console"} & dict(blocks(page)).keys()], ids=lambda page: page.stem
)
def test_what_a_page_shows_runs_in_the_order_of_the_page_and_prints_what_is_promised(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # a command that reads lines gets none
    attachments: list[Any] = []  # a page need not give one a name
    attach = ratioscope.attach

    def noted(*given: Any, **options: Any) -> Any:
        attachments.append(attach(*given, **options))
        return attachments[-1]

    monkeypatch.setattr(ratioscope, "attach", noted)
    monkeypatch.setattr(
        sys, "stdin", io.StringIO('{"prompt_ids": [1, 5], "token_ids": [7, 2]}\n')
    )  # for a scorer's command
    known, printed = trainer_values(), ""
    for language, text in blocks(page):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(text, page.name, "exec"), known)
            printed = output.getvalue()
        elif language == "text":
            assert_promised(text, printed)
        elif language == "console":
            run_commands(text)
    for value in [*attachments, *known.values()]:
        for end in ("close", "detach"):
            if type(value).__module__.startswith("ratioscope.") and hasattr(value, end):
                getattr(value, end)()


def run_commands(text: str) -> None:
    """Runs the commands of a console block, and compares what each prints."""
    _, *parts = COMMAND.split(text)
    for command, promised in zip(parts[::2], parts[1::2], strict=True):
        name, *arguments = shlex.split(command)
        assert name == "ratioscope", f"only commands of ours are run: {command}"
        done = subprocess.run(
            [sys.executable, "-m", "ratioscope", *arguments],
            capture_output=True, text=True, env={**os.environ, "COLUMNS": COLUMNS},
        )  # fmt: skip
        assert_promised(promised, done.stdout + done.stderr)


def test_the_line_of_the_run_format_reads_a_run_that_an_older_version_began(folder: Path) -> None:
    (line,) = [
        line
        for line in (ROOT / "docs" / "run_format.md").read_text().splitlines()
        if line.startswith("pl.scan_parquet")
    ]
    before = eval(line, {"pl": pl})
    with ratioscope.Collector("runs/tonight", trainer="mine") as collector:
        collector.log(step=1000, rollout_logprobs=torch.full((2, 3), -1.0), old_logprobs=torch.full((2, 3), -1.1))
    assert eval(line, {"pl": pl}).height == before.height + 2
