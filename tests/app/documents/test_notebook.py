"""A run shows itself in a notebook, and the example notebook runs."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import plotly.graph_objects as go
import polars as pl
import pytest
from support import run_folders
from support.hostile import HOSTILE
from support.paths import ROOT

import ratioscope
from ratioscope.ingest import run as ingest_run
from ratioscope.ingest.run import open_run

STALE = ROOT / "sample_data" / "runs" / "trl-vllm-stale"
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def html_of(path: Path) -> str:
    shown = open_run(path)._repr_html_()
    assert shown is not None
    return shown


def test_a_run_shows_its_verdict_and_a_line_without_script_or_colour() -> None:
    shown = html_of(STALE)
    tree = ElementTree.fromstring(shown)  # well-formed, or this raises
    assert {element.tag.rpartition("}")[2] for element in tree.iter()} == {
        "div",
        "b",
        "br",
        "svg",
        "path",
        "small",
        "code",
    }
    assert "act: engine and trainer disagree on the same tokens, since step 21" in shown
    assert (
        "KL, mismatch: K3 now 0.17 ± 0.024 nats/token (step 60), 84 times its calm level 0.002029 ± 0.000067 " in shown
    )
    assert " (20 steps, 1 to 20) · worst 0.71 ± 0.12 (step 49)" in shown
    assert 'stroke="currentColor"' in shown and "#" not in shown and "style" not in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_a_stranger_is_text(tmp_path: Path, name: str) -> None:
    root = tmp_path / "run"
    run_folders.FakeWriter(root).open().close()
    run_folders.write_run_file(root, name=name)
    tree = ElementTree.fromstring(html_of(root))
    assert {element.tag for element in tree.iter()} == {"div", "b"}


def test_a_path_of_a_stranger_is_one_word_of_the_command(tmp_path: Path) -> None:
    root = tmp_path / "a; rm -rf $HOME <b>"
    shutil.copytree(STALE, root)
    assert f"diagnose &#x27;{tmp_path}/a; rm -rf $HOME &lt;b&gt;&#x27;" in html_of(root)


def test_an_empty_run_and_one_that_is_gone_show_themselves_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    run_folders.FakeWriter(root).open().close()
    assert "0 steps, no gap" in html_of(root)
    copy = tmp_path / "copy"
    shutil.copytree(STALE, copy)
    run = open_run(copy)
    shutil.rmtree(copy)
    assert run._repr_html_() is None or "copy" in str(run._repr_html_())
    assert "<Run" in repr(run)
    monkeypatch.setattr(ingest_run, "NOTEBOOK", "ratioscope.no_such_module")
    assert open_run(STALE)._repr_html_() is None


def test_the_example_notebook_runs_and_each_cell_shows_what_its_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code cells are run by plain Python, in order: a Jupyter kernel would add no line of ours."""
    monkeypatch.chdir(NOTEBOOK.parent)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    known: dict[str, Any] = {}
    shown = [shown_by("".join(cell["source"]), known) for cell in cells if cell["cell_type"] == "code"]
    run, metrics, figure, sequences, tokens = shown
    assert isinstance(run, ratioscope.Run) and "since step 21" in str(run._repr_html_())
    assert isinstance(metrics, pl.DataFrame) and metrics["step"].to_list() == [56, 57, 58, 59, 60]
    assert isinstance(figure, go.Figure) and tuple(figure.data)
    assert sequences["mismatch/kl_k3"].is_sorted(descending=True) and len(sequences) == 5
    assert tokens["position"].to_list() == list(range(len(tokens))) and len(tokens)
    assert not [cell for cell in cells if cell.get("outputs")], "outputs would age"


def shown_by(source: str, known: dict[str, Any]) -> Any:
    """The value of the last expression of a cell, which a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(tree, "notebook", "exec"), known)
    return eval(compile(ast.Expression(last.value), "notebook", "eval"), known)
