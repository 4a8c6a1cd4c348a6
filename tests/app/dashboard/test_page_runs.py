"""The page Runs, and the summaries it lists: every run with its verdict and state, read a few at a time, or why it cannot be."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, codes, plain
from support.run_folders import FakeWriter
from support.statistics_runs import write_statistics_run

from ratioscope.app.blocks import Action, Link, Table
from ratioscope.app.dashboard.model import served_folder
from ratioscope.app.dashboard.model.diagnoses import Diagnoses
from ratioscope.app.dashboard.model.opened_runs import RUNS
from ratioscope.app.dashboard.model.served_folder import Summaries, tags_file
from ratioscope.app.dashboard.model.served_runs import found_below
from ratioscope.app.dashboard.model.view import SERVED, view
from ratioscope.app.dashboard.panels import chosen_rows
from ratioscope.app.pages import runs
from ratioscope.app.pages.folder import Summary, summary_of
from ratioscope.app.pages.kept_summaries import signature_of
from ratioscope.app.pages.runs import WORDS
from ratioscope.app.pages.scope import Scope
from ratioscope.app.pages.ticked_runs import of_ticked
from ratioscope.app.pages.view import View
from ratioscope.app.presentation.run_names import shortened
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.acknowledgements import tags_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import open_run
from ratioscope.layout import MIRROR_MARK
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
    (several, *_), (one, *_), (none, *_) = (
        [block for block in of_ticked(scope, names, {}) if isinstance(block, Action)]
        for names in (("c", "a"), ("a",), ())
    )
    assert several.do == Link("charts", {"run": "c", "with": ["a"]}) and one.do == Link("charts", {"run": "a"})
    assert none.is_off, "the row of buttons is always there, so that no row of the list moves at a tick"


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


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two settings of two seeds each, of which one pair is out of bounds; a server of these runs."""
    root = tmp_path / "team"
    for lr, size in (("1e-6", 0.02), (3e-6, 0.6)):
        for seed in range(2):
            config = {"optim": {"lr": lr}, "seed": seed, "model": "qwen"}
            versions = {"vllm": "0.10" if seed else "0.9"}
            write_statistics_run(
                root / f"lr-{lr}" / f"seed{seed}", 20, seed=seed, size=size, config=config, versions=versions
            )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(RUNS, json.dumps([str(root)]))
    known = Summaries()
    monkeypatch.setattr(served_folder, "summaries", lambda: known)
    return root


def test_settings_and_metrics_are_columns_as_numbers_where_they_are(opened: Open, team: Path) -> None:
    columns = ["config.optim.lr", "versions.vllm", "ess_token whole run", "kl_k3 newest", "config.sed"]
    app = opened("runs", team, columns=columns)
    assert app.multiselect(key="columns").value == columns[:-1]
    assert "No run here has the column config.sed. Nearest: [config.seed]" in plain(app)
    offered = app.multiselect(key="columns").options
    assert offered.index("config.seed") < offered.index("ess_token newest") < offered.index("config.model"), (
        "equal ones last"
    )
    shown = app.dataframe[0].value.set_index("run")
    assert shown["config.optim.lr"].tolist() == [3e-6, 3e-6, 1e-6, 1e-6], "a text that is a number is one"
    assert shown["versions.vllm"].tolist() == ["0.9", "0.10", "0.9", "0.10"], "a version is no number"
    run = open_run(team / "lr-1e-6" / "seed0")
    assert shown.loc["lr-1e-6/seed0", "ess_token whole run"] == run.metrics(())["mismatch/ess_token"][0]
    assert shown.loc["lr-1e-6/seed0", "kl_k3 newest"] == run.metrics()["mismatch/kl_k3"][-1]


def test_the_settings_of_a_run_are_known_before_it_is_read(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_folder, "opened_run", None)
    listed, _ = served_folder.served_folder().listed(())
    assert {each.settings["config.optim.lr"] for each in listed} == {"0.000001", "0.000003"}
    assert not any(each.summary for each in listed)


