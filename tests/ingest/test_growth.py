"""Growth of a gap: composition told from size on real tokens, things beside a change, and no weights cause for another mix."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.edge_runs import made, records_of
from support.growth_runs import ONSET, SEQUENCES, STEPS, TOKENS, batch, growth_run, sharp, usual
from support.paths import ROOT
from support.run_folders import FakeWriter
from support.spelled import number_of

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.presentation.cause_facts import change_parts, change_words, growth_facts
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.growth import FACTS, LastingChange, growth_of, plain_growth
from ratioscope.ingest.analysis.nearby_changes import NearbyChange, Window, labels_that_changed, window_of
from ratioscope.metrics.definitions.divergence import k3
from ratioscope.metrics.diagnosis.changes import changes
from ratioscope.metrics.diagnosis.history import History
from ratioscope.record import RECORD

WEIGHTS = {"never_synced", "sync_broke", "corrupted_load", "missed_syncs", "lasting_change"}


def only_change(folder: Path) -> LastingChange:
    (change,) = growth_of(open_run(folder), "mismatch").changes
    assert change.course.earliest <= ONSET <= change.course.latest
    return change


def likely(folder: Path) -> set[str]:
    return {item.cause.code for item in diagnosis_of(open_run(folder)).diagnosis.likely}


def test_another_mix_of_tokens_is_composition_and_no_fault_of_the_weights(tmp_path: Path) -> None:
    change = only_change(growth_run(tmp_path / "run", sharp))
    assert change.course.factor > 1.4
    assert change.splits[0].slice == "probability" and change.splits[0].split.share > 0.85
    assert not likely(tmp_path / "run") & WEIGHTS
    excluded = {e.cause.code: e.effect for e in diagnosis_of(open_run(tmp_path / "run")).diagnosis.excluded}
    assert all("only because the mix of probabilities changes" in excluded[code] for code in WEIGHTS)


def test_another_distance_of_equal_tokens_is_size(tmp_path: Path) -> None:
    change = only_change(growth_run(tmp_path / "run", size=1.6))
    split = change.splits[0].split
    assert abs(split.share) < 3 * split.share_error
    assert split.size_factor == pytest.approx(1.6, rel=0.05)
    assert likely(tmp_path / "run") == {"lasting_change"}


def test_a_cause_has_the_part_of_a_change_that_is_size(tmp_path: Path) -> None:
    change = only_change(growth_run(tmp_path / "run", sharp, size=1.6))
    assert 0.3 < change.splits[0].split.share < 0.6 and change.course.factor > 2.2
    (item,) = diagnosis_of(open_run(tmp_path / "run")).diagnosis.likely
    assert item.cause.code == "lasting_change"
    assert float(item.parameters["factor"]) == pytest.approx(1.6, rel=0.1)


def test_tokens_drawn_alike_at_every_step_have_no_change(tmp_path: Path) -> None:
    growth = growth_of(open_run(growth_run(tmp_path / "run")), "mismatch")
    assert growth.changes == () and 1.15 <= growth.least < 1.3
    ((_, words),) = growth_facts(growth)
    assert words.startswith("None: the gap has one level over 60 steps (0 to 59); a lasting factor of 1.")


def real_history(seed: int, steps: int, factor: float = 1.0, at: int = 0) -> History:
    """The history of steps of real tokens, with `factor` times the K3 from step `at` on; errors as the metrics have them."""
    draws = np.random.default_rng(seed)
    level, error = np.empty(steps), np.empty(steps)
    for step in range(steps):
        rollout, old = batch(draws, usual, factor if step >= at else 1.0)
        sums = k3(old - rollout, np).mean(axis=1)
        level[step], error[step] = sums.mean(), sums.std(ddof=1) / np.sqrt(SEQUENCES) / sums.mean()
    return History(np.arange(steps), level, error, np.full(steps, float(SEQUENCES * TOKENS)))


def test_a_factor_of_one_point_three_of_real_noise_is_dated_and_real_noise_alone_is_not() -> None:
    ats = [30 + 17 * seed % 60 for seed in range(30)]
    found = [changes(real_history(seed, 120, 1.3, at)) for seed, at in enumerate(ats)]
    right = [len(f) == 1 and f[0].earliest <= at <= f[0].latest for f, at in zip(found, ats, strict=True)]
    assert sum(right) >= 27
    assert not any(changes(real_history(seed, 60)) for seed in range(60))


def test_attempts_versions_and_events_are_told_by_nearness_and_usual_ones_last(tmp_path: Path) -> None:
    root = growth_run(tmp_path / "run", size=1.6, attempts={"versions": {"vllm": "0.11"}}, every=2)
    change = only_change(root)
    words = [each.words for each in change.beside]
    assert words[:2] == ["attempt 1 begins", "versions.vllm went from 0.10 to 0.11"]
    assert change.beside[-1].kind == "event" and change.beside[-1].usual > 0.8
    text = dict(growth_facts(growth_of(open_run(root), "mismatch")))[f"beside step {ONSET}"]
    assert (
        "not shown to be causes: at step 30 attempt 1 begins; at step 30 versions.vllm went from 0.10 to 0.11" in text
    )
    assert "because" not in text


@pytest.mark.parametrize(("after", "told"), [(0.6, True), (0.5, False)])
def test_a_recorded_fact_that_changed_at_the_step_is_told(tmp_path: Path, after: float, told: bool) -> None:
    change = only_change(growth_run(tmp_path / "run", size=1.6, fact=("reward", 0.5, after)))
    words = [re.fullmatch(r"the mean reward went from ([\d.]+) to ([\d.]+)", each.words) for each in change.beside]
    found = [[float(part) for part in each.groups()] for each in words if each]
    assert found == ([pytest.approx([0.5, after], abs=0.03)] if told else [])


def test_every_recorded_fact_is_made_of_columns_of_the_record() -> None:
    columns = {field.name for field in RECORD}
    assert all(columns.issuperset(fact.columns) for fact in FACTS)


def test_a_change_with_nothing_beside_it_says_where_was_looked(tmp_path: Path) -> None:
    growth = growth_of(open_run(growth_run(tmp_path / "run", size=2.0)), "mismatch")
    (change,) = growth.changes
    words = dict(growth_facts(growth))[f"beside step {ONSET}"]
    assert words == f"Nothing recorded changed within steps {change.window.first} to {change.window.last}."
    assert change.window.first < change.course.earliest and change.window.last > change.course.latest


def test_the_words_have_factor_date_and_both_parts(tmp_path: Path) -> None:
    growth = growth_of(open_run(growth_run(tmp_path / "run", sharp)), "mismatch")
    words = dict(growth_facts(growth))[f"change at step {ONSET}"]
    assert words.startswith("The gap grew 1.5") and f"times at step {ONSET}" in words
    assert "% of the change comes from the mix of tokens: more tokens of probability [0.01, 0.1) (" in words
    assert "% is size: tokens of equal probability differ 1.0" in words


def test_the_command_line_has_the_same_words_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = growth_run(tmp_path / "run", sharp)
    growth = growth_of(open_run(root), "mismatch")
    assert main(["diagnose", str(root)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(words in told for _, words in growth_facts(growth))
    assert main(["diagnose", str(root), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["growth"]["changes"] == json.loads(json.dumps(plain_growth(growth)))["changes"]


def test_a_split_adds_up_to_its_table(tmp_path: Path) -> None:
    (change,) = growth_of(open_run(growth_run(tmp_path / "run", sharp)), "mismatch").changes
    *parts, every = change_parts(change)
    for column in (5, 6):
        assert sum(number_of(row[column]) for row in parts) == pytest.approx(number_of(every[column]), rel=0.05)
    said = " ".join((change_words(change), *(cell for row in parts for cell in row)))
    assert not re.search(r"\de[+-]\d", said), "a reader's number has no e"


def test_json_has_every_part_and_adds_up(tmp_path: Path) -> None:
    plain = plain_growth(growth_of(open_run(growth_run(tmp_path / "run", sharp)), "mismatch"))
    (change,) = json.loads(json.dumps(plain))["changes"]
    own = change["splits"][0]
    assert own["composition"] + own["size"] == pytest.approx(own["after"] - own["before"], rel=1e-9)
    assert sum(part["share_after"] for part in own["parts"]) == pytest.approx(1)
    assert sum(part["composition"] for part in own["parts"]) == pytest.approx(own["composition"])
    assert [each["kind"] for each in change["beside"]] == ["fact"]


def test_a_part_of_the_steps_has_a_growth_of_its_own(tmp_path: Path) -> None:
    run = open_run(growth_run(tmp_path / "run", size=2.0))
    assert growth_of(run, "mismatch", range(30)).changes == ()
    assert growth_of(run, "mismatch", range(10, 50)).steps == 40


def test_a_step_with_an_infinite_distance_takes_no_parts_away(tmp_path: Path) -> None:
    root = growth_run(tmp_path / "run", sharp)
    far = FakeWriter(root, "r00001-host-9-abcdef", rank=1).open()
    far.step(records_of(np.full(1, 3), [[-900.0, -1.0]], [[-0.1, -1.0]]))
    far.close()
    run = open_run(root)
    assert run.metrics()["mismatch/kl_k3"].is_infinite().sum() == 1
    (change,) = growth_of(run, "mismatch").changes
    assert change.splits[0].split.share > 0.85 and change.splits[0].split.steps == (ONSET - 1, STEPS - ONSET)
    excluded = [each.effect for each in diagnosis_of(run).diagnosis.excluded]
    assert any("only because the mix of probabilities changes" in each for each in excluded)


@pytest.mark.parametrize("name", ["one_step", "bypass", "empty", "holes", "two_policies"])
def test_growth_of_runs_at_the_edge_is_available_or_says_why_not(tmp_path: Path, name: str) -> None:
    run = open_run(made(tmp_path, name))
    for gap in ("mismatch", "total", "drift"):
        growth = growth_of(run, gap)
        assert growth.because or growth.steps >= 4
        assert all(name and words for name, words in growth_facts(growth))
        json.dumps(plain_growth(growth))


def test_the_drift_has_no_growth_because_it_has_no_k3(tmp_path: Path) -> None:
    assert growth_of(open_run(made(tmp_path, "healthy")), "drift").because == "the drift has no K3 by step"


def test_a_policy_that_sharpened_is_composition_in_a_real_run() -> None:
    run = open_run(ROOT / "sample_data" / "runs" / "trl-vllm-healthy")
    (change,) = growth_of(run, "mismatch").changes
    assert change.course.factor < 1 and change.splits[0].split.share > 0.8
    assert "The two parts are opposed." in change_words(change)
    assert any("surprisal" in each.words for each in change.beside)
    assert not {item.cause.code for item in diagnosis_of(run).diagnosis.likely}


def test_falls_of_a_real_sawtooth_are_near_syncs() -> None:
    run = open_run(ROOT / "sample_data" / "runs" / "trl-vllm-stale")
    (change,) = growth_of(run, "mismatch").changes
    assert change.course.kind == "sawtooth" and change.beside
    assert change.beside[0].words.startswith(f"{len(change.course.falls)} of {len(change.course.falls)} falls")


def test_replicas_that_come_or_go_in_the_window_are_told() -> None:
    tokens = np.ones((10, 4))
    tokens[:5, 1], tokens[6:, 2], tokens[3, 3] = 0, 0, 0
    found = labels_that_changed("replica", ("a", "b", "c", "d"), tokens, np.arange(10), Window(5, 4, 7))
    assert [(each.step, each.words) for each in found] == [
        (5, "replica b is on record for the first time"),
        (5, "replica c is on record for the last time"),
    ]


def test_a_window_has_the_recorded_steps_around_the_interval() -> None:
    steps = [0, 5, 10, 15, 20]
    assert window_of(10, 10, 10, steps) == Window(10, 5, 15)
    assert window_of(5, 0, 20, steps) == Window(5, 0, 20)


def test_nearness_decides_before_kind_and_usual_events_come_last() -> None:
    window = Window(10, 5, 15)
    far, near, often = (
        NearbyChange("attempt", 12, "a"),
        NearbyChange("event", 10, "b", 0.1),
        NearbyChange("event", 10, "c", 0.9),
    )
    assert sorted([often, far, near], key=lambda each: each.distance(window)) == [near, far, often]
