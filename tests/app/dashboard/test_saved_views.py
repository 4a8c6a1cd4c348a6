"""Saved views: kept in the run, listed as links on its pages, removed, and refused with a reason where they cannot be kept."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, plain, well

from ratioscope import open_run
from ratioscope.app.dashboard.panels import share
from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.analysis.saved_views import LONGEST, saved_views
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.layout import VIEW


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(runs, "stale"), tmp_path / "viewed"))


def links(app: AppTest) -> list[tuple[str, dict[str, list[str]]]]:
    """(page, choices) of each link."""
    found = [re.search(r"\]\((\./[^)]*)\)", text.value) for text in app.markdown]
    parsed = [urlsplit(each[1]) for each in found if each]
    return [(each.path, parse_qs(each.query)) for each in parsed]


def save(app: AppTest, name: str) -> AppTest:
    app.text_input(key="view_name").set_value(name)
    return well(app.button(key="view_keep").click().run())


def test_a_view_is_kept_in_the_run_and_is_a_link_to_the_same_choices(opened: Open, run: Path) -> None:
    app = save(opened("charts", run, only="lag=6 and position=4", axis="log"), "stale <b>tokens</b>")
    assert "Saved as" in plain(app) and app.text_input(key="view_name").value == ""
    ((page, choices),) = links(app)
    assert page == "./charts" and choices["only"] == ["lag=6 and position=4"] and choices["axis"] == ["log"]
    (kept,) = saved_views(open_run(run))
    assert kept.name == "stale <b>tokens</b>" and verify(run, deep=True).sound
    assert VIEW not in recorded_events(open_run(run))["event"].to_list(), "a view is no mark on a chart"
    assert links(opened("record", run)) == links(app)


def test_a_name_is_taken_over_and_a_view_removed(opened: Open, run: Path) -> None:
    save(opened("overview", run), "mine")
    app = save(opened("where", run, only="lag=6"), "mine")
    assert [page for page, _ in links(app)] == ["./where"]
    well(app.button(key="view_off_0").click().run())
    assert not links(app) and saved_views(open_run(run)) == ()
    save(app, "mine")
    assert len(links(app)) == 1, "a removed name can be used again"


def test_what_cannot_be_kept_says_why(opened: Open, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = save(opened("overview", run), "  ")
    assert "a view needs a name" in plain(app) and not links(app)
    monkeypatch.setattr(share, "write_remark", _refuse)
    app = save(app, "mine")
    assert "The view was not kept: viewed cannot be written: Read-only file system" in plain(app)
    assert app.text_input(key="view_name").value == "mine"


def _refuse(*_: object) -> None:
    raise SourceError("viewed cannot be written: Read-only file system")


def test_a_strangers_views_lead_to_pages_of_the_dashboard_alone(opened: Open, run: Path) -> None:
    good: dict[str, object] = {
        "name": "ok",
        "page": "where",
        "query": {"only": ["lag=6)](javascript:alert(1)"], "run": ["x"]},
        "number": 1,
    }
    bad: list[object] = [
        {**good, "name": "a", "page": "//evil.example/where"},
        {**good, "name": "b", "page": "../x"},
        [1],
        {"name": 1},
    ]
    for each in (good, *bad, "x" * (LONGEST + 1), {**good, "number": "many"}):
        write_remark(run, VIEW, 0, json.dumps(each))
    write_remark(run, VIEW, 0, "{")
    app = well(opened("overview", run))
    ((page, choices),) = links(app)
    assert page == "./where" and choices == {"run": ["viewed"], "only": ["lag=6)](javascript:alert(1)"]}
