"""The record has a veto and a vote: fixed weights, the rhythm of syncs, digests, adapters and settings on record."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT

from ratioscope import Collector, open_run, weights
from ratioscope.app.cli import main
from ratioscope.ingest.analysis.diagnosis import RunDiagnosis, diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import known_context
from ratioscope.metrics.diagnosis.on_record import STALENESS, sync_break

STALE = ROOT / "sample_data" / "runs" / "trl-vllm-stale"
NAMES = ("embed.weight", "layers.0.mlp.weight", "lm_head.weight")
GROWING = tuple(0.01 * 1.5**step for step in range(10))
"""Standard deviation of the log-ratios at each step: 1,500 times the gap by the last step."""


def recorded(
    root: Path,
    sizes: Sequence[float] = GROWING,
    *,
    config: Mapping[str, Any] | None = None,
    trainer: str = "mine",
    versions: Sequence[int] | None = None,
    rollout_versions: Sequence[int] | None = None,
    syncs: Sequence[int] = (),
    digests: bool = False,
) -> RunDiagnosis:
    """The diagnosis of a run of 10 or so steps whose log-ratios have these sizes; its tokens are draws of the sampler."""
    rng = np.random.default_rng(0)
    with Collector(root, trainer=trainer, config=dict(config or {})) as collector:
        for step, size in enumerate(sizes):
            if step in syncs:
                collector.event("weight_sync", step, f"version {step}")
            rollout = -rng.exponential(1.5, (24, 32))
            x = size * rng.standard_normal(rollout.shape) - size**2 / 2  # a mean weight of 1
            collector.log(
                step=step,
                rollout_logprobs=rollout,
                old_logprobs=rollout + x,
                trainer_version=None if versions is None else versions[step],
                rollout_versions=None if rollout_versions is None else rollout_versions[step],
            )
            if digests:
                own = weights.digests(tensors(whole(step)))
                collector.sync(step, digests=own)
                collector.sync(step, replica="0", digests=own)
    return diagnosis_of(open_run(root))


def whole(version: int) -> dict[str, int]:
    return dict.fromkeys(NAMES, version)


def tensors(held: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Name -> the values that it has at its version."""
    return {name: np.full(8, 10.0 * version + NAMES.index(name)) for name, version in held.items()}


def likely(result: RunDiagnosis) -> list[str]:
    return [item.cause.code for item in result.diagnosis.likely]


def ruled_out(result: RunDiagnosis) -> dict[str, str]:
    return {item.cause.code: item.because for item in result.diagnosis.excluded}


@pytest.mark.parametrize(
    "fixed",
    [
        {"versions": [500] * 10, "rollout_versions": [500] * 10},
        {"versions": [500] * 10},
        {"config": {"learning_rate": 0.0}},
        {"config": {"actor": {"optim": {"lr": 0}}, "critic": {"optim": {"lr": 1e-5}}}, "versions": range(10)},
    ],
)
def test_weights_that_never_change_rule_out_every_staleness(tmp_path: Path, fixed: dict[str, Any]) -> None:
    result = recorded(tmp_path / "run", **fixed)
    why = ruled_out(result)
    assert likely(result)[0] == "ageing_state" and not set(likely(result)) & set(STALENESS)
    assert all("the record rules it out" in why[code] for code in STALENESS)
    assert not {"never_synced", *STALENESS} & set(result.diagnosis.likely[0].instead)
    assert "engine" not in result.diagnosis.likely[0].title and "trainer" not in result.diagnosis.likely[0].title


