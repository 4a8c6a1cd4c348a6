"""Which side is off: the sentence and the numbers of a third reading in the report, in three formats."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.edge_runs import made
from support.read_run import APART, READ, SEQUENCES, read_run

from ratioscope import open_run, record_readings
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.referee import answer
from ratioscope.app.referee.answer import SideOff, side_off
from ratioscope.app.referee.distance import distances_of
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return read_run(tmp_path_factory.mktemp("side") / "read")


@pytest.fixture(scope="module")
def data(folder: Path) -> Material:
    return material(open_run(folder))


def found_of(data: Material) -> SideOff:
    assert data.side is not None
    return data.side


def test_the_engine_that_stands_off_is_named_with_numbers(data: Material) -> None:
    found = found_of(data)
    assert found.answer.off == "rollout" and found.reading == "referee"
    assert found.sentence.startswith("The trainer stands at ") and found.sentence.endswith(
        "difference is the engine's."
    )
    facts = dict(found.facts)
    assert list(facts) == ["engine to referee", "trainer to referee", "engine to trainer", "what was read"]
    size, k3 = (float(text) for text in re.findall(r"^[0-9.]+|[0-9.]+(?=\)$)", facts["engine to referee"]))
    assert size == pytest.approx(np.sqrt(2 / np.pi) * APART, rel=0.1) and k3 == pytest.approx(APART**2 / 2, rel=0.2)
    sequences = (len(READ) - 1) * SEQUENCES + SEQUENCES // 2
    assert facts["what was read"].startswith(f"{sequences} sequences of ")
    assert facts["what was read"].endswith("at steps 0 to 3, by tiny in float32; steps 4 to 5 have no reading")


def test_every_format_says_it(data: Material) -> None:
    found = found_of(data)
    page, text, twin = html_report(data), markdown_report(data), json.loads(json_report(data))
    assert 'id="side">Which side is off?' in page and 'href="#side"' in page
    assert found.sentence.partition("'")[0] in page
    assert "## Which side is off?" in text and "**trainer to referee**" in text
    assert twin["side"]["off"] == "rollout" and twin["side"]["sentence"] == found.sentence


def test_a_run_without_readings_has_no_such_section(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "tokens", lambda *_: pytest.fail("nothing to read"))
    assert side_off(open_run(made(runs, "one_step"))) is None
    monkeypatch.undo()
    data = material(open_run(made(runs, "one_step")))
    assert "Which side" not in html_report(data) + markdown_report(data)
    assert json.loads(json_report(data))["side"] is None


def test_the_numbers_are_those_of_plain_loops_over_sequences(folder: Path) -> None:
    run = open_run(folder)
    frame = run.tokens(list(READ), ["step", "sequence_id", "rollout:referee"]).collect().drop_nulls()
    parts = [part["rollout:referee"].to_numpy() for part in frame.partition_by("step", "sequence_id")]
    counts, sums = np.array([len(x) for x in parts]), np.array([(np.expm1(x) - x).sum() for x in parts])
    mean = sums.sum() / counts.sum()
    error = np.sqrt(((sums - mean * counts) ** 2).sum() * len(parts) / (len(parts) - 1)) / counts.sum()
    found = distances_of(run, "rollout:referee", list(READ))[None]
    assert found.k3 == pytest.approx(mean, rel=1e-9) and found.k3_error == pytest.approx(error, rel=1e-9)
    assert found.tokens == counts.sum()


def test_a_sequence_in_several_minibatches_counts_once(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    rollout = [chance.normal(-1, 0.1, 9).astype(np.float32) for _ in range(4)]
    ids = [f"s{index}" for index in range(4)]
    with Collector(tmp_path / "run", strict=True, writer="thread") as collector:
        old = [each + chance.normal(0.1, 0.05, 9).astype(np.float32) for each in rollout]
        for minibatch in range(3):
            collector.log(
                step=1, minibatch=minibatch, rollout_logprobs=rollout, old_logprobs=old, current_logprobs=old, sequence_ids=ids
            )  # fmt: skip
    keys = {"attempt": [0] * 4, "step": [1] * 4, "sequence_id": ids}
    record_readings(tmp_path / "run", "referee", keys | {"logprobs": old}, {"model": "m"})
    run = open_run(tmp_path / "run")
    whole = distances_of(run, "rollout:referee", [1])[None]
    assert whole.tokens == 4 * 9
    frame = run.metrics((), gap="rollout:referee")
    assert whole.k3 == pytest.approx(frame["rollout:referee/kl_k3"][0], rel=1e-9)
    assert whole.k3_error == pytest.approx(frame["rollout:referee/kl_k3_se"][0], rel=1e-6)


def test_a_long_run_is_compared_at_few_steps_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_STEPS", 2)
    found = side_off(open_run(folder))
    assert found is not None and "2 of them compared here" in dict(found.facts)["what was read"]


def test_a_second_forward_of_the_trainer_is_no_referee(tmp_path: Path) -> None:
    lists = [np.zeros(3, np.float32) - 1] * 2
    with Collector(tmp_path / "run", strict=True, writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=lists, old_logprobs=lists, readings={"trainer_again": lists})
    assert side_off(open_run(tmp_path / "run")) is None
