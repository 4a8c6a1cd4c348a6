"""The answers of the verbs and the static pages to every edge run are the golden ones: a rewrite loses none unseen."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.edge_runs import RUNS, made
from support.golden import changes, golden, holds
from support.paths import ROOT
from support.shown_numbers import shown

from ratioscope.app.blocks import Chart
from ratioscope.app.cli import main
from ratioscope.app.documents import material as documents_material
from ratioscope.app.documents.document import FIRST, PATHS, files
from ratioscope.app.documents.drawings import Drawing
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import Material, material
from ratioscope.app.pages.pages import PAGES as EVERY
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.ingest import run as of_run
from ratioscope.ingest.analysis import diagnosis as of_diagnosis

PAGES = [page for page in EVERY if page.path in PATHS]
"""Those of a run that stands alone."""
VERBS = ("info", "diagnose", "corrections", "check", "diff")
SHIPPED = ROOT / "sample_data/runs"
TOO_LONG = ("corrections", "diff")
"""Verbs that read the token rows of ten thousand steps one by one, half a minute and more."""
FIGURES = re.compile(r'<script type="application/json" id="figures">(.*?)</script>', re.DOTALL)
open_run = cache(of_run.open_run)
diagnosis_of = cache(of_diagnosis.diagnosis_of)


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is read, and diagnosed, once for all verbs; and its charts are drawn in one theme."""
    monkeypatch.setattr(of_run, "open_run", lambda path, **_: open_run(path))
    monkeypatch.setattr(of_diagnosis, "diagnosis_of", diagnosis_of)
    monkeypatch.setattr(documents_material, "drawing", light)


@pytest.fixture(scope="module", autouse=True)
def let_go() -> Iterator[None]:
    yield
    for kept in (open_run, diagnosis_of, material_of):
        kept.cache_clear()


def light(name: str, chart: Chart) -> Drawing:
    """The chart in one theme alone: the other one has the same data, and takes as long to draw."""
    return Drawing(name, json.loads(chart.figure(LIGHT).to_json(engine="json") or ""), None)


@cache
def material_of(path: Path) -> Material:
    return material(open_run(path))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", RUNS)
def test_a_verb_has_its_golden_answer(runs: Path, capsys: pytest.CaptureFixture[str], name: str, verb: str) -> None:
    if name == "many_steps" and verb in TOO_LONG:
        return
    before = [str(made(runs, "stale" if name == "healthy" else "healthy"))] if verb == "diff" else []
    holds(runs, name, verb, said([verb, *before, str(made(runs, name)), "--json"], capsys))


@pytest.mark.parametrize("verb", ["info", "diagnose", "check"])
def test_a_verb_has_its_golden_answer_to_a_shipped_run(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    holds(SHIPPED, "shipped", verb, said([verb, str(SHIPPED / "trl-vllm-stale"), "--json"], capsys))


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The exit code, the JSON on standard output, and the words on standard error. Any: what JSON can hold."""
    code, printed = main(arguments), capsys.readouterr()
    return {"code": code, "json": json.loads(printed.out or "null"), "error": printed.err}


@pytest.mark.parametrize("name", RUNS)
def test_the_report_has_its_golden_data(runs: Path, name: str) -> None:
    holds(runs, name, "report", json.loads(json_report(material_of(made(runs, name)))))


@pytest.mark.parametrize("name", RUNS)
def test_the_static_pages_have_their_golden_numbers(runs: Path, name: str) -> None:
    pages = files(material_of(made(runs, name)))
    assert len(pages) == len(PAGES)
    for page, text in pages.items():
        assert "Traceback" not in text and ">None<" not in text and ">nan<" not in text
        figures = [figure["light"] for figure in json.loads(FIGURES.findall(text)[0]).values()]
        body = text.partition("<main>")[2].partition("</main>")[0]
        path = PAGES[0].path if page == FIRST else page.removesuffix(".html")
        holds(runs, name, f"static page {path}", shown(body, figures))


@pytest.mark.parametrize("name", RUNS)
def test_no_golden_answer_is_left_without_a_page_or_a_verb(name: str) -> None:
    pages = {f"page {page.path}" for page in EVERY} | {f"static page {page.path}" for page in PAGES}
    verbs = {verb for verb in VERBS if name != "many_steps" or verb not in TOO_LONG}
    assert set(golden(name)) == {*pages, *verbs, "report"}


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"a": [1.0, "x"], "c": 2}, "members"),
        ({"b": 2, "a": [1.0, "x"]}, "members"),
        ({"a": [1.0 + 1e-8, "x"], "b": 2}, "answer.a[0]: 1.0 -> 1.00000001"),
        ({"a": [1, "x"], "b": 2}, "answer.a[0]: 1.0 -> 1"),
        ({"a": [1.0, "y"], "b": 2}, 'answer.a[1]: "x" -> "y"'),
        ({"a": [1.0], "b": 2}, "answer.a: 2 -> 1 items"),
        ({"a": [1.0, "x"], "b": None}, "answer.b: 2 -> null"),
    ],
)
def test_an_answer_that_differs_is_told_by_its_place_and_both_values(found: Any, line: str) -> None:
    kept = {"a": [1.0, "x"], "b": 2}
    assert any(line in each for each in changes(kept, found, "answer"))
    assert not [*changes(kept, {"a": [1.0 + 1e-10, "x"], "b": 2}, "answer")]
