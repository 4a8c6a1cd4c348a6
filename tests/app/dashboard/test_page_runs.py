"""The page Runs, and the summaries it lists: every run with its verdict and state, read a few at a time, or why it cannot be."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, codes
from support.run_folders import FakeWriter
from support.statistics_runs import write_statistics_run

from ratioscope.app.blocks import Actions, Link, Table
from ratioscope.app.dashboard.model import served_folder
from ratioscope.app.dashboard.model.served_folder import Summaries, signature_of
from ratioscope.app.dashboard.model.served_runs import found_below
from ratioscope.app.dashboard.model.view import SERVED
from ratioscope.app.dashboard.panels import chosen_rows
from ratioscope.app.pages import runs
from ratioscope.app.pages.folder import Summary, summary_of
from ratioscope.app.pages.runs import WORDS
from ratioscope.app.pages.scope import Scope
from ratioscope.app.pages.view import View
from ratioscope.app.presentation.run_names import shortened
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import open_run
from ratioscope.process import Here


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in ("stale", "healthy", "bypass", "one_token", "empty", "hostile"):
        made(root, name)
    write_statistics_run(root / "sweep" / "seed0", 100, trainer="verl", name="a name of its own")
    (root / "newer").mkdir()
    (root / "newer" / "run.json").write_text('{"schema_version": 99}')
    return root


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is read before the page is drawn."""
    monkeypatch.setattr(served_folder, "BUDGET", 600.0)


def test_every_run_is_listed_with_what_is_wrong_with_it(opened: Open, tree: Path) -> None:
    shown = opened("runs", tree).dataframe[0].value.set_index("run")
    shown["verdict"] = shown["verdict"].str[0]
    assert [WORDS.index(word) for word in shown["verdict"]] == sorted(map(WORDS.index, shown["verdict"]))
    assert set(shown.index) == {"stale", "healthy", "bypass", "one_token", "empty", "hostile", "newer", "sweep/seed0"}
    found = verdict_of(open_run(tree / "stale"))
    assert shown.loc["stale", "verdict"] == "■ act" and shown.loc["stale", "worst signal"] == found.title
    assert shown.loc["stale", "since"] == found.since_step and shown.loc["stale", "records"] == "tokens"
    metrics = open_run(tree / "healthy").metrics()
    assert shown.loc["healthy", "verdict"] == "● healthy" and shown.loc["healthy", "worst signal"] == ""
    assert shown.loc["healthy", "kl_k3"] == pytest.approx(metrics["mismatch/kl_k3"][-1])
    assert shown.loc["healthy", "± se"] == pytest.approx(metrics["mismatch/kl_k3_se"][-1])
    assert shown.loc["healthy", "tokens"] == metrics["mismatch/tokens"].sum()
    assert shown.loc["bypass", "gap"] == "total" and shown.loc["empty", "verdict"] == "– not measured"
    assert shown.loc["sweep/seed0", "records"] == "statistics" and shown.loc["sweep/seed0", "trainer"] == "verl"
    assert shown.loc["sweep/seed0", "name"] == "a name of its own" and len(list(shown["course"]["sweep/seed0"])) == 60
    assert shown.loc["newer", "verdict"] == "✕ unreadable" and "upgrade" in str(shown.loc["newer", "worst signal"])


def test_runs_are_found_by_words_in_any_column(opened: Open, tree: Path) -> None:
    assert opened("runs", tree, find="act").dataframe[0].value["run"].tolist() == ["stale"]
    assert opened("runs", tree, find="HEALTHY trl").dataframe[0].value["run"].tolist() == ["healthy"]
    assert opened("runs", tree, find="[.*").dataframe[0].value.empty
    assert "1 of 8 runs" in _captions(opened("runs", tree, find="its own"))


