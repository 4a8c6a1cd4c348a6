"""`--attempt N` shows what one start of the job recorded, and no verb takes a broken run.json for a run."""

import json
from pathlib import Path

import pytest
from support.paths import TESTS

from ratioscope.app.cli import OF_ONE_ATTEMPT, main

RUN = str(TESTS / "old_releases" / "2026_11" / "tonight")
"""Its first start recorded the steps 1 to 3, its second one the step 2."""
FURTHER = {
    "baseline": ["save", RUN, "as", "other"],
    "bundle": [RUN, "-o", "out"],
    "diff": [RUN, RUN],
    "export": [RUN, "-o", "out.parquet"],
    "report": [RUN, "-o", "out.html"],
    "sync": [RUN, "--to", "tensorboard:logs"],
    "wandb": ["sync", RUN, "--offline"],
}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", (*OF_ONE_ATTEMPT, "wandb"))
def test_a_start_that_was_not_made_is_an_error(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *FURTHER.get(verb, [RUN]), "--attempt", "7"]) == 3
    assert "attempt 7 is not on record" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [*OF_ONE_ATTEMPT, "note", "verify", "compact", "prune", "repair", "push", "dashboard"])
def test_a_broken_run_file_is_an_error_in_every_verb(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("bad")
    further = {"note": ["hello"], "push": [f"file://{tmp_path / 'elsewhere'}"], "dashboard": ["--no-browser"]}.get(
        verb, []
    )
    arguments = [str(broken) if word == RUN else word for word in FURTHER.get(verb, [RUN])]
    assert main([verb, *arguments, *further]) == 3
    said = capsys.readouterr()
    assert "run.json cannot be read" in said.err and "move the file away" in said.err and not said.out
    assert [path.name for path in broken.iterdir()] == ["run.json"]


def test_each_start_has_its_own_steps(capsys: pytest.CaptureFixture[str]) -> None:
    steps = []
    for asked in ([], ["--attempt", "0"], ["--attempt", "1"]):
        assert main(["metrics", RUN, "--json", *asked]) == 0
        steps.append([row["step"] for row in json.loads(capsys.readouterr().out)])
    assert steps == [[1, 2], [1, 2, 3], [2]]


def test_what_a_start_hides_is_named_with_the_option_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", RUN]) == 0
    said = capsys.readouterr().out
    assert "step 2 of attempt 0, 4 rows: written again by attempt 1" in said
    assert "step 3 of attempt 0, 4 rows: attempt 1 began again at step 2; --attempt 0 shows them" in said