@pytest.mark.parametrize(
    "moving",
    [
        {},
        {"versions": range(10)},
        {"config": {"learning_rate": 1e-6}},
        {"config": {"learning_rate": 0.0, "warmup_steps": 20}},
        {"config": {"optim": {"lr": 0.0, "min_lr": 1e-7}}},
        {"config": {"critic": {"lr": 0.0}}},
        {"versions": [0] * 10, "rollout_versions": list(range(10))},  # a version that nobody counts
        {"versions": [0] * 10, "syncs": range(10)},
    ],
)
def test_weights_that_may_have_changed_rule_out_nothing(tmp_path: Path, moving: dict[str, Any]) -> None:
    result = recorded(tmp_path / "run", **moving)
    assert result.record.fixed_weights == "" and "ageing_state" not in likely(result)
    assert "ageing_state" in {item.cause.code for item in result.diagnosis.cannot_tell}, "and it is not ruled out"


def test_tokens_of_older_weights_stay_older_at_a_constant_version(tmp_path: Path) -> None:
    lags = [500] * 5 + [495] * 5
    result = recorded(tmp_path / "run", [0.02] * 5 + [0.3] * 5, versions=[500] * 10, rollout_versions=lags)
    assert likely(result)[0] == "version_lag" and "sync_broke" in result.record.ruled_out


@given(every=st.integers(1, 5), count=st.integers(4, 20), start=st.integers(0, 9), apart=st.integers(1, 3))
def test_a_rhythm_that_holds_has_no_break_however_the_steps_are_numbered(
    every: int, count: int, start: int, apart: int
) -> None:
    steps = range(start, start + apart * (every * count + 1), apart)
    assert sync_break(steps[::every], steps) is None


@given(every=st.integers(1, 5), kept=st.integers(4, 12), lost=st.integers(2, 12), back=st.integers(0, 8))
def test_the_first_missing_sync_is_named(every: int, kept: int, lost: int, back: int) -> None:
    steps = range(1, 1 + every * (kept + lost + back) + 1)
    regular = steps[::every]
    found = sync_break([*regular[:kept], *regular[kept + lost :]], steps)
    assert found is not None
    assert (found.every, found.last, found.due) == (every, regular[kept - 1], regular[kept])
    assert found.has_ended == (len(regular) - kept - lost < 2)
    late = found.among(np.array(steps))
    returned = regular[kept + lost] if back or len(regular) > kept + lost else steps[-1] + 1
    assert all(late[at] == (found.due <= step < returned) for at, step in enumerate(steps))


def test_irregular_syncs_and_few_ones_have_no_rhythm() -> None:
    assert sync_break([1, 2, 5, 6, 11], range(1, 30)) is None and sync_break([1, 3, 5], range(1, 30)) is None
    assert sync_break([], range(5)) is None and sync_break([9, 10, 11, 12], range(4)) is None


def test_a_hole_in_the_record_breaks_no_rhythm() -> None:
    steps = [*range(1, 10), *range(40, 50)]
    assert sync_break([1, 3, 5, 7, 9, 41, 43, 45, 47, 49], steps) is None


BROKEN = [0.02] * 12 + [0.02 + 0.05 * k for k in range(1, 9)]


def test_the_step_at_which_a_sync_is_missing_is_named_and_the_lag_follows(tmp_path: Path) -> None:
    at = dict(versions=range(20), rollout_versions=[min(step, 12) for step in range(20)], syncs=range(12))
    result = recorded(tmp_path / "run", BROKEN, **at)  # type: ignore[arg-type]
    first, second = result.diagnosis.likely[:2]
    assert (first.cause.code, first.parameters["step"], second.cause.code) == ("sync_broke", 12, "version_lag")
    assert "the one due at step 12 is missing, and none came later" in first.effect
    assert second.follows and second.of_whole == 0 and "version_lag" not in first.instead


def test_missing_events_prove_nothing_where_the_versions_say_that_the_weights_are_fresh(tmp_path: Path) -> None:
    result = recorded(tmp_path / "run", BROKEN, versions=range(20), rollout_versions=range(20), syncs=range(12))
    assert result.record.syncs is None


