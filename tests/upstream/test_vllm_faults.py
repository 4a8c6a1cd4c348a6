"""Faults in a real vLLM server on the CPU: weights that are stale, a prefix cache kept over a sync, and keys and values in FP8.

Each run is diagnosed before and after the server is asked. See test_vllm_server.py on how vLLM is installed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.real_vllm import (
    CONFIG,
    RULES,
    SECRET,
    VLLM,
    changed,
    columns,
    distance,
    loads,
    prompts,
    sampled,
    serving,
    trained,
)
from support.smollm2 import kept_folder

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.app.referee.server import KEY, Server
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.metrics.diagnosis.diagnosis import Likely

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not VLLM, reason="VLLM names no vllm executable"),
]
NEARLY_ALL = 0.8
"""The least share of a gap that arises at one place, where the fault is there: rounding in bfloat16 is the rest."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)


@pytest.fixture(scope="module")
def old(request: pytest.FixtureRequest) -> Path:
    """The checkpoint before an update."""
    return kept_folder(request.config)


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint after it."""
    return changed(old, tmp_path_factory.mktemp("checkpoints") / "step-1", by=0.05, seed=1)


@pytest.fixture(scope="module")
def server(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--enable-prompt-tokens-details", "--block-size", "32")
    with serving(old, tmp_path_factory.mktemp("vllm"), *options) as made:
        yield made


def asked(run: Path, server: Server, capsys: pytest.CaptureFixture[str], step: int) -> tuple[float, str]:
    """(the part of the gap that arises between decode and prefill, 0 to 1; the answer) of `rescore --engine` at a step."""
    capsys.readouterr()
    assert main(["rescore", str(run), "--engine", server.address, "--all", "--steps", f"{step}:{step}", "--json"]) == 0
    part: dict[str, Any] = json.loads(capsys.readouterr().out)["readings"][0]["engine_part"]
    assert part["decided"] == "parts", part["sentence"]
    return part["part"]["value"] / part["mean"]["engine_to_trainer"]["value"], part["sentence"]


def first(run: Path) -> Likely:
    """The cause that the diagnosis names first."""
    return diagnosis_of(open_run(run)).diagnosis.likely[0]


def is_open(named: Likely) -> bool:
    """True for a cause that is named with low confidence and without a side; its page lists what looks the same."""
    return (named.confidence, named.side) == ("low", None) and bool(named.cause.mistaken_for)


def test_weights_that_a_real_engine_did_not_get_lie_behind_its_prefill_and_are_proved_by_its_checksums(
    server: Server, old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, given = tmp_path / "run", prompts(old)
    with Collector(run, writer="thread", strict=True, config=CONFIG) as collector:
        for step, weights in enumerate((old, new)):  # the server keeps the old ones
            responses = sampled(server, given, seed=step)
            collector.log(step=step, **columns(given, responses, trained(weights, given, responses)))
    assert first(run).cause.code == "different_weights" and is_open(first(run))
    part, said = asked(run, server, capsys, 1)
    assert part < 1 - NEARLY_ALL, said
    for step, weights, code in ((0, old, 0), (1, new, 1)):
        asking = ["weights", "--engine", f"0={server.address}", "--model", str(weights), "--run", str(run)]
        assert main([*asking, "--step", str(step)]) == code, capsys.readouterr().out
    proved = first(run)
    # not never_synced: the packed linear layers have no checksum on the CPU, so that not all weights are known to be older
    assert (proved.cause.code, proved.confidence, proved.side) == ("corrupted_load", "high", "engine"), proved.proof
    assert "it holds those of version 0" in proved.fact


def test_a_prefix_cache_that_a_real_engine_kept_over_a_sync_arises_in_its_decode_and_no_other_cause_is_sure(
    server: Server, old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, given = tmp_path / "run", prompts(old, system=RULES)
    responses, scores = [], []
    with Collector(run, writer="thread", strict=True, config=CONFIG) as collector:
        for step, weights in enumerate((old, new)):
            loads(server, weights)
            responses = sampled(server, given, seed=step)
            scores = trained(weights, given, responses)
            collector.log(step=step, **columns(given, responses, scores))
    assert min(own.cached for own in responses) >= 128
    bypassed = sampled(server, given, seed=2, salt="of the new weights")
    assert distance(bypassed, trained(new, given, bypassed)) * 2 < distance(responses, scores)
    assert is_open(first(run)) or first(run).cause.code == "stale_prefix"
    part, said = asked(run, server, capsys, 1)
    assert part > NEARLY_ALL, said
    assert is_open(first(run)) or first(run).cause.code == "stale_prefix"


def test_keys_and_values_in_fp8_are_shared_by_decode_and_prefill_of_a_real_engine_and_are_its_side_by_the_model(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, given = tmp_path / "run", prompts(old)
    with serving(old, tmp_path, "--kv-cache-dtype", "fp8") as server:
        responses = sampled(server, given)
        with Collector(run, writer="thread", strict=True, config=CONFIG) as collector:
            collector.log(step=1, **columns(given, responses, trained(old, given, responses)))
        assert is_open(first(run))
        part, said = asked(run, server, capsys, 1)
    assert part < 1 - NEARLY_ALL, said
    assert first(run).confidence == "low"
    assert main(["rescore", str(run), "--model", str(old), "--device", "cpu", "--all", "--json"]) == 0
    assert "the difference is the engine's" in capsys.readouterr().out
    assert first(run).confidence == "low"
