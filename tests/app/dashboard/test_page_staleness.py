"""The page Staleness: its numbers are those of the run, and what it cannot tell it says."""

import ast
from pathlib import Path

import polars as pl
import pytest
from support.edge_runs import made
from support.frames import notes, traces
from support.pages_open import Open, charts, codes, fact_cards, plain
from support.pages_read import Read

from ratioscope.app.figures.gap_parts import gap_parts
from ratioscope.app.figures.html.both_sides import both_sides
from ratioscope.app.figures.lags import lag_shares, lags_over_steps
from ratioscope.app.pages.staleness import lag_answer
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.comparability import ComparedSetting, comparability
from ratioscope.ingest.analysis.slice_over_steps import lag_over_steps, lag_table
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.staleness import Lagged, decomposition, staleness
from ratioscope.metrics.definitions.registry import BY_NAME


def test_the_cards_are_what_is_left_at_lag_0_and_what_lies_above_it(opened: Open, runs: Path) -> None:
    app = opened("staleness", "stale")
    run = open_run(made(runs, "stale"))
    tokens = pl.concat(
        [
            run.tokens([step]).select("trainer_version", "rollout_version_min", "mismatch").collect()
            for step in run.steps
        ]
    ).drop_nulls("mismatch")
    k3 = tokens.with_columns(
        k3=pl.col("mismatch").exp() - 1 - pl.col("mismatch"),
        lag=pl.col("trainer_version") - pl.col("rollout_version_min"),
    )
    whole, fresh = k3["k3"].mean(), k3.filter(lag=0)["k3"].mean()
    assert isinstance(whole, float) and isinstance(fresh, float)
    shown = fact_cards(app)
    found = {name: float(value.split(" ")[0]) for name, value in shown.items()}
    assert found["K3 of all tokens"] == pytest.approx(whole, rel=0.01) and found["at lag 0"] == pytest.approx(
        fresh, rel=0.01
    )
    assert found["excess over lag 0"] == pytest.approx(whole - fresh, rel=0.01)
    assert found["explained by lag"] == pytest.approx(100 * (1 - fresh / whole), rel=0.01)
    assert "±" in shown["explained by lag"] and len(charts(app)) == 4
    assert f"Old weights explain {shown['explained by lag']} of the gap over all 12 steps: K3 is " in plain(app)


def test_the_answer_tells_a_share_only_beyond_its_error() -> None:
    known = staleness([Lagged(0, 100, 0.002, 0.0001), Lagged(4, 100, 0.1, 0.01)])
    said = "Old weights explain 96.08 ± 0.43% of the gap over all 9 steps: K3 is 0.051 nats/token, and 0.002 at lag 0."
    assert lag_answer(known, " over all 9 steps") == said
    noise = staleness([Lagged(0, 100, 0.002, 0.001), Lagged(4, 100, 0.0021, 0.001)])
    assert lag_answer(noise) == "Old weights explain no part of the gap beyond its error."
    assert lag_answer(staleness([Lagged(0, 100, 0.002, 0.001)])) == lag_answer(staleness([Lagged(3, 9, 0.1)])) == ""


def test_a_run_without_versions_says_what_to_record(read: Read) -> None:
    app = read("staleness", "one_step")
    assert "not available, because the rows have no trainer_version" in plain(app)
    code = "\n".join(codes(app))
    assert "trainer_version=" in code and "rollout_versions=" in code
    assert "not available, because no step has all three gaps" in plain(app)


def test_without_lag_0_its_share_is_not_told(read: Read) -> None:
    app = read("staleness", "long_response")
    assert list(fact_cards(app).values())[1:] == ["–", "–", "–"]
    assert "no token was sampled at lag 0" in plain(app)


@pytest.mark.parametrize("gap", ["total", "drift"])
def test_every_gap_has_its_lags_and_drift_no_share_of_lag_0(read: Read, gap: str) -> None:
    app = read("staleness", "stale", theme="dark", gap=gap)
    assert len(charts(app)) == 4 and len(fact_cards(app)) == (0 if gap == "drift" else 4)


