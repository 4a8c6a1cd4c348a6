"""A fact of a run has one value on all live pages, in the terminal and in the report."""

import re
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.one_value import FACTS, OF_PAGES, values_of
from support.pages_open import Open, html, plain, well

from ratioscope.app import cli
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.presentation.digits import plus_minus

PAGES = (
    "overview",
    "why",
    "charts",
    "distributions",
    "staleness",
    "fix",
    "alerts",
    "record",
    "runs",
    "compare",
)
ASKED = {"fix": {"try": "true"}, "compare": {"a": "stale", "b": "stale", "a_steps": ":", "b_steps": ":"}}
"""Queries of pages that tell more of the run with them."""
ONCE = {"newest size", "share above the cap", "floor"}
"""Facts that fewer than three texts tell."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def test_a_fact_has_one_value_on_live_pages_in_the_terminal_and_in_the_report(
    opened: Open, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(made(runs, "stale"))
    told = {page: _told(opened, page) for page in PAGES}
    for verb in ("info", "diagnose"):
        assert cli.main([verb, path]) == 0
        told[verb] = capsys.readouterr().out
    assert cli.main(["diff", path, path]) == 0
    told["diff"] = capsys.readouterr().out
    assert cli.main(["report", path, "-o", str(tmp_path / "report.md")]) == 0
    told["report"] = (tmp_path / "report.md").read_text()
    for fact, pattern in (FACTS | OF_PAGES).items():
        found = values_of(pattern, told)
        assert len(found) >= (2 if fact in OF_PAGES or fact in ONCE else 3), (fact, found)
        assert len(set().union(*found.values())) == 1, (fact, found)
    assert {"compare", "diff", "report"} <= values_of(OF_PAGES["size of the whole run"], told).keys()
    assert "report" in values_of(FACTS["size at the peak"], told), "a verdict and a scorecard round alike"


def _told(opened: Open, page: str) -> str:
    """The words and numbers of a page once the diagnosis is there."""
    app = opened(page, "stale", **ASKED.get(page, {}))
    diagnoses().answer_all()
    well(app.run())
    body = re.sub(r"<style.*?</style>", "", html(app), flags=re.DOTALL)
    marked = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))
    return "\n".join((plain(app), *(each.label.replace("\\", "") for each in app.button), marked, *_tables(app, page)))


def _tables(app: AppTest, page: str) -> list[str]:
    rows = [row for frame in app.dataframe for row in pl.from_pandas(frame.value).to_dicts()]
    newest = [f"newest KL {plus_minus(row['kl_k3'], row['± se'])}" for row in rows] if page == "runs" else []
    texts = [" ".join(value for value in row.values() if isinstance(value, str)) for row in rows]
    return [*newest, *texts]
