"""The page of one sequence: what it is tinted by, where it jumps to, what it says is missing, and its JSON."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from support import oracle
from support.frames import tokens
from support.pages_open import Open, codes, html, marked, plain, well, words
from support.pages_read import Read

from ratioscope.app.blocks import Link
from ratioscope.app.dashboard.panels.share import whom
from ratioscope.app.figures.html.tinted_text import WeightBand, borders, tint, token_text
from ratioscope.app.figures.strip_chart import strip_at, token_strip
from ratioscope.app.pages.sequence_text import heads_from, turn_heads
from ratioscope.app.pages.side_by_side import begins_like
from ratioscope.app.pages.tokens import worst_order
from ratioscope.app.presentation.digits import digits
from ratioscope.app.presentation.metric_places import title_of
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.part_rows import part_metrics
from ratioscope.ingest.rows.sequence_json import sequence_metrics
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.token_values import BY_NAME, VALUES


def test_a_link_opens_the_very_sequence_gap_and_token(opened: Open) -> None:
    app = opened("tokens", ["stale"], step="6", sequence="6-100", gap="drift", at="2", tint="weight")
    assert marked(app) == "6-100" and app.number_input(key="at").value == 2
    assert app.segmented_control(key="gap").value == "drift" and app.selectbox(key="tint").value == "weight"
    assert app.selectbox(key="band").value == "0.8 to 1.2" and _marked(app) == [2]


def test_a_link_to_a_step_and_a_sequence_that_the_run_lacks_says_so_until_another_is_chosen(opened: Open) -> None:
    app = opened("tokens", ["stale"], step="297", sequence="297-0-2")
    for _ in range(2):
        step, sequence = (warning.value.replace("\\", "") for warning in app.warning)
        assert (
            step.startswith("Step 297 is not in this run, which has the steps ") and "Nearest: [22](./tokens?" in step
        )
        assert sequence.startswith("Sequence 297-0-2 is not in step ") and "step=14&sequence=14-" in sequence
        well(app.run())
    well(app.button(key="step_after").click().run())
    well(app.button(key="next").click().run())
    assert not app.warning


def test_the_list_has_the_worst_300_and_the_one_of_the_address(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        old = [[-1.0, -1.1 - place / 100] for place in range(320)]
        ids = [f"s{place}" for place in range(320)]
        collector.log(step=0, sequence_ids=ids, rollout_logprobs=[[-1.0, -1.1]] * 320, old_logprobs=old)
    app = opened("tokens", tmp_path / "run", sequence="s7")
    listed = app.dataframe[0].value["sequence_id"].tolist()
    assert listed == [*(f"s{place}" for place in range(319, 19, -1)), "s7"] and marked(app) == "s7"
    assert "313 of 320" in words(app) and "is not in step" not in words(app)
    well(app.button(key="previous").click().run())
    assert marked(app) == "s8" and app.query_params["sequence"] == "s8"
    folded = "320 sequences of this step, the worst first"
    assert folded not in [drawer.label for drawer in app.expander]
    app.session_state["_narrow"] = True
    assert folded in [drawer.label for drawer in well(app.run()).expander]


def _samples(folder: Path) -> Path:
    """Five samples of a prompt, and one of another without ids: `long` has 900 tokens like `twin`, but for the last."""
    ids = {"a": [1, 2, 3, 4], "b": [1, 2, 9], "c": [1, 2], "long": [*range(900)], "twin": [*range(899), 7]}
    with Collector(folder) as collector:
        for name, own in ids.items():
            given: dict[str, Any] = {f"{side}_logprobs": [[-1.0] * len(own)] for side in ("rollout", "old")}
            collector.log(step=0, sequence_ids=[name], group_ids=["p"], rewards=[1.0], token_ids=[own], **given)
        collector.log(step=0, sequence_ids=["bare"], rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
    return folder


def test_sequences_stand_side_by_side_up_to_where_they_part(read: Read, opened: Open, tmp_path: Path) -> None:
    run = _samples(tmp_path / "run")
    app = read("tokens", [run], sequence="a", beside=["b", "c", "bare"])
    said = {part.key: (part.label, part.value) for part in app.button if part.key.startswith("parts")}
    assert said == {
        "parts_1": ("the same for 2 tokens, then they part ›", Link("", {"at": 2})),
        "parts_2": ("the same for 2 tokens, then this one ends ›", Link("", {"at": 2})),
    }
    assert "not available, because neither the ids nor the texts of all tokens of both" in words(app)
    assert "KL" in words(app) and "reward 1" in words(app)
    faint = [part.value.count('class="f"') for part in app.html if "rs-text" in part.value]
    assert faint == [0, 2, 2, 2, 0], "the legend, and the tokens that all have in the first text"
    assert read("tokens", [run], sequence="c", beside="b").button("parts_1").label.endswith("then the first one ends ›")
    app = read("tokens", [run], sequence="long", beside="twin")
    assert app.button("parts_1").value.choices["at"] == 899 and "tokens 400 to 899" in words(app)
    assert "tokens 0 to 499" in words(read("tokens", [run], sequence="long", beside="twin", at="3"))
    for link in (app.button("siblings_beside").value, read("samples", [run], group="p").button("beside").value):
        assert set(link.choices["beside"]) | {link.choices.get("sequence", "long")} == {"a", "b", "c", "long", "twin"}
    gone = opened("tokens", run, beside="nowhere")
    assert "Sequence nowhere is not in step 0 of this run, and nothing" in plain(gone) and "parts" not in str(
        gone.button
    )
    assert well(read("tokens", ["holes"], step="5", gap="drift", sequence="5-1", minibatch="1", beside="5-0"))
    assert begins_like(pl.DataFrame({"token_text": ["a"]}), pl.DataFrame({"token_text": ["a"]})) == 1


def test_what_the_run_lacks_is_told_apart_from_what_this_sequence_lacks(opened: Open, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        sides = {"rollout_logprobs": [[-1.0, -2.0]], "old_logprobs": [[-1.1, -2.1]], "rollout_versions": [3]}
        collector.log(step=0, sequence_ids=["bare"], **sides)  # type: ignore[arg-type]
        collector.log(step=0, sequence_ids=["full"], entropy=[[0.5, 0.5]], **sides)  # type: ignore[arg-type]
    told = plain(opened("tokens", tmp_path / "run", step="0", sequence="bare"))
    assert "not recorded: text (token_texts), ids (token_ids)" in told and "rollout_versions" not in told
    assert "one weight version for all tokens of the sequence" in told
    assert "not recorded for this sequence, though for others: entropy" in told


def test_the_drawer_for_sharing_names_the_run_in_its_command_and_whom_its_link_serves(opened: Open, runs: Path) -> None:
    app = opened("overview", ["stale"])
    assert f"ratioscope bundle {runs / 'stale'} -o pages.html" in codes(app)
    assert "works on this machine only" in plain(app) and whom("127.0.0.1") == whom("localhost") == whom(None)
    assert whom("gpu-7").startswith("It opens for whoever reaches gpu-7 ") and "token" in whom("gpu-7")


@pytest.mark.parametrize("by", [value.name for value in VALUES])
def test_text_is_tinted_by_the_chosen_value_and_the_legend_has_its_numbers(opened: Open, runs: Path, by: str) -> None:
    app = opened("tokens", ["stale"], step="14", tint=by)
    frame = open_run(runs / "stale").sequence(14, marked(app))
    sides = (frame[f"{policy}_logprob"].cast(float).to_numpy() for policy in ("rollout", "old"))
    wanted = [tint(float(value), by) for value in BY_NAME[by].of(*sides)]
    found = [part.split('"')[0].split() for part in html(app).split('<div class="rs-text">')[1].split('<i class="')[1:]]
    assert [next((name for name in names if name[1:].isdigit()), "") for names in found] == wanted
    assert all(f">{step:g}</i>" in html(app) for step in BY_NAME[by].steps)


def test_confident_disagreements_are_underlined_and_weights_outside_hatched(runs: Path, opened: Open) -> None:
    opened("tokens", ["stale"])
    run = open_run(runs / "stale")
    row = run.sequences(14).sort("mismatch/confident_disagreements", descending=True).row(0, named=True)
    page = token_text(run.sequence(14, row["sequence_id"]), "mismatch", band=WeightBand(0.5, 2), legend=False)
    classes = [part.split('"')[0].split() for part in page.split('<i class="')[1:]]
    assert sum("c" in names for names in classes) == row["mismatch/confident_disagreements"] > 0
    weights = run.sequence(14, row["sequence_id"])["mismatch_weight"]
    assert sum("o" in names for names in classes) == ((weights < 0.5) | (weights >= 2)).sum()
    assert page.count("confident disagreement:") == row["mismatch/confident_disagreements"]


def test_the_worst_token_is_reached_first_then_the_next_and_back(opened: Open, runs: Path) -> None:
    app = opened("tokens", ["stale"], step="14")
    frame = open_run(runs / "stale").sequence(14, marked(app))
    order = np.argsort(-frame["mismatch"].abs().to_numpy(), kind="stable").tolist()
    for wanted in order[:3]:
        well(app.button(key="worse").click().run())
        assert app.number_input(key="at").value == wanted
    app.button(key="less_bad").click().run()
    assert app.number_input(key="at").value == order[1] and "2nd of" in words(app)
    app.button(key="next").click().run()
    assert app.number_input(key="at").value is None


def test_a_token_is_not_carried_over_to_the_sequence_of_another_step(opened: Open) -> None:
    app = opened("tokens", ["stale"], step="14", at="2")
    assert app.number_input(key="at").value == 2
    well(app.button(key="step_before").click().run())
    assert app.number_input(key="step").value == 12 and app.number_input(key="at").value is None
    app.number_input(key="at").set_value(3).run()
    assert app.number_input(key="at").value == 3


def test_order_goes_by_size_of_what_is_tinted_and_leaves_masked_tokens_out(runs: Path, opened: Open) -> None:
    opened("tokens", ["holes"])
    frame = open_run(runs / "holes").sequence(5, "5-0")
    order = worst_order(np.array([0.5, 4.0, np.nan, 9.0, 9.0, 0.1, 1.0, 1.0]), frame, "weight")
    assert order == [5, 1, 0, 6, 7]


def test_a_jump_in_a_long_response_moves_the_window_of_its_text(opened: Open) -> None:
    app = opened("tokens", ["long_response"], at="4200")
    assert app.slider(key="from").value == 4075 and _marked(app) == [4200]
    app.number_input(key="at").set_value(1000).run()
    assert app.slider(key="from").value == 875 and _marked(app) == [1000]


@pytest.mark.parametrize("at", ["99999", "-3", "nonsense"])
def test_a_place_that_does_not_exist_is_forgotten(opened: Open, at: str) -> None:
    assert opened("tokens", ["one_token"], at=at).number_input(key="at").value is None
    assert opened("tokens", ["long_response"], **{"from": at}).slider(key="from").value is not None


def test_the_step_before_and_after_are_one_key_away(opened: Open, runs: Path) -> None:
    app = opened("tokens", ["stale"], step="14")
    steps = open_run(runs / "stale").steps
    app.button(key="step_after").click().run()
    assert app.number_input(key="step").value == steps[steps.index(14) + 1]
    app.button(key="step_before").click().run()
    assert app.number_input(key="step").value == 14
    assert opened("tokens", ["stale"], step=str(steps[-1])).button(key="step_after").disabled


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("two_policies", "log-probs of current"),
        ("bypass", "log-probs of old"),
        ("long_response", "text (token_texts), ids (token_ids)"),
        ("one_token", "entropy, advantages"),
    ],
)
def test_what_is_missing_is_said(opened: Open, name: str, missing: str) -> None:
    assert missing in plain(opened("tokens", [name]))


def test_the_drawer_holds_json_whose_numbers_come_back(opened: Open) -> None:
    app = opened("tokens", ["stale"], step="14", json="true")
    document = _document(app)
    assert document["step"] == 14 and document["tokens"] == document["of"] and document["trainer"]
    assert sequence_metrics(document) == document["metrics"] and "token_texts" not in document["columns"]
    app.toggle(key="json_text").set_value(True).run()
    assert "token_texts" in _document(app)["columns"]


def test_a_long_sequence_gives_the_json_of_a_window_first(opened: Open) -> None:
    app = opened("tokens", ["long_response"], json="true", at="2500")
    document = _document(app)
    assert document["first_position"] == 2480 and document["tokens"] == 41 and document["of"] == 5000
    app.segmented_control(key="json_part").set_value("whole").run()
    assert "too long to show" in words(app)


def test_advantages_have_a_row_of_their_own_where_they_change() -> None:
    frame = tokens(40)
    alike, changing = frame.with_columns(advantage=0.5), frame.with_columns(advantage=pl.col("position") / 40)
    without: Any = token_strip(alike, "mismatch")
    with_row: Any = token_strip(changing, "mismatch")
    assert "advantage" not in {trace.name for trace in without.data}
    assert "advantage" in {trace.name for trace in with_row.data}


def test_turns_have_borders_that_tell_who_wrote_them() -> None:
    def response(turns: list[int], mask: list[bool]) -> pl.DataFrame:
        return tokens(len(turns)).with_columns(turn=pl.Series(turns), mask=pl.Series(mask))

    several = response([0] * 5 + [1] * 12, [True] * 5 + [False] * 6 + [True] * 6)
    said = {0: "turn 0 · policy", 5: "turn 1 · not sampled: tool, user or template", 11: "turn 1 · policy"}
    assert borders(several) == said
    page = token_text(several, "mismatch", legend=False)
    assert page.count("<h6>") == 3 and page.index("turn 0 · policy") < page.index('<i class="')
    assert borders(response([0] * 9, [True] * 4 + [False] * 5)) == {}, "one turn needs no border"
    few = response([0] * 5 + [1] * 9, [True] * 5 + [True] * 4 + [False] * 2 + [True] * 3)
    assert borders(few) == {0: "turn 0 · policy", 5: "turn 1 · policy"}, "a few masked tokens are no part"
    assert borders(several.drop("turn")) == {} and borders(several.clear()) == {}


@pytest.mark.parametrize(
    ("gap", "sides", "metric"),
    [
        ("mismatch", ("rollout", "old"), "kl_k3"),
        ("total", ("rollout", "current"), "kl_k3"),
        ("drift", ("old", "current"), "kl_k2"),
    ],
)
def test_each_turn_has_the_gap_of_its_own_sampled_tokens(
    gap: str, sides: tuple[str, str], metric: str, tmp_path: Path
) -> None:
    draws = np.random.default_rng(0)
    turns, mask = [0] * 7 + [1] * 20 + [2] * 9, [True] * 7 + [False] * 8 + [True] * 21
    rollout = -draws.exponential(1.0, (1, 36))
    rollout[0, 30], mask[33] = math.nan, False
    others: dict[str, Any] = {
        f"{policy}_logprobs": rollout - draws.exponential(0.3, (1, 36)) for policy in ("old", "current")
    }
    with Collector(tmp_path / "run") as collector:
        turned: dict[str, Any] = {"turns": [turns], "mask": [mask], "sequence_ids": ["a"]}
        collector.log(step=0, minibatch=0, rollout_logprobs=rollout, **others, **turned)
    run = open_run(tmp_path / "run")
    frame = run.sequence(0, "a")
    heads = turn_heads(frame, gap)
    policy, tool = "policy", "not sampled: tool, user or template"
    assert [head.split(" · ")[:2] for head in heads.values()] == [
        ["turn 0", policy], ["turn 1", tool], ["turn 1", policy], ["turn 2", policy]
    ]  # fmt: skip
    assert heads[7].endswith("8 tokens"), "what nobody sampled has no gap"
    earlier, later = (frame[f"{side}_logprob"].cast(pl.Float64).fill_null(math.nan).to_list() for side in sides)
    of_run = run.metrics(("turn",))
    parts = part_metrics(frame, [*heads], gap)
    for turn, (part, first, last) in enumerate(((0, 0, 7), (2, 15, 27), (3, 27, 36))):
        own = [oracle.Tokens(earlier[first:last], later[first:last], mask[first:last])]
        size, largest = (oracle.ORACLE[name](own) for name in (metric, "max_abs_log_ratio"))
        found = parts.filter(part=part)[f"{gap}/{metric}"][0]
        assert found == pytest.approx(size, rel=1e-9)
        assert found == pytest.approx(of_run.filter(turn=str(turn))[f"{gap}/{metric}"][0], rel=1e-12)
        told = f"{last - first} tokens · {title_of(metric)} {digits(size)} · largest |log-ratio| {digits(largest)}"
        assert heads[first].endswith(told), "a single sequence has no standard error"


def test_a_text_that_begins_within_a_turn_says_which_one(opened: Open) -> None:
    assert heads_from({0: "a", 5: "b", 9: "c"}, 7) == {0: "b (begins at token 5)", 2: "c"}
    assert (
        heads_from({0: "a", 5: "b"}, 5) == {0: "b"} and heads_from({}, 7) == {} and heads_from({0: "a"}, 0) == {0: "a"}
    )
    shown = html(opened("tokens", ["long_response"], **{"from": "1200"}))
    assert (
        re.findall("<h6>(.*?) · policy · 1,000 tokens · KL", shown) == ["turn 1"] and "begins at token 1,000" in shown
    )


def test_a_click_on_a_bucket_of_the_strip_names_its_worst_token() -> None:
    frame = tokens(5000)
    figure: Any = token_strip(frame, "mismatch")
    places = [place for _, place in figure.data[-1].customdata]
    sizes = frame["mismatch"].abs().to_numpy()
    assert int(np.argmax(sizes)) in places and len(places) == len(set(places)) <= 1000
    for first, last in zip(places, places[1:], strict=False):
        assert first < last


def test_a_strip_tells_where_the_reader_is_and_is_left_as_it_was() -> None:
    strip: Any = token_strip(tokens(5000), "mismatch")
    before = strip.to_json()
    told: Any = strip_at(strip, at=7, window=(0, 1999))
    spans = [(shape.x0, shape.x1) for shape in told.layout.shapes[len(strip.layout.shapes) :]]
    assert spans == [(-0.5, 1999.5), (7, 7)]
    assert strip.to_json() == before
    assert len(told.layout.annotations) == len(strip.layout.annotations)


def test_a_band_holds_its_lower_end_only() -> None:
    band = WeightBand(0.5, 2)
    assert band.holds(math.nan) and band.holds(0.5) and not band.holds(2.0) and not band.holds(0.0)


def _marked(app: AppTest) -> list[int]:
    """Positions of the tokens that are marked as chosen."""
    return [int(at) for at in re.findall(r'class="(?:[^"]* )?t(?: s)?" data-h="position (\d+)', html(app))]


def _document(app: AppTest) -> Any:
    return json.loads(next(code for code in codes(app) if code.startswith("{")))
