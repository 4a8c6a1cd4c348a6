"""Runs with readings on a store: the report fetches the files of its examples, and `info` makes a diagnosis of few bytes."""

import json
from pathlib import Path

import fsspec
import pytest
from support.read_run import read_run

from ratioscope import open_run
from ratioscope.app.cli import main as ratioscope
from ratioscope.app.cli.commands import info as verb
from ratioscope.app.documents.material import material
from ratioscope.app.referee import answer
from ratioscope.ingest.analysis import evidence
from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.remote import opening
from ratioscope.ingest.remote.mirror import Mirror
from ratioscope.layout import TOKENS

URL = "memory://bucket/runs/read"
STEPS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose steps a referee read all."""
    return read_run(tmp_path_factory.mktemp("remote") / "read", steps=STEPS, read=tuple(range(STEPS)))


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "_MIRRORS", {})
    fsspec.filesystem("memory").store.clear()
    push(folder, URL)


def fetched(copy: Mirror) -> set[str]:
    """The steps whose token files are in the copy."""
    return {path.parent.name for path in (copy.root / TOKENS).rglob("*.parquet")}


def copy_of(url: str) -> Mirror:
    found = opening.mirror_at(open_run(url).path)
    assert found is not None
    return found


def test_a_report_fetches_the_token_files_of_its_examples_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_STEPS", 3)
    monkeypatch.setattr(evidence, "MOST_STEPS", 4)
    run = open_run(URL)
    data = material(run)
    drawn = data.steps.filter(data.steps["rollout:referee/kl_k3"].is_not_null())["step"].to_list()
    assert len(drawn) == 3 and (drawn[0], drawn[-1]) == (0, STEPS - 1)
    assert (
        data.side is not None
        and "3 of them compared here, and drawn, because" in dict(data.side.facts)["what was read"]
    )
    shown = {row.step for row in data.worst}
    assert len(fetched(copy_of(URL))) <= 3 + 4 + len(shown) < STEPS


def test_the_numbers_of_the_drawn_steps_are_those_of_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_STEPS", 3)
    there, here = material(open_run(URL)), material(open_run(folder))
    few, every = (data.steps.select("step", "rollout:referee/kl_k3").drop_nulls() for data in (there, here))
    assert len(few) == 3 and len(every) == STEPS
    assert few.equals(every.filter(every["step"].is_in(few["step"].to_list())))
    assert there.steps["mismatch/kl_k3"].equals(here.steps["mismatch/kl_k3"])


def test_info_of_a_url_makes_the_diagnosis_of_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for place in (str(folder), URL):
        assert ratioscope(["info", place, "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out)["diagnosis"])
    assert said[0] is not None and said[0] == said[1]


def test_info_of_a_url_says_why_it_makes_no_diagnosis(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "MOST_FETCHED", 0)
    assert ratioscope(["info", URL]) == 0
    assert (
        f" of token rows would have to be fetched for it; ratioscope diagnose {URL} makes it" in capsys.readouterr().out
    )
    assert fetched(copy_of(URL)) == {"step=000000000"}  # whose stored digits are looked at
