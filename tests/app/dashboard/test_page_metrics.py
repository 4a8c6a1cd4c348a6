"""The page Charts: every metric can be shown, of one run or several, as the URL says."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, charts, plain
from support.statistics_runs import write_statistics_run

from ratioscope.app.figures.drawing.definition import metric_head
from ratioscope.app.pages.metric_charts import PlottedRun, placed_events, time_places, token_places
from ratioscope.app.presentation.metric_places import GROUPS, metrics_at, of_gap
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.ingest.run import open_run
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.record import GAPS


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings of three seeds, and two runs of their own."""
    root = tmp_path_factory.mktemp("tree")
    for number, (name, size) in enumerate((("bf16", 0.02), ("fp8", 0.1))):
        for seed in range(3):
            config = {"engine": {"dtype": name}, "seed": seed, "lr": 1e-6 * (1 + seed % 2)}
            write_statistics_run(root / name / f"seed{seed}", 40, seed=seed + 10 * number, size=size, config=config)
    made(root, "stale")
    made(root, "holes")
    return root


@pytest.fixture
def on_tree(opened: Open, tree: Path) -> Open:
    """Opens the page on the tree; run: which of its runs, as the URL names it."""
    return partial(opened, "charts", tree)


def test_every_metric_is_in_one_group_and_the_main_ones_are_of_their_gap() -> None:
    grouped = [metric.name for metrics in GROUPS.values() for metric in metrics]
    assert sorted(grouped) == sorted(metric.name for metric in METRICS)
    for gap in GAPS:
        assert all(gap in metric.gaps for metric in metrics_at("main", gap))
        assert all(gap in metric.gaps for metrics in of_gap(gap).values() for metric in metrics)


def test_the_main_metrics_are_shown_unless_others_are_chosen(on_tree: Open) -> None:
    app = on_tree(run="stale")
    assert _titles(app) == [*(metric.name for metric in metrics_at("main", "mismatch")), "Log-ratio quantiles"]
    assert _titles(on_tree(run="stale", groups=["counts"])) == [metric.name for metric in GROUPS["counts"]]
    assert _titles(on_tree(run="stale", groups=[""], metric=["variance_ratio", "kl_k2"])) == ["kl_k2", "variance_ratio"]


def test_metrics_are_found_by_words_and_by_an_expression(on_tree: Open) -> None:
    """In names and titles; a wrong expression is explained, and the other charts stay."""
    main = _titles(on_tree(run="stale"))
    assert _titles(on_tree(run="stale", find="/^kl_k[23]/")) == ["kl_k2", "kl_k3", *main]
    by_title = _titles(on_tree(run="stale", find="perplexity"))
    assert "ppl_ratio" in by_title and by_title[-len(main) :] == main
    for typed, words in (
        ("nothing has it", "No metric of this gap"),
        ("/(/", "wanted"),
        ("/x*/", "fits the empty text"),
    ):
        app = on_tree(run="stale", find=typed)
        assert words in plain(app) and _titles(app) == main


def test_a_fact_of_the_sequences_is_drawn_beside_the_gap_with_its_error(on_tree: Open) -> None:
    app = on_tree(run="stale", logged=["the mean reward"])
    figure = json.loads(charts(app)[-1])
    assert figure["layout"]["title"]["text"] == "the mean reward" and _titles(on_tree(run="stale")) == _titles(app)[:-1]
    assert any(trace.get("fill") == "toself" for trace in figure["data"]), "a band of two standard errors"
    found = _titles(on_tree(run="stale", find="reward"))
    assert found[0] == "the mean reward"


@pytest.mark.parametrize("gap", GAPS)
def test_all_metrics_of_a_gap_can_be_shown_at_once(on_tree: Open, gap: str) -> None:
    shown = _titles(on_tree(run="stale", gap=gap, groups=["main", *GROUPS]))
    assert {metric.name for metrics in of_gap(gap).values() for metric in metrics} == set(shown) - {
        "Log-ratio quantiles",
        f"{gap} bias in the gradient",
    }


@pytest.mark.parametrize(
    "query",
    [
        {"smooth": "5", "axis": "log"},
        {"axis": "signed-log", "along": "tokens"},
        {"axis": "linear", "along": "wall time", "smooth": "1000"},
        {"steps": "5:9"},
        {"steps": "100000:"},
        {"only": "lag=0"},
        {"only": "replica=none"},
        {"smooth": "nonsense", "axis": "nonsense", "along": "nonsense", "groups": "nonsense", "metric": "nonsense"},
    ],
    ids=str,
)
@pytest.mark.parametrize("run", ["stale", "holes", "fp8/seed0"])
def test_every_choice_works_on_every_kind_of_run(on_tree: Open, run: str, query: dict[str, Any]) -> None:
    assert len(charts(on_tree(run=run, **query, **{"with": ["bf16/seed0"]}))) > len(metrics_at("main", "mismatch"))