def test_a_range_of_steps_is_all_that_is_counted(read: Read, runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    app = read("staleness", "stale", steps=f"{run.steps[1]}:{run.steps[4]}")
    tokens = sum(run.metrics(steps=range(run.steps[1], run.steps[4] + 1))["mismatch/tokens"])
    assert app.dataframe[0].value["N tokens"].sum() == tokens
    assert "The run has no steps" in read("staleness", "stale", steps="100000:").info[0].value


def test_the_lags_of_neighbouring_steps_are_merged_and_many_lags_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        for step in range(12):
            rows = [[-1.0 - 0.1 * lag] for lag in range(-1, 11)]
            collector.log(
                step=step,
                rollout_logprobs=[[-1.0]] * len(rows),
                old_logprobs=rows,
                rollout_versions=[20 - lag for lag in range(-1, 11)],
                trainer_version=20,
            )
    opened = open_run(run)
    by_lag = lag_table(opened)
    assert by_lag["lag"].to_list() == ["-1", "0", "1", "2", "3 to 4", "5 to 8", "9 to 10"]
    course = lag_over_steps(opened, most=3)
    assert course["step"].unique().to_list() == [0, 4, 8] and course["last"].unique().sort().to_list() == [3, 7, 11]
    whole = opened.metrics("lag")
    for name, keys in (("3 to 4", ("3", "4")), ("-1", ("-1",))):
        parts = whole.filter(pl.col("lag").is_in(keys))
        merged = by_lag.filter(lag=name)
        assert merged["mismatch/tokens"][0] == parts["mismatch/tokens"].sum()
        assert merged["mismatch/kl_k3"][0] == pytest.approx(parts["mismatch/kl_k3"].mean())
        assert course.filter(lag=name)["mismatch/tokens"].to_list() == [parts["mismatch/tokens"].sum() / 3] * 3


def test_lines_break_where_a_lag_has_no_token(runs: Path) -> None:
    course = lag_over_steps(open_run(made(runs, "stale")))
    figure = lags_over_steps(course, BY_NAME["kl_k3"], "mismatch")
    lines = [line for line in traces(figure) if line.name and line.name.startswith("lag")]
    bands = [area for area in traces(figure) if area.fill == "toself"]
    assert len(bands) == 4 and all(len(band.x) == 3 * 3 - 1 for band in bands) and "±2 standard errors" in notes(figure)
    assert [line.name for line in lines] == ["lag 0", "lag 2", "lag 4", "lag 6"]
    assert all(len(line.x) == 12 and sum(place == place for place in line.y) == 3 for line in lines)
    shares = lag_shares(course, "mismatch")
    assert sum(sum(bar.y) for bar in traces(shares)) == pytest.approx(1200)


def test_what_does_not_add_up_is_drawn_and_said() -> None:
    parts = decomposition(
        pl.DataFrame(
            {"step": [1, 2], **{f"{gap}/mean_log_ratio": [0.5, 0.5] for gap in ("total", "mismatch", "drift")}}
        )
    )
    figure = gap_parts(parts)
    assert [line.name for line in traces(figure)] == ["total", "mismatch", "drift", "residual"]
    assert "do not add up on 2 of 2" in notes(figure)


def test_hostile_settings_are_text() -> None:
    html = both_sides([ComparedSetting("<script>", "<img src=x onerror=1>", "</td>", "differs", "why", "a.<b>")])
    assert "<script" not in html and "<img" not in html and html.count("</td>") == 5


def test_the_weights_that_an_engine_holds_are_told_here_and_on_the_page_health(read: Read, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in range(3):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
            collector.sync(step, digests={"a": f"a{step}", "lm_head": f"h{step}"})
            collector.sync(step, replica="7", digests={"a": f"a{step}", "lm_head": "h0"})
    page = read("staleness", tmp_path / "run")
    wanted = "replica 7: 1 of 2 tensors differ from version 2: lm_head; it holds those of version 0 (since version 1)"
    assert [warning.value.replace("\\", "") for warning in page.warning if "replica" in warning.value] == [wanted]
    (table,) = (frame.value for frame in read("record", tmp_path / "run").dataframe if "finding" in frame.value.columns)
    assert [found.replace("\\", "") for found in table["finding"]] == [wanted]


def test_a_run_without_digests_says_how_to_record_them(read: Read) -> None:
    said = [note.value.replace("\\", "") for note in read("staleness", "stale").caption]
    assert any("call collector.sync(version, digests=...)" in note for note in said), said


def test_one_lag_is_told_in_a_sentence_without_charts_by_lag(read: Read) -> None:
    app = read("staleness", "healthy")
    assert "Every token has lag 0." in plain(app) and "age explains no part of the gap" in plain(app)
    assert not any("by version lag" in chart for chart in charts(app))
    assert any("total = mismatch + drift" in chart for chart in charts(app))


def test_unknown_settings_say_what_to_record_and_the_usual_precisions_are_no_fault() -> None:
    found = {each.name: each for each in comparability({"trainer": "trl"})}
    page = both_sides(tuple(found.values()))
    assert "to fill this row: config=" in page and "top_p" in found["top-p"].record
    told = comparability({"trainer": "trl", "config": {"rollout": {"dtype": "bfloat16"}, "model_dtype": "float32"}})
    usual = next(each for each in told if each.name == "precision")
    assert usual.state == "expected" and "○ expected" in both_sides((usual,)) and not usual.record
    recorded = {each.name: each.record for each in found.values() if each.record}
    for name, record in recorded.items():
        known = comparability({"trainer": "trl", "config": ast.literal_eval(record)})
        assert next(each for each in known if each.name == name).rollout != "not on record", name