@pytest.mark.parametrize(("trainer", "is_sure"), [("mine", False), ("verl 0.9", True), ("torchtitan", False)])
def test_without_versions_only_an_adapter_that_records_every_sync_is_sure(
    tmp_path: Path, trainer: str, is_sure: bool
) -> None:
    result = recorded(tmp_path / "run", BROKEN, trainer=trainer, syncs=range(12))
    assert result.record.syncs is not None and result.record.syncs.is_sure == is_sure
    assert likely(result)[0] == "sync_broke"
    assert (result.diagnosis.likely[0].confidence == "high") == is_sure


def test_a_sync_that_was_left_out_and_came_back_is_a_missed_one(tmp_path: Path) -> None:
    sizes = [0.02] * 8 + [0.3, 0.4] + [0.02] * 4 + [0.3, 0.4] + [0.02] * 4
    syncs = [step for step in range(20) if step not in (8, 9, 14, 15)]
    result = recorded(tmp_path / "run", sizes, syncs=syncs)
    assert likely(result)[0] == "missed_syncs" and result.record.syncs is not None
    assert result.record.syncs.words == "weight syncs came at every step, but none when one was due at step 8, 14"


def test_the_shipped_stale_run_is_named_as_its_readme_says() -> None:
    run = open_run(STALE)
    result = diagnosis_of(run)
    first = result.diagnosis.likely[0]
    assert (first.cause.code, first.confidence, first.parameters["step"]) == ("sync_broke", "high", 21)
    readme = (ROOT / "sample_data" / "README.md").read_text()
    for words in ("step 19", "step 21", "35 and 51"):
        assert words in readme and words in first.effect
    assert "the settings on record allow a lag of at most 3" in result.diagnosis.likely[1].effect
    context = known_context(run, result, verdict_of(run))
    assert context.remedies == {} and context.done == {"version_lag"}  # num_iterations is 1, a lag of 14 no setting's
    assert context.bridge is not None and context.bridge.best == ""
    assert "the run's own truncate token at 3" in context.bridge.words and context.bridge.words.endswith("Keep it")


@pytest.mark.parametrize(
    ("config", "has_adapter"),
    [
        ({"lora_rank": 16}, True),
        ({"actor": {"lora": {"rank": 8, "alpha": 16}}}, True),
        ({"peft_config": {"r": 4, "target_modules": ["q_proj"]}}, True),
        ({"lora_rank": 0, "lora_alpha": 16}, False),
        ({"use_peft": False}, False),
        ({"explorations": 3}, False),
        ({}, False),
    ],
)
def test_with_an_adapter_on_record_a_gap_that_grows_from_the_floor_has_one_title(
    tmp_path: Path, config: dict[str, Any], has_adapter: bool
) -> None:
    result = recorded(tmp_path / "run", config=config, versions=range(10), rollout_versions=range(10))
    assert bool(result.record.adapter) == has_adapter
    assert ("adapter_scale" in likely(result)) == has_adapter
    if has_adapter:
        first = result.diagnosis.likely[0]
        assert first.cause.title.endswith("or does not have it") and first.instead == ()
        assert first.confidence != "high" and first.side is None
        assert result.next is not None and "adapter_scale" in result.next.settles


def test_equal_digests_leave_the_count_of_the_adapter_alone(tmp_path: Path) -> None:
    result = recorded(tmp_path / "run", config={"lora_rank": 16}, digests=True)
    first = result.diagnosis.likely[0]
    assert first.cause.code == "adapter_scale" and first.instead == ()
    assert "digests equal" in ruled_out(result)["never_synced"]
    assert result.next is None or result.next.code != "digests"