def test_what_the_axis_smoothing_and_steps_are_stands_on_thecharts(on_tree: Open) -> None:
    spec = charts(on_tree(run="fp8/seed0", smooth="10", axis="log", steps="10:19"))[0]
    assert "half-life 10 steps" in spec and "log axis" in spec
    line = next(trace for trace in json.loads(spec)["data"] if trace.get("name") == "fp8/seed0")
    assert "seed0" not in json.loads(spec)["layout"]["title"]["text"] and len(line["customdata"]) == 10


def test_runs_are_laid_over_each_other_and_drawn_as_one_by_seed_or_setting(on_tree: Open) -> None:
    others = ["fp8/seed1", "fp8/seed2", "bf16/seed0", "bf16/seed1", "bf16/seed2", "stale"]
    spec = charts(on_tree(run="fp8/seed0", **{"with": others}))[0]
    assert [name for name in ("fp8/seed0", *others) if name not in spec] == [] and "7 runs, without bands" in spec
    app = on_tree(run="fp8/seed0", **{"with": others}, group="seeds")
    spec = charts(app)[0]
    assert "mean over 3 runs" in spec and "fp8 (3 runs)" in spec and "fp8/seed1:" not in spec
    assert "3 runs: seed0, seed1, seed2" in "\n".join(element.proto.body for element in app.html)
    assert app.selectbox(key="group").options[:2] == ["each by itself", "seeds"]
    assert "engine.dtype" in app.selectbox(key="group").options
    spec = charts(on_tree(run="fp8/seed0", **{"with": others}, group="engine.dtype"))[0]
    assert "engine.dtype=fp8 (3 runs)" in spec and "stale" in spec


def test_a_run_without_the_gap_is_named(on_tree: Open) -> None:
    app = on_tree(run="stale", gap="drift", **{"with": ["fp8/seed0"]})
    assert any("have no drift" in caption.value and "fp8" in caption.value for caption in app.caption)
    assert len(charts(app)) == len(metrics_at("main", "drift")) + 1


def test_a_run_of_statistics_alone_says_what_it_cannot_show(on_tree: Open) -> None:
    assert any("statistics only" in caption.value for caption in on_tree(run="fp8/seed0").caption)
    assert not any("statistics only" in caption.value for caption in on_tree(run="stale").caption)


def test_numbers_behind_a_chart_are_those_of_all_its_runs(on_tree: Open, tree: Path) -> None:
    app = on_tree(run="fp8/seed0", **{"with": ["fp8/seed1"]})
    shown = app.session_state["_shown"].tables["main_kl_k3"]()
    wanted = open_run(tree / "fp8" / "seed1").metrics()["mismatch/kl_k3"].to_list()
    assert shown.filter(pl.col("run") == "fp8/seed1")["mismatch/kl_k3"].to_list() == pytest.approx(wanted)


def test_tokens_and_time_grow_with_the_steps(tree: Path) -> None:
    run = open_run(tree / "stale")
    along = token_places(run, "mismatch")
    assert along is not None and list(along[0]) == run.steps
    assert along[1][-1] == run.metrics(())["mismatch/tokens"][0]
    found = time_places(run)
    assert found is not None and len(found[0]) == len(run.steps) and found[1][0] >= 0
    assert (found[1][1:] >= found[1][:-1]).all()
    assert time_places(open_run(tree / "fp8" / "seed0")) is None  # one segment: one time
    placed = placed_events(run.events, PlottedRun("stale", run.metrics(), found), "time")
    assert placed["step"].to_list()[-1] <= found[1][-1]


def test_time_between_known_steps_is_shared_out(tmp_path: Path) -> None:
    run = open_run(write_statistics_run(tmp_path / "run", 20, chunk=5))
    found = time_places(run)
    assert found is not None and list(found[0]) == [-1, 4, 9, 14, 19]
    shown = PlottedRun("run", run.metrics(), found)
    seconds = shown.along(run.metrics()["step"].to_numpy().astype(float))
    assert (seconds[1:] > seconds[:-1]).all() and seconds[4] == found[1][1]


def _titles(app: AppTest) -> list[str]:
    """The titles of the charts; of a metric its name."""
    titles = [str(json.loads(spec)["layout"]["title"]["text"]) for spec in charts(app)]
    known: dict[str, str] = {metric_head(metric, gap, LIGHT): metric.name for metric in METRICS for gap in metric.gaps}
    return [known.get(title, title.partition(" <i>")[0]) for title in titles]
