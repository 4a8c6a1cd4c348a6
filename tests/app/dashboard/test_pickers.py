"""A picker shows an option in words with its name behind them; the URL keeps the name."""

import json

import pytest
from support.pages_open import Open, charts, plain

from ratioscope.app.presentation.metric_places import in_words, names_at, sequence_measures_at


@pytest.mark.parametrize(
    ("page", "key", "names"),
    [
        ("where", "metric", names_at("bars", "mismatch")),
        ("samples", "order", sequence_measures_at("order")),
        ("samples", "column", sequence_measures_at("order")),
    ],
)
def test_a_picker_shows_titles_with_names_behind(opened: Open, page: str, key: str, names: tuple[str, ...]) -> None:
    shown = opened(page, ["stale"]).selectbox(key=key).options
    assert set(map(in_words, names)) <= set(shown)
    assert not set(shown) & set(names)


def test_a_choice_in_words_is_a_name_in_the_url_and_the_usual_one_is_left_out(opened: Open) -> None:
    app = opened("where", ["stale"])
    app.selectbox(key="metric").set_value("kl_direct").run()
    assert app.query_params["metric"] == "kl_direct" and any("KL, direct estimate" in chart for chart in charts(app))
    app.selectbox(key="metric").set_value(names_at("bars", "mismatch")[0]).run()
    assert "metric" not in app.query_params


def test_a_url_with_a_name_chooses_it_and_one_without_sense_chooses_the_usual(opened: Open) -> None:
    assert opened("where", ["stale"], metric="kl_direct").selectbox(key="metric").value == "kl_direct"
    assert opened("where", ["stale"], metric="KL").selectbox(key="metric").value == names_at("bars", "mismatch")[0]
    app = opened("charts", ["stale"], metric=["kl_direct", "nonsense", "kl_k2"], groups="")
    assert app.multiselect(key="metric").value == ["kl_direct", "kl_k2"]


def test_several_metrics_in_words_are_names_in_the_url(opened: Open) -> None:
    app = opened("charts", ["stale"])
    app.multiselect(key="metric").set_value(["kl_direct", "kl_k2"]).run()
    assert app.query_params["metric"] == ["kl_direct", "kl_k2"]
    app.multiselect(key="metric").set_value([]).run()
    assert "metric" not in app.query_params


def test_a_choice_that_another_gap_lacks_gives_way_to_the_usual_one(opened: Open) -> None:
    app = opened("where", ["stale"], metric="chi2_token")
    app.segmented_control(key="gap").set_value("drift").run()
    assert not app.exception and app.selectbox(key="metric").value == names_at("bars", "drift")[0]


def test_heads_of_the_table_of_sequences_are_titles(opened: Open) -> None:
    table = opened("samples", ["stale"]).dataframe[0]
    config = table.proto.columns
    assert '"Largest |log-ratio|"' in config and '"Weight of the sequence"' in config
    heads = {name: each.get("label", name) for name, each in json.loads(config).items()}
    slugs = [name for name in table.value.columns if "_" in heads.get(name, name)]
    assert slugs == [] and heads["sequence_id"] == "Sequence" and heads["group_id"] == "Prompt group"
    assert json.loads(config)["group_id"]["help"] == "group_id"
    assert "Largest |log-ratio|" in plain(opened("samples", ["stale"], column="max_abs_log_ratio", least="2"))


def test_a_long_number_below_a_short_title_keeps_its_first_digits(opened: Open) -> None:
    for page in ("samples", "staleness"):
        told = json.loads(opened(page, ["stale"]).dataframe[0].proto.columns)["kl_k3"]
        assert told["label"] == "KL" and told["width"] >= 90, page
