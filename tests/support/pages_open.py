"""Opens one page of the dashboard without a browser, as Streamlit runs it: for the tests of pages. `opened` is its fixture."""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from html import unescape
from pathlib import Path
from typing import TypeVar

import pytest
from streamlit import config
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from ratioscope.app.browser.chart import NAME
from ratioscope.app.browser.code import NAME as CODE
from ratioscope.app.dashboard.model.opened_runs import RUNS
from ratioscope.app.pages.sequence_list import HERE
from support.edge_runs import made
from support.pages_read import PageRead

SECONDS = 120
Open = Callable[..., AppTest]
Shown = TypeVar("Shown", AppTest, PageRead)
Names = str | Path | Sequence[str | Path]
# each AppTest asks for it: the metadata of all installed packages, which a process reads once and not before every page
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
# as the server sets it: else Streamlit inspects the arguments of every call for its statistics, an eighth of a page's time
config.set_option("browser.gatherUsageStats", False)


def opener(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """(page, names of edge runs or folders, theme, query) -> the page, run once; nothing on it is broken."""

    def page(path: str, names: Names, theme: str = "light", **query: str | list[str]) -> AppTest:
        several = [names] if isinstance(names, str | Path) else names
        folders = [name if isinstance(name, Path) else made(runs, name) for name in several]
        monkeypatch.setenv(RUNS, json.dumps([str(folder) for folder in folders]))
        monkeypatch.setenv("PAGE", path)
        app = unopened()
        app.context["theme"] = theme
        for name, value in query.items():
            app.query_params[name] = value
        return well(app.run())

    return page


def unopened() -> AppTest:
    """The page that the environment says, on the runs that it says; not run."""
    return AppTest.from_function(_script, default_timeout=SECONDS)


def _script() -> None:
    """What Streamlit runs: one page, because AppTest cannot switch to a page that is a function."""
    import os

    from ratioscope.app.dashboard import shell as dashboard
    from ratioscope.app.pages import pages

    dashboard.prepared(next(card for card in pages.PAGES if card.path == os.environ["PAGE"]))()


def well(app: Shown) -> Shown:
    assert not app.exception, [box.value for box in app.exception]
    assert not app.error, [box.value for box in app.error]
    return app


def charts(app: AppTest | PageRead) -> list[str]:
    """The figures on the page, as JSON: the second line of what the browser is told, see app/browser/chart.py."""
    if isinstance(app, PageRead):
        return app.charts
    told = [element.proto for element in app.get("bidi_component") if element.proto.component_name == NAME]
    return [json.dumps(json.loads(chart.bytes.decode().split("\n")[1])["figure"], ensure_ascii=False) for chart in told]


def codes(app: AppTest | PageRead) -> list[str]:
    """The blocks of code on the page, see app/browser/code.py."""
    if isinstance(app, PageRead):
        return app.codes
    shown = [element.proto for element in app.get("bidi_component") if element.proto.component_name == CODE]
    return ["".join(part for _, part in json.loads(block.json)["parts"]) for block in shown]


def html(app: AppTest | PageRead) -> str:
    return "\n".join(element.proto.body for element in app.html)


def fact_cards(app: AppTest | PageRead) -> dict[str, str]:
    """Name and value of each card of facts, see app/figures/html/fact_cards.py."""
    found = re.findall(r"<div><dt>(.*?)(?:<i .*?</i>)?</dt><dd>(.*?)</dd>", html(app))
    return {unescape(name): unescape(value) for name, value in found}


def marked(app: AppTest | PageRead, column: str = "sequence_id") -> str:
    """The cell of the first table in the row with the mark."""
    shown = app.dataframe[0].value
    return str(shown[shown[""] == HERE][column].item())


def words(app: AppTest | PageRead) -> str:
    """The page's text as Streamlit is given it, with what keeps foreign text from being read as markup."""
    assert not app.exception, [box.value for box in app.exception]
    parts = (*app.markdown, *app.caption, *app.info, *app.warning, *app.subheader)
    return "\n".join(str(element.value) for element in parts)


def plain(app: AppTest | PageRead) -> str:
    """The page's text as it is read."""
    return words(app).replace("\\", "").replace("\u2060", "")