def test_seeds_and_runs_of_one_setting_are_a_row_with_the_range_of_their_gap(opened: Open, team: Path) -> None:
    sizes = [open_run(team / "lr-3e-06" / f"seed{seed}").metrics()["mismatch/kl_k3"][-1] for seed in range(2)]
    for by, first in (("seeds", "lr-3e-06"), ("config.optim.lr", "config.optim.lr=0.000003")):
        shown = opened("runs", team, by=by).dataframe[0].value
        assert len(shown) == 2 and shown["runs"].tolist() == [2, 2]
        row = shown.iloc[0]
        assert (row["group"], row["verdicts"], row["gap"]) == (first, "2 act", "mismatch")
        assert (row["mean"], row["least"], row["largest"]) == pytest.approx((sum(sizes) / 2, min(sizes), max(sizes)))
    app = opened("runs", team, by="config.sead")
    assert (
        "Runs cannot be grouped by config.sead. Nearest: [config.seed]" in plain(app)
        and len(app.dataframe[0].value) == 4
    )


def test_a_tag_is_kept_in_the_run_and_found_and_an_archived_run_is_hidden_from_the_list_alone(
    opened: Open, team: Path
) -> None:
    folder, run = served_folder.served_folder(), team / "lr-1e-6" / "seed0"
    folder.listed([*folder.runs.values()])
    assert folder.tag is not None and folder.tag(["lr-1e-6/seed0", "lr-3e-06/seed1"], " bad  data", True) == ""
    assert tags_of(open_run(run)) == ("bad-data",) and not tags_file().exists()
    shown = opened("runs", team).dataframe[0].value.set_index("run")["tags"]
    assert shown.to_dict() == {
        "lr-3e-06/seed0": "",
        "lr-3e-06/seed1": "bad-data",
        "lr-1e-6/seed0": "bad-data",
        "lr-1e-6/seed1": "",
    }
    assert len(opened("runs", team, find="tag:bad-data").dataframe[0].value) == 2
    assert (
        opened("runs", team, find="tag:bad").dataframe[0].value.empty
        and len(opened("runs", team, find="bad-d").dataframe[0].value) == 2
    )
    folder.tag(["lr-1e-6/seed0"], "bad-data", False)
    folder.tag(["lr-1e-6/seed0"], "archived", True)
    assert tags_of(open_run(run)) == ("archived",), "taken off"
    app = opened("runs", team, run="lr-1e-6/seed0")
    assert len(app.dataframe[0].value) == 3 and "1 archived is hidden" in plain(app)
    assert [button.label for button in app.button if button.key == "finds_bad-data"] == ["bad\\-data 1"], (
        "of listed runs"
    )
    assert app.selectbox(key="run").value == "lr-1e-6/seed0", "a link to it still opens it"
    assert len(opened("runs", team, archived="true").dataframe[0].value) == 4
    assert folder.tag(["lr-1e-6/seed0"], " , ", True).startswith("Not tagged: a tag of 0 characters; wanted 1 to 40")


def test_the_tag_of_a_run_that_cannot_be_written_is_kept_beside_the_server_and_said(opened: Open, team: Path) -> None:
    folder, run = served_folder.served_folder(), team / "lr-1e-6" / "seed0"
    (run / MIRROR_MARK).touch()
    assert folder.tag is not None
    said = folder.tag(["lr-1e-6/seed0"], "good", True)
    assert said.startswith(f"good is kept beside this server, in {tags_file()}, because") and "copy of a run" in said
    assert tags_of(open_run(run)) == ()
    app = opened("runs", team, find="tag:good")
    assert app.dataframe[0].value["run"].tolist() == ["lr-1e-6/seed0"]
    assert "lr-1e-6/seed0 cannot be written: their tags are kept beside this server" in plain(app)
    (run / MIRROR_MARK).unlink()
    assert folder.tag(["lr-1e-6/seed0"], "good", True) == "" and tags_of(open_run(run)) == ("good",)
    assert "beside this server" not in plain(opened("runs", team)), "the run has it now"
    tags_file().write_text("{")
    assert (
        "cannot be read" in folder.tag(["lr-1e-6/seed0"], "good", False)
        and len(opened("runs", team).dataframe[0].value) == 4
    )


def test_the_cause_stands_in_the_list_once_a_diagnosis_is_known(
    opened: Open, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Diagnoses()
    monkeypatch.setattr(served_folder, "diagnoses", lambda: known)
    assert known.of(shown := view(str(tree / "stale"))) is None
    known.answer_all()
    answered = known.of(shown)
    assert answered is not None and answered.result is not None
    cause = answered.result.diagnosis.headline.removesuffix(".")
    listed = opened("runs", tree).dataframe[0].value.set_index("run")["worst signal"]
    assert listed["stale"].lower() == cause.lower() and listed["healthy"] == ""