def test_the_tensors_that_digests_name_stand_in_the_headline_of_every_face(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The course alone looks like a setting: one level from the first step on."""
    rng = np.random.default_rng(0)
    with Collector(tmp_path / "run") as collector:
        for step in range(8):
            rollout = -rng.exponential(1.5, (24, 32))
            collector.log(
                step=step, rollout_logprobs=rollout, old_logprobs=rollout + 0.3 * rng.standard_normal((24, 32)) - 0.045
            )
            collector.sync(step, digests=weights.digests(tensors(whole(step))))
            held = whole(step) | {"layers.0.mlp.weight": 0}
            collector.sync(step, replica="0", digests=weights.digests(tensors(held)))
    result = diagnosis_of(open_run(tmp_path / "run"))
    first = result.diagnosis.likely[0]
    assert (first.cause.code, first.confidence, first.side) == ("corrupted_load", "high", "engine")
    assert first.title.startswith("the engine has had wrong weights since one step: replica 0: 1 of 3 tensors differ")
    assert first.of_whole > 0.5, "the digests have the share of the signature of other weights"
    page = tmp_path / "report.html"
    for verb in (["diagnose"], ["info"], ["report", "-o", str(page)]):
        assert main([verb[0], str(tmp_path / "run"), *verb[1:]]) == 0
        said = capsys.readouterr().out + (page.read_text() if page.exists() else "")
        assert "layers.0.mlp.weight" in said, verb


def test_an_older_version_whose_tensors_are_mostly_equal_names_those_that_differ(tmp_path: Path) -> None:
    frozen = {"embed.weight": 0, "lm_head.weight": 0}
    with Collector(tmp_path / "run") as collector:
        for step in range(4):
            collector.log(step=step, rollout_logprobs=[[-1.0] * 40] * 8, old_logprobs=[[-1.1] * 40] * 8)
            collector.sync(step, digests=weights.digests(tensors(frozen | {"layers.0.mlp.weight": step})))
            collector.sync(step, replica="0", digests=weights.digests(tensors(frozen | {"layers.0.mlp.weight": 0})))
    result = diagnosis_of(open_run(tmp_path / "run"))
    assert (
        "version 0 where version 3 was sent: 1 of 3 tensors differ, layers.0.mlp.weight" in result.record.side_because
    )
    assert list(result.record.shown) == ["never_synced"]


def test_the_next_experiment_stands_in_json_and_in_the_first_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = recorded(tmp_path / "run", config={"learning_rate": 0.0})
    assert result.next is not None and "ageing_state" in result.next.settles
    assert plain_diagnosis(result)["next"]["do"] == result.next.do
    for verb in ("diagnose", "info"):
        main([verb, str(tmp_path / "run")])
        assert f"Next: {result.next.do[:40]}" in " ".join(capsys.readouterr().out.split())
    healthy = recorded(tmp_path / "healthy", [0.01] * 10)
    assert healthy.next is None and plain_diagnosis(healthy)["next"] is None


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"temperature": 0.0}, {"temperature": 1.0, "top_k": 1}])
def test_greedy_decoding_on_record_is_no_fault_of_sampling(sampling: dict[str, float], tmp_path: Path) -> None:
    """The likeliest of 20 tokens, raw log-probs on both sides, and the entropy: the tokens are no draws."""
    rng, is_greedy = np.random.default_rng(1), bool(sampling) and sampling != {"temperature": 0.7}
    with Collector(tmp_path, trainer="mine", config={"sampling": sampling} if sampling else {}) as collector:
        for step in range(6):
            logits = rng.normal(0, 1.5, (24, 32, 20))
            logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            own = logprobs.max(-1)
            entropy = -(np.exp(logprobs) * logprobs).sum(-1)
            noise = rng.normal(0, 0.01, own.shape)
            collector.log(step=step, rollout_logprobs=own, old_logprobs=own - np.abs(noise), entropy=entropy)
    run = open_run(tmp_path)
    found, verdict = diagnosis_of(run), verdict_of(run)
    assert ("silent_sampling" in likely(found)) is not is_greedy
    assert (verdict.word == "healthy") is is_greedy
    assert ("decoding is greedy by the record" in ruled_out(found).get("silent_sampling", "")) is is_greedy
    not_run = {check.name: check.absent for check in verdict.checks}
    assert ("greedy" in not_run.get("surprisal", "")) is is_greedy
