"""The page of a step's sequences: what is shown, in which order, what filters leave, prompts and their samples, keys."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, plain, well, words
from support.pages_read import PageRead, Read

from ratioscope.app.pages import text_search
from ratioscope.app.pages.prompt_groups import group_table
from ratioscope.app.pages.sequence_filters import Filters, range_of
from ratioscope.app.presentation.value_text import number_format
from ratioscope.collectors.budget import Budget
from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis import text_search as hits
from ratioscope.ingest.run import Run, open_run


def _run(runs: Path) -> Run:
    return open_run(made(runs, "stale"))


def _ids(app: AppTest | PageRead) -> list[str]:
    return [str(name) for name in app.dataframe[0].value["sequence_id"]]


def test_each_row_has_its_course_on_one_symmetric_axis(read: Read, runs: Path) -> None:
    shown = read("samples", ["stale"], step="14").dataframe[0].value
    run = _run(runs)
    for sequence_id, line, worst in shown[["sequence_id", "line", "max_abs_log_ratio"]].itertuples(index=False):
        assert len(line) == min(60, len(run.sequence(14, sequence_id)))
        assert max(map(abs, line)) == pytest.approx(worst)


@pytest.mark.parametrize("order", ["confident_disagreements", "weight", "length", "log_ratio_mean"])
def test_any_measure_can_be_sorted_by(opened: Open, runs: Path, order: str) -> None:
    app = opened("samples", ["stale"], step="14", order=order)
    frame = _run(runs).sequences(14).with_columns(weight=pl.col("mismatch/log_ratio_sum").exp())
    column = order if order in frame.columns else f"mismatch/{order}"
    found = frame.select("sequence_id", pl.col(column).abs())
    by_id = dict(found.rows())
    sizes = [by_id[name] for name in _ids(app)]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == len(frame)


def test_filters_in_the_link_leave_what_they_say(read: Read, runs: Path) -> None:
    frame = _run(runs).sequences(14)
    app = read("samples", ["stale"], step="14", column="max_abs_log_ratio", least="2", most="3")
    wanted = frame.filter(pl.col("mismatch/max_abs_log_ratio").is_between(2, 3))
    assert set(_ids(app)) == set(wanted["sequence_id"]) and 0 < len(wanted) < len(frame)
    assert f"{len(wanted)} of {len(frame)} rows" in words(app) and "Largest |log-ratio| ≥ 2" in plain(app)
    app = read("samples", ["stale"], step="14", find="4-23")
    assert set(_ids(app)) == {name for name in frame["sequence_id"] if "4-23" in name}
    app = read("samples", ["stale"], step="14", within=":-2")
    tokens = _run(runs).tokens([14]).filter(pl.col("mismatch") < -2).collect()
    assert set(_ids(app)) == set(tokens["sequence_id"])
    assert app.dataframe[0].value["tokens_within"].sum() == len(tokens)


def test_a_filter_that_nothing_passes_is_said_and_a_wrong_one_explained(read: Read, runs: Path) -> None:
    app = read("samples", ["stale"], step="14", find="no such thing")
    assert not app.dataframe and "0 of 32 rows" in words(app)
    assert "wanted from" in words(read("samples", ["stale"], step="14", within="3:1"))
    assert "rewards 'x': wanted from:to, such as" in words(read("samples", ["stale"], step="14", rewards="x"))
    app, rewards = read("samples", ["stale"], step="14", rewards="0.5:0.5"), _run(runs).sequences(14)["reward"]
    assert f"{(rewards == 0.5).sum()} of 32 rows" in words(app) and "reward 0.5 to 0.5" in words(app)


def test_filters_of_facts_and_signs() -> None:
    frame = pl.DataFrame(
        {
            "sequence_id": ["A", "b", "c", "d"],
            "group_id": ["x", None, "ax", "y"],
            "finish_reason": ["stop", "length", None, "stop"],
            "lag": [0, 1, 2, None],
            "reward": [1.0, -1.0, 0.0, None],
            "mismatch/kl_k3": [0.1, 0.2, math.nan, None],
        }
    )

    def left(**given: object) -> str:
        return "".join(Filters(**given).of(frame, "mismatch")["sequence_id"])  # type: ignore[arg-type]

    assert left(find="a") == "Ac" and left(find=".*") == "" and left() == "Abcd"
    assert left(chosen={"finish_reason": ("stop",), "lag": ()}) == "Ad" and left(chosen={"lag": ("1", "2")}) == "bc"
    assert left(rewards=(0.0, 1.0)) == "Ac" and left(rewards=(-1.0, -1.0)) == "b" == left(rewards=(-2.0, -0.5))
    assert left(rewards=(0.0, 9.0), column="lag", most=1) == "A", "a range of rewards and one of a metric"
    assert left(signs=("positive", "zero")) == "Ac" and left(signs=("negative",)) == "b"
    assert left(column="kl_k3", least=0.15) == "b" and left(column="kl_k3", most=0.15) == "A"
    assert left(column="lag", least=1, most=1) == "b"


def test_values_of_facts_are_chosen_in_the_link(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        sides = {"rollout_logprobs": [[-1.0, -2.0]] * 3, "old_logprobs": [[-1.1, -2.1]] * 3}
        collector.log(step=0, sequence_ids=["a", "b", "c"], finish_reasons=["stop", "length", "abort"], **sides)  # type: ignore[arg-type]
    app = opened("samples", tmp_path / "run", finish=["stop", "abort"])
    assert sorted(_ids(app)) == ["a", "c"] and "finish reason stop or abort" in plain(app)
    app = opened("samples", tmp_path / "run", finish="gone")
    assert sorted(_ids(app)) == ["a", "b", "c"] and "finish" not in app.query_params


def test_a_range_is_two_ends_of_which_one_may_be_open() -> None:
    assert range_of(" -5 : -2 ") == (-5.0, -2.0) and range_of("-inf:inf") == (-math.inf, math.inf)
    assert range_of("1:1", "rewards") == (1.0, 1.0)
    for wrong in ("3", "2:1", "1:1", "nan:1", "a:b", "1:2:3", "inf:inf"):
        with pytest.raises(ConfigError, match="wanted from:to"):
            range_of(wrong)


def test_a_filter_leaves_the_sequences_with_such_tokens(read: Read, runs: Path) -> None:
    groups = _run(runs).sequences(14).group_by("group_id").len().sort("group_id")
    name, size = groups.row(0)
    assert len(_ids(read("samples", ["stale"], step="14", only=f"group_id={name}"))) == size
    app = read("samples", ["stale"], step="14", only="position=4")
    own = (
        _run(runs).tokens([14]).collect().filter(pl.col("position").is_between(4, 7), pl.col("mismatch").is_not_null())
    )
    assert set(_ids(app)) == set(own["sequence_id"]) and app.dataframe[0].value["matching"].sum() == len(own)


def test_what_is_told_of_a_prompt_is_of_all_its_tokens() -> None:
    frame = pl.DataFrame(
        {
            "group_id": ["a", "a", "b"], "sequence_id": ["1", "2", "3"], "length": [10, 30, 5], "reward": [0.0, 1.0, 1.0],
            "mismatch/tokens": [10.0, 30.0, 5.0], "mismatch/kl_k3": [0.4, 0.8, None],
            "mismatch/max_abs_log_ratio": [3.0, 2.0, 1.0],
        }
    )  # fmt: skip
    found = group_table(frame, "mismatch")
    assert found["kl_k3"].to_list() == [pytest.approx((10 * 0.4 + 30 * 0.8) / 40), None]
    assert found["max_abs_log_ratio"].to_list() == [3.0, 1.0] and found["mean_reward"].to_list() == [0.5, 1.0]


def test_prompts_are_listed_and_one_of_them_shows_its_samples(opened: Open, runs: Path) -> None:
    frame = _run(runs).sequences(14)
    shown = opened("samples", ["stale"], step="14", list="prompts").dataframe[0].value
    assert shown["samples"].sum() == len(frame) and len(shown) == frame["group_id"].n_unique()
    worst = frame.sort("mismatch/max_abs_log_ratio", descending=True)["group_id"][0]
    assert shown["group_id"][0] == worst
    app = opened("samples", ["stale"], step="14", group=worst)
    own = frame.filter(group_id=worst)
    assert set(_ids(app)) == set(own["sequence_id"]) and f"{len(own)} samples of one prompt" in words(app)
    assert "is not in this step" in words(opened("samples", ["stale"], step="14", group="nowhere"))


@pytest.mark.parametrize("page", ["samples", "tokens"])
def test_a_step_without_token_rows_leads_to_one_that_has_some(opened: Open, page: str) -> None:
    app = opened(page, "many_steps")
    assert app.session_state["step"] % 2_500 == 0, "the worst step of those whose rows were kept"
    app = opened(page, "many_steps", step="5100")
    assert "no token rows of this step were kept" in words(app)
    app.button(key="step_with_rows").click().run()
    assert app.session_state["step"] == 5_000 and "no token rows" not in words(app)


def test_long_ids_leave_room_for_the_numbers_and_stay_apart(opened: Open, tmp_path: Path) -> None:
    ids = [f"gpqa-diamond-{'0f8fad5b' * 6}/attempt-3/sample-{n:05d}" for n in range(3)]
    group = f"https://data.internal.example/{'swe-bench/' * 9}"
    with Collector(tmp_path / "run") as collector:
        old, rollout = [[-1.0, -2.0]] * 3, [[-1.1, -2.3]] * 3
        collector.log(step=0, rollout_logprobs=rollout, old_logprobs=old, sequence_ids=ids, group_ids=[group] * 3)
    app = opened("samples", tmp_path / "run")
    shown = _ids(app)
    assert len(set(shown)) == 3 and {name[-5:] for name in shown} == {"00000", "00001", "00002"}
    assert max(map(len, [*shown, *app.dataframe[0].value["group_id"]])) <= 24


def test_no_prompt_is_listed_where_a_filter_leaves_none(read: Read) -> None:
    app = well(read("samples", ["stale"], step="14", list="prompts", find="zzz"))
    assert not app.dataframe and "0 of 32 rows on record" in words(app)


def test_the_newest_step_is_followed_until_another_is_chosen(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:

        def logged(step: int) -> None:
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]], sequence_ids=[f"{step}-a"])
            collector.flush()

        for step in range(3):
            logged(step)
        app = opened("samples", tmp_path / "run", newest="true", step="0")
        assert app.toggle(key="newest").value and app.number_input(key="step").value == 2 and not app.warning
        logged(3)
        assert well(app.run()).number_input(key="step").value == 3 and _ids(app) == ["3-a"]
        well(app.button(key="pause").click().run())
        logged(4)
        assert well(app.run()).number_input(key="step").value == 3, "held"
        well(app.button(key="pause").click().run())
        assert app.number_input(key="step").value == 4
        well(app.button(key="step_before").click().run())
        assert app.number_input(key="step").value == 3 and not app.toggle(key="newest").value
    assert not opened("samples", ["stale"]).toggle


def test_keys_move_a_mark_over_the_rows(opened: Open) -> None:
    app = opened("samples", ["stale"], step="14")
    assert app.dataframe[0].value[""].tolist()[:3] == ["▸", "", ""] and app.button(key="up").disabled
    assert "· 32 rows on record. Click a row to read its tokens; tick several" in plain(app)
    well(app.button(key="down").click().run())
    assert app.dataframe[0].value[""].tolist()[:3] == ["", "▸", ""] and "row 2 of 32" in words(app)


def test_a_sample_says_how_it_was_kept(tmp_path: Path, read: Read) -> None:
    draws = np.random.default_rng(0)
    with Collector(tmp_path / "run", budget=Budget(step_bytes=6000, worst=2)) as collector:
        rollout = (-draws.exponential(1.0, (400, 5))).tolist()
        old = [[value - 0.01 for value in row] for row in rollout]
        collector.log(step=0, rollout_logprobs=rollout, old_logprobs=old)
    shown = plain(read("samples", [tmp_path / "run"]))
    assert "of 400 sequences: the worst ones always" in shown and "weigh each sequence by the inverse" in shown


@pytest.mark.parametrize("gap", ["total", "drift"])
def test_rows_of_several_minibatches_have_each_their_course(read: Read, gap: str) -> None:
    shown = read("samples", ["holes"], step="5", gap=gap).dataframe[0].value
    assert {0, 1} <= set(shown["minibatch"].dropna()) and all(len(line) <= 8 for line in shown["line"])
    assert any("weight" in str(name).lower() for name in shown) == (gap == "total"), (
        "exp(drift) is no importance weight"
    )


def test_a_column_writes_all_its_numbers_in_one_way(opened: Open) -> None:
    assert number_format(pl.Series([5.99e-7, -6.01e-6, 0.0, None])) == "%.2e"
    assert number_format(pl.Series([6.01e-6, 0.5, math.nan, 0.0])) == "%.3g"
    assert number_format(pl.Series([None, None], dtype=pl.Null)) == "%.3g"
    assert number_format(pl.Series([0.1, 0.123, 2.0, math.inf])) == "%.3f", "0.1 stands as 0.100 below 0.123"
    assert number_format(pl.Series([-120.0, 3500.0])) == "%.0f"
    table = opened("samples", ["stale"], step="14").dataframe[0]
    told = json.loads(table.proto.columns)
    for name in ("kl_k3", "mean_abs_log_ratio", "weight"):
        if name in told:
            assert told[name]["type_config"]["format"] == number_format(pl.Series(table.value[name]))


def _with_texts(folder: Path, steps: int = 3) -> Path:
    """Two sequences a step whose texts name the step, and one without a text."""
    with Collector(folder) as collector:
        for step in range(steps):
            sides = {"rollout_logprobs": [[-1.0, -2.0]] * 2, "old_logprobs": [[-1.1, -2.3]] * 2}
            texts = [["so", f" wait {step}"], ["no", "thing"]]
            collector.log(step=step, sequence_ids=[f"{step}-a", f"{step}-b"], token_texts=texts, **sides)  # type: ignore[arg-type]
            bare = {name: rows[:1] for name, rows in sides.items()}
            collector.log(step=step, sequence_ids=[f"{step}-c"], prompt_texts=["WAIT for it"], **bare)  # type: ignore[arg-type]
    return folder


def test_a_search_lists_the_hits_of_a_step_and_says_what_has_no_text(read: Read, tmp_path: Path) -> None:
    run = _with_texts(tmp_path / "run")
    app = well(read("samples", [run], step="1", search="wait"))
    assert dict(app.dataframe[0].value[["sequence_id", "match"]].itertuples(index=False)) == {
        "1-a": "so «wait» 1", "1-c": "prompt: «WAIT» for it",
    }  # fmt: skip
    assert "2 hits in 2 of 3 sequences searched, step 1" in plain(app)
    assert "no text on record of the prompt for 2 of 3 sequences (prompt_texts=) and of the response for 1 of" in plain(
        app
    )
    assert read("samples", [run], step="1", search="/^so wait/").button("open").value.choices["at"] == 0
    app = read("samples", [run], step="1", search=r"/(a)\1/")
    assert "backreferences are not supported; wanted" in words(app) and len(app.dataframe[0].value) == 3
    assert "0 hits in 0 of 3 sequences" in words(well(read("samples", [run], step="1", search="/nowhere/")))


def test_a_search_of_many_steps_begins_with_the_newest_and_pauses(
    read: Read, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _with_texts(tmp_path / "run")
    many = {"search": "wait", "over_steps": "many steps"}
    app = read("samples", [run], **many, steps="1:")
    assert _ids(app) == ["2-a", "2-c", "1-a", "1-c"] and "4 hits in 4 of 6 sequences searched, steps 1 to 2" in plain(
        app
    )
    assert "no steps in this range" in words(read("samples", [run], **many, steps="7:9"))
    assert "wanted first:last" in plain(opened("samples", run, **many, steps="x"))
    monkeypatch.setattr(text_search, "SECONDS", -1.0)
    page = opened("samples", run, **many)
    assert _ids(page) == ["2-a", "2-c"] and page.button(key="search_on").label == "search 2 earlier steps too"
    well(page.button(key="search_on").click().run())
    assert _ids(page) == ["2-a", "2-c", "1-a", "1-c"] and page.query_params["search"] == "wait"
    monkeypatch.setattr(hits, "SECONDS", -1.0)
    slow = read("samples", [run], step="1", search="/so|wait/")
    assert "too slow: only 0 of 3" in words(slow) and len(slow.dataframe[0].value) == 3 and "hits in" not in words(slow)
    slow = read("samples", [run], search="/so|wait/", over_steps="many steps")
    assert "too slow" in words(slow) and slow.button("search_on").label == "search 2 earlier steps too"
    monkeypatch.undo()
    bare = read("samples", ["many_steps"], **many)
    assert "no text on record" in words(bare) and "have no token rows" not in words(bare) and not bare.dataframe
