"""What the server may open: the runs found below what it was started for, under names that stay, and nothing else."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from support.run_folders import FakeWriter, write_run_file

from ratioscope.app.dashboard.model import served_runs as served
from ratioscope.app.dashboard.model.opened_runs import RUNS
from ratioscope.app.dashboard.model.served_runs import SearchedRoots, distinct_names, found_below
from ratioscope.collectors.collector import Collector


def test_runs_are_named_by_their_place_below_the_root(tmp_path: Path) -> None:
    for name in ("sweep/seed0", "sweep/seed1", "alone"):
        write_run_file(tmp_path / name)
    found = found_below([str(tmp_path)])
    assert dict(found.runs) == {name: str(tmp_path / name) for name in ("alone", "sweep/seed0", "sweep/seed1")}
    assert found.waits and found.name_of(str(tmp_path / "alone")) == "alone" and found.name_of("/etc") == "/etc"


def test_several_roots_tell_their_runs_apart_and_a_run_is_listed_once(tmp_path: Path) -> None:
    for name in ("x/run", "y/run", "y/deep/run"):
        write_run_file(tmp_path / name)
    roots = [str(tmp_path / "x"), str(tmp_path / "y"), str(tmp_path / "y" / "run")]
    assert list(found_below(roots).runs) == ["x/run", "y/run", "y/deep/run"]
    assert list(found_below(roots[2:]).runs) == ["run"] and not found_below(roots[2:]).waits


def test_a_name_does_not_change_when_other_runs_appear(tmp_path: Path) -> None:
    write_run_file(tmp_path / "a" / "seed0")
    before = dict(found_below([str(tmp_path)]).runs)
    write_run_file(tmp_path / "b" / "seed0")
    write_run_file(tmp_path / "seed0")
    assert before.items() <= dict(found_below([str(tmp_path)]).runs).items()


def test_a_run_appears_at_the_next_look_and_looks_are_apart(tmp_path: Path) -> None:
    now = 0.0
    watched = SearchedRoots((str(tmp_path),), lambda: now)
    assert not watched.now().runs and watched.now().waits
    write_run_file(tmp_path / "run")
    now = 1.9
    assert not watched.now().runs
    now = 2.1
    assert list(watched.now().runs) == ["run"]


def test_the_root_itself_may_become_the_run(tmp_path: Path) -> None:
    root = tmp_path / "tonight"
    root.mkdir()
    assert found_below([str(root)]).waits
    write_run_file(root)
    found = found_below([str(root)])
    assert dict(found.runs) == {"tonight": str(root)} and not found.waits and found.first == "tonight"


def test_the_run_that_began_last_is_shown_first(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        FakeWriter(tmp_path / name).open()
        os.utime(tmp_path / name / "commits", (1e9 + (name == "c"), 1e9 + (name == "c")))
    assert found_below([str(tmp_path)]).first == "c"
    assert found_below([str(tmp_path / "b"), str(tmp_path)]).first == "b"


def test_links_out_of_the_root_are_not_served(tmp_path: Path) -> None:
    write_run_file(tmp_path / "outside" / "run")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    assert not found_below([str(tmp_path / "root")]).runs


def test_names_that_are_no_text_are_shown_escaped_and_told_apart(tmp_path: Path) -> None:
    write_run_file(tmp_path / "run\udcff")
    write_run_file(tmp_path / "run\\udcff")
    names = list(found_below([str(tmp_path)]).runs)
    assert sorted(names) == ["run\\udcff", "run\\udcff (2)"]
    for name in names:
        name.encode()


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p)), unique=True))
def test_distinct_names_are_distinct_ends_of_their_paths(paths: list[str]) -> None:
    names = distinct_names(paths)
    assert len(set(names.values())) == len(paths)
    assert all(f"/{path}".endswith(name) for path, name in names.items())


def _script() -> None:
    from ratioscope.app.dashboard import shell as dashboard
    from ratioscope.app.pages import pages

    dashboard.prepared(next(card for card in pages.PAGES if card.path == "record"))()


def test_a_url_reaches_nothing_but_the_runs_that_were_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("root/one", "root/two", "outside/run"):
        with Collector(tmp_path / name) as collector:
            collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "run")
    monkeypatch.setenv(RUNS, json.dumps([str(tmp_path / "root")]))
    for run in ("../outside/run", "link", str(tmp_path / "outside" / "run"), "one/../../outside/run", "one/", "", "."):
        app = AppTest.from_function(_script, default_timeout=60)
        app.query_params["run"] = run
        app.run()
        assert not app.exception and app.selectbox(key="run").value is None
        assert not any("outside" in str(element.value) for element in (*app.caption, *app.markdown, *app.json))
    app = AppTest.from_function(_script, default_timeout=60)
    app.query_params["run"] = "two"
    assert app.run().selectbox(key="run").value == "two"


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_an_address_whose_run_is_not_served_shows_no_other_run_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    last = names[-1]
    for name in names:
        with Collector(tmp_path / name) as collector:
            collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    served_roots = [tmp_path] if len(names) > 1 else [tmp_path / name for name in names]
    monkeypatch.setenv(RUNS, json.dumps(list(map(str, served_roots))))
    app = AppTest.from_function(_script, default_timeout=60)
    app.query_params["run"] = "last-night"
    for _ in range(2):
        app.run()
        assert not app.exception and "last\\-night** of this address is not served" in app.warning[0].value
        assert not app.json and not app.dataframe, "a page of another run"
        assert sorted(button.label for button in app.button) == list(names)
    next(button for button in app.button if button.label == last).click().run()
    assert not app.warning and f"/{last} · steps 0" in " ".join(element.value for element in app.caption)


def test_the_shown_run_stays_when_another_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    watched = SearchedRoots((str(tmp_path),), lambda: now)
    monkeypatch.setattr(served, "_watched", lambda roots: watched)
    monkeypatch.setenv(RUNS, json.dumps([str(tmp_path)]))
    Collector(tmp_path / "b").close()
    app = AppTest.from_function(_script, default_timeout=60).run()
    assert app.selectbox(key="run").value == "b"
    Collector(tmp_path / "a").close()
    now = 10.0
    app.run()
    assert app.selectbox(key="run").value == "b" and app.selectbox(key="run").options == ["a", "b"]
