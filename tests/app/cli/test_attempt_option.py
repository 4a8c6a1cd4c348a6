"""`--attempt N` shows what one start of the job recorded, and no verb takes a broken run.json for a run."""

import json
import shutil
from pathlib import Path

import pytest
from support.paths import TESTS

from ratioscope.app.cli import OF_ONE_ATTEMPT, main
from ratioscope.app.dashboard.model.opened_runs import ATTEMPT, opened_run

RUN = str(TESTS / "old_releases" / "2026_11" / "tonight")
"""Its first start recorded the steps 1 to 3, its second one the step 2."""
FURTHER = {
    "baseline": ["save", RUN, "as", "other"],
    "bundle": [RUN, "-o", "out"],
    "diff": [RUN, RUN],
    "export": [RUN, "-o", "out.parquet"],
    "report": [RUN, "-o", "out.html"],
    "identity": [RUN, "--tokenizer", "none"],
    "rescore": [RUN, "--model", "none"],
    "sync": [RUN, "--to", "tensorboard:logs"],
    "wandb": ["sync", RUN, "--offline"],
}
BESIDES = {"note": ["hello"], "push": ["file:elsewhere"], "dashboard": ["--no-browser"]}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", (*OF_ONE_ATTEMPT, "wandb"))
def test_a_start_that_was_not_made_is_an_error(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *FURTHER.get(verb, [RUN]), *BESIDES.get(verb, []), "--attempt", "7"]) == 3
    assert "attempt 7 is not on record" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [*OF_ONE_ATTEMPT, "note", "compact", "prune", "repair", "push"])
def test_a_broken_run_file_is_an_error_in_every_verb(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("bad")
    arguments = [str(broken) if word == RUN else word for word in FURTHER.get(verb, [RUN])]
    assert main([verb, *arguments, *BESIDES.get(verb, [])]) == 3
    said = capsys.readouterr()
    assert "run.json cannot be read" in said.err and "move the file away" in said.err and not said.out
    assert [path.name for path in broken.iterdir()] == ["run.json"]


@pytest.mark.parametrize("text", ["bad", '{"name": "of another program"}'])
@pytest.mark.parametrize("verb", [*OF_ONE_ATTEMPT, "note", "compact", "prune", "push"])
def test_a_broken_run_file_beside_data_is_an_error_in_every_verb_but_repair(
    verb: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RUN, broken := tmp_path / "broken")
    (broken / "run.json").write_text(text)
    arguments = [str(broken) if word == RUN else word for word in FURTHER.get(verb, [RUN])]
    code = main([verb, *arguments, *BESIDES.get(verb, [])])
    said = capsys.readouterr()
    if verb == "verify":  # it names all findings, this one among them
        assert code == 1 and "\nrun.json\n" in said.out and "`ratioscope repair RUN`" in said.out
    else:
        assert code == 3 and "run.json" in said.err and f"`ratioscope repair {broken}`" in said.err and not said.out
    assert (broken / "run.json").read_text() == text


def test_each_start_has_its_own_steps(capsys: pytest.CaptureFixture[str]) -> None:
    steps = []
    for asked in ([], ["--attempt", "0"], ["--attempt", "1"]):
        assert main(["metrics", RUN, "--json", *asked]) == 0
        steps.append([row["step"] for row in json.loads(capsys.readouterr().out)])
    assert steps == [[1, 2], [1, 2, 3], [2]]


def test_verify_checks_one_start_and_a_page_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RUN, run := tmp_path / "run")
    hurt = max(run.glob("tokens/*/*.parquet"))  # the last step of the first start
    hurt.write_bytes(b"PAR1")
    codes = [main(["verify", str(run), *asked]) for asked in ([], ["--attempt", "0"], ["--attempt", "1"])]
    assert codes == [1, 1, 0] and "step=000000003" in str(hurt) and "sound\n3 commit logs" in capsys.readouterr().out
    monkeypatch.setenv(ATTEMPT, "0")
    assert opened_run(RUN).steps == [1, 2, 3]
    assert any("only what start 0 of the job recorded" in note for note in opened_run(RUN).notes)


def test_what_a_start_hides_is_named_with_the_option_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", RUN]) == 0
    said = capsys.readouterr().out
    assert "step 2 of attempt 0, 4 rows: written again by attempt 1" in said
    assert "step 3 of attempt 0, 4 rows: attempt 1 began again at step 2; --attempt 0 shows them" in said
