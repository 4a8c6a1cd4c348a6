"""The gaps of readings on the pages: chosen by the list or the link, the same numbers as Run.metrics, and words where none is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.pages_open import Open, charts, fact_cards, plain, well
from support.pages_read import Read
from support.read_run import READ, SEQUENCES, read_run

from ratioscope import Collector
from ratioscope.app.dashboard.model.view import view
from ratioscope.ingest.run import Run, open_run

GAP = "rollout:referee"
PAGES = ("overview", "charts", "distributions", "where", "samples", "tokens")
LAGS = (0, 2)
OFF = 0.3
"""Standard deviation of the engine's error at lag 2; at lag 0 it is a tenth, nats."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read_run(tmp_path_factory.mktemp("readings") / "read")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_metrics_takes_the_gap_of_a_link(opened: Open, folder: Path, path: str) -> None:
    app = opened(path, folder, gap=GAP, theme="dark")
    assert app.selectbox(key="gap").value == GAP
    assert "engine to referee: referee − rollout" in plain(app)
    drawn = charts(app)
    assert drawn or path == "samples"
    named = [GAP in chart or "rollout to referee" in chart for chart in drawn]
    assert all(named)


@pytest.mark.parametrize("path", ["why", "alerts"])
def test_a_page_of_whole_steps_says_why_it_takes_no_reading(opened: Open, folder: Path, path: str) -> None:
    said = plain(opened(path, folder, gap=GAP))
    assert f"{GAP} is not available here, because its thresholds and tests are of whole steps" in said
    assert "showing mismatch" in said


def test_staleness_shows_a_reading_by_lag(opened: Open, lagged: Path) -> None:
    app = opened("staleness", lagged, gap=GAP)
    assert app.selectbox(key="gap").value == GAP and len(charts(app)) == 3
    run = open_run(lagged)
    tokens = run.tokens([0], ["rollout_version_min", GAP]).collect()
    k3 = {
        5 - version: np.mean(np.expm1(part[GAP].to_numpy()) - part[GAP].to_numpy())
        for (version,), part in tokens.group_by("rollout_version_min")
    }
    shown = fact_cards(app)
    assert float(shown["at lag 0"].split()[0]) == pytest.approx(k3[0], rel=0.01)
    assert float(shown["explained by lag"].split()[0]) == pytest.approx(
        100 * (1 - 2 * k3[0] / (k3[0] + k3[2])), rel=0.01
    )
    other = opened("staleness", lagged, gap="old:referee")
    assert "does not begin at the engine" in plain(other) and not fact_cards(other)


def test_compare_takes_a_reading_and_names_runs_without_one(opened: Open, folder: Path, lagged: Path) -> None:
    app = opened("compare", [folder, lagged, "one_step"], gap=GAP, run="read", a=["read"], b=["lagged"])
    values = [open_run(each).metrics((), gap=GAP)[f"{GAP}/kl_k3"][0] for each in (folder, lagged)]
    row = app.dataframe[0].value.filter(regex="metric|A|B").iloc[0]
    assert row["metric"] == "KL"
    for letter, value in zip("AB", values, strict=True):
        assert float(row[letter].split()[0]) == pytest.approx(value, rel=0.02)
    assert sum(GAP in chart for chart in charts(app)) >= 2
    assert f"A: read: {GAP} is not available, because steps 4 to 5 have no reading referee" in plain(app)
    app = opened("compare", [folder, "one_step"], gap=GAP, run="read", a=["read"], b=["one_step"])
    assert f"{GAP} is not available for one_step, because it has no such reading" in plain(app)
    assert "ratioscope rescore" in plain(app) and not app.dataframe


def test_corrections_weigh_by_a_reading(opened: Open, lagged: Path) -> None:
    app = opened("fix", lagged, gap=GAP, lab="none,truncate:token:2", cap_at="1.2", **{"try": "true"})
    weights = np.exp(open_run(lagged).tokens([0], [GAP]).collect()[GAP].to_numpy())
    shown = fact_cards(app)
    assert float(shown["clipped"].removesuffix("%")) == pytest.approx(100 * (weights > 1.2).mean(), rel=0.02)
    assert app.selectbox(key="gap").value == GAP and "settings are of the same correction on mismatch" in plain(app)
    other = opened("fix", lagged, gap="old:referee")
    assert "The tokens were sampled from rollout, not from old" in plain(other) and not charts(other)