def test_runs_are_read_a_few_at_a_time_and_the_others_say_so(
    opened: Open, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Summaries()
    monkeypatch.setattr(served_folder, "summaries", lambda: known)
    monkeypatch.setattr(served_folder, "BUDGET", 0.0)
    app = opened("runs", tree)
    for left in range(7, 0, -1):
        assert (app.dataframe[0].value["verdict"].str[0] == "not yet read").sum() == left
        assert f"{left} not yet read" in _captions(app)
        app.run()
    assert "not yet read" not in _captions(app)


def test_what_is_looked_for_is_read_first(tree: Path) -> None:
    found = found_below([str(tree)])
    assert [Path(path).name for path in runs._wanted_first(found.runs, "stale")][0] == "stale"


def test_a_run_is_read_again_when_it_has_grown_and_some_time_has_passed(tmp_path: Path) -> None:
    now = 0.0
    path = str(write_statistics_run(tmp_path / "run", 10, close=False))
    known = Summaries(lambda: now)
    assert known.known(path) is None and known.read_some([path], 1.0) == 0
    first = known.known(path)
    assert first is not None and first.steps == 10
    known.read_some([path], 1.0)
    assert known.known(path) is first
    FakeWriter(tmp_path / "run", "r00001-host-2-abcdef", clock=1.8e9).open().close()
    before = signature_of(path)
    now = 100.0
    known.read_some([path], 1.0)
    assert known.known(path) is not first and signature_of(path) == before


def test_a_run_that_is_read_slowly_is_not_read_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, read = [0.0], []

    def slow(run: object) -> Summary:
        read.append(now[0])
        now[0] += 2.0
        return Summary()

    monkeypatch.setattr(served_folder, "summary_of", slow)
    path = str(write_statistics_run(tmp_path / "run", 3, close=False))
    known = Summaries(lambda: now[0])
    for second in range(60):
        now[0] = max(now[0], float(second))
        (tmp_path / "run" / "commits" / "x.jsonl").write_text("x" * second)
        known.read_some([path], 0.5)
    assert read == [0.0, 42.0]


def test_the_state_is_that_of_the_newest_attempt_and_grows_old(tmp_path: Path) -> None:
    known, path, here = Summaries(), str(tmp_path / "run"), Here("host", "pid:[1]", lambda pid: None)
    first = FakeWriter(tmp_path / "run").open()
    assert known.state(path, here, first.clock + 10).brief == "● live"
    silent = known.state(path, here, first.clock + 7200)
    assert silent.word == "▲ silent for 2 hours" and (silent.brief, silent.ago) == ("▲ silent", "2 hours ago")
    second = FakeWriter(tmp_path / "run", "r00000-host-2-abcdef", attempt=1).open()
    assert known.state(path, here, second.clock + 10).brief == "● live"
    second.close()
    assert known.state(path, here, second.clock + 10).brief == "ended"
    assert summary_of(open_run(tmp_path / "run")).attempts == 2
    assert known.state(str(tmp_path / "none"), here, 0.0).brief == "■ gone"


def test_nothing_recorded_anywhere_shows_how_to_attach(opened: Open, tmp_path: Path) -> None:
    made(tmp_path, "empty")
    app = opened("runs", tmp_path)
    assert len(app.info) == 1 and any("ratioscope.attach" in code for code in codes(app)) and len(app.dataframe) == 1


def test_a_click_opens_the_run_and_ticked_ones_are_laid_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    table = chosen_rows.in_place(_table("a", "b", "c"))
    assert table.leads is not None and table.leads(1) == Link("overview", {"run": "b"})
    scope = Scope(View("", 0, SERVED))
    (several, *_), (one, *_), none = (
        [block for block in runs._of_ticked(scope, names) if isinstance(block, Actions)]
        for names in (("c", "a"), ("a",), ())
    )
    assert several.actions[0].do == Link("charts", {"run": "c", "with": ["a"]}) and none == []
    assert one.actions[0].do == Link("charts", {"run": "a"})


def _table(*names: str) -> Table:
    rows = pl.DataFrame({"run": names})
    leads = [Link("overview", {"run": name}) for name in names].__getitem__
    return Table("runs", rows, picks="runs_table", leads=leads, rows=names, has_ticks=True)


def _captions(app: AppTest) -> str:
    return "\n".join(caption.value for caption in app.caption)


def test_the_newest_step_stands_in_the_list_before_the_run_is_read(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Collector(path) as collector:
        for step in (3, 7):
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    path = write_statistics_run(tmp_path / "long", 200)
    shown = opened("runs", tmp_path).dataframe[0].value.set_index("run")
    assert shown.loc["run", "newest"] == 7 and shown.loc["long", "newest"] == 199
    assert (shown["state"] == "ended").all() and str(shown.loc["run", "age"]).endswith(" ago")


def test_ticked_runs_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", state)

    def listed(*names: str) -> list[str]:
        table = chosen_rows.in_place(_table(*names))
        assert table.leads is not None and table.leads(0).choices["run"] == table.rows[0]
        return table.frame["run"].to_list()

    def ticked() -> list[str]:
        return chosen_rows.ticked_rows("runs_table")

    assert listed("b", "d") == ["b", "d"]
    state["runs_table_0"] = _Table([], [1])
    assert ticked() == ["d"]
    assert listed("a", "b", "c", "d") == ["b", "d", "a", "c"] and ticked() == ["d"]
    assert listed("a", "b", "c") == ["a", "b", "c"] and ticked() == [], "a listed row is gone"
    state["runs_table_1"] = _Table([], [0])
    assert listed("b", "c") == ["b", "c"] and chosen_rows.tick_key("runs_table") == "runs_table_2"


class _Table:
    """The state of a table in which these cells are selected."""

    def __init__(self, cells: list[tuple[int, str]], rows: Sequence[int] = ()) -> None:
        self.selection = self
        self.cells = cells
        self.rows = list(rows)


def test_long_names_are_cut_in_the_middle_and_what_is_invisible_shows() -> None:
    assert shortened("a" * 40 + "seed3", 20).endswith("seed3") and len(shortened("x" * 99, 20)) == 20
    assert "\u202e" not in shortened("a\u202eb") and shortened("short") == "short"


def test_words_match_in_every_text_column_but_the_age() -> None:
    rows = pl.DataFrame({"run": ["Alpha", "beta"], "steps": [1, 2], "state": [None, "live"], "age": ["live", "1 s"]})
    assert rows.filter(runs.matches(rows, "LIVE"))["run"].to_list() == ["beta"]
    assert rows.filter(runs.matches(rows, " "))["run"].to_list() == ["Alpha", "beta"]