@pytest.fixture(scope="module")
def lagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step: a half of the sequences at lag 0, a half at lag 2, and a referee that agrees with the trainer."""
    path, chance = tmp_path_factory.mktemp("readings") / "lagged", np.random.default_rng(3)
    old = [-1 - chance.exponential(1.0, 50).astype(np.float32) for _ in range(16)]
    lags = [LAGS[index % 2] for index in range(16)]
    rollout = [each + chance.normal(0, OFF if lag else OFF / 10, 50) for each, lag in zip(old, lags, strict=True)]
    with Collector(path, name="lagged", strict=True, writer="thread") as collector:
        collector.log(
            step=0, rollout_logprobs=rollout, old_logprobs=old, trainer_version=5,
            rollout_versions=[5 - lag for lag in lags], readings={"referee": old},
        )  # fmt: skip
    return path


def test_pages_name_the_steps_without_a_reading(opened: Open, folder: Path) -> None:
    lacking = "not available, because steps 4 to 5 have no reading referee; steps 0 to 3 have one"
    partly = f"at steps 4 to 5 {GAP} is not available, because they have no reading referee"
    assert partly in plain(opened("charts", folder, gap=GAP))
    app = opened("overview", folder, gap=GAP, steps="4:5")
    assert f"{GAP} is {lacking}" in plain(app) and not charts(app)
    app = opened("samples", folder, gap=GAP, step="5")
    assert "not available, because step 5 has no reading referee" in plain(app) and not app.dataframe


def test_sequences_without_a_reading_are_counted_and_left_out(read: Read, folder: Path) -> None:
    app = read("samples", folder, gap=GAP, step=str(READ[-1]))
    assert len(app.dataframe[0].value) == SEQUENCES // 2
    assert f"{SEQUENCES // 2} rows without this reading are not shown" in plain(app)


def test_the_default_step_is_one_that_was_read(opened: Open, folder: Path) -> None:
    assert opened("tokens", folder, gap=GAP).number_input(key="step").value in READ


def test_numbers_of_a_view_are_those_of_the_run(folder: Path) -> None:
    shown, run = view(str(folder)), open_run(folder)
    assert shown.metrics(("step",), None, GAP).equals(run.metrics(gap=GAP))
    whole = run.metrics((), gap=GAP)
    assert shown.whole(f"{GAP}/kl_k3") == whole[f"{GAP}/kl_k3"][0]
    one = run.metrics((), steps=range(1, 2), gap=GAP)
    assert shown.whole(f"{GAP}/kl_k3", range(1, 2)) == one[f"{GAP}/kl_k3"][0]
    x = run.tokens([1], [GAP]).collect()[GAP].to_numpy()
    assert one[f"{GAP}/kl_k3"][0] == pytest.approx(np.mean(np.expm1(x) - x), rel=1e-9)


def test_the_drawers_of_pages_take_the_gap(opened: Open, folder: Path) -> None:
    app = opened("distributions", folder, gap=GAP, density="true")
    assert any("referee against rollout" in chart for chart in charts(app))
    app = opened("where", folder, gap=GAP, heat="position")
    assert any("over the steps" in chart and GAP in chart for chart in charts(app))
    assert len(opened("overview", folder, gap=GAP, more="true").get("bidi_component")) > 5


def test_a_gap_whose_first_side_is_no_sampler_is_drawn(opened: Open, folder: Path) -> None:
    app = opened("overview", folder, gap="old:referee")
    assert "trainer to referee: referee − old" in plain(app)
    assert any("not sampled from old" in caption.proto.help for caption in app.caption)


def test_a_run_beside_without_the_reading_is_named(read: Read, folder: Path) -> None:
    app = read("charts", [folder, "one_step"], gap=GAP, run="read", **{"with": ["one_step"]})
    assert f"have no {GAP} at these steps" in plain(app) and "one_step" in plain(app)


def test_a_run_without_readings_shows_and_reads_nothing_new(
    opened: Open, monkeypatch: pytest.MonkeyPatch, forbidden: Callable[..., None]
) -> None:
    monkeypatch.setattr(Run, "reading_fits", forbidden)
    monkeypatch.setattr("ratioscope.ingest.run.RunMetrics.pair_statistics", forbidden)
    for path in ("overview", "charts"):
        app = well(opened(path, "healthy"))
        assert "referee" not in plain(app)
        assert app.segmented_control(key="gap").options == ["mismatch", "total", "drift"]


@pytest.fixture
def forbidden() -> Callable[..., None]:
    def call(*_: object, **__: object) -> None:
        raise AssertionError("a run without readings must not ask for them")

    return call


def test_the_overview_says_which_side_is_off(read: Read, folder: Path) -> None:
    said = plain(read("overview", folder))
    assert "Which side is off? The trainer stands at" in said.replace("*", "")
    assert "the difference is the engine's." in said
