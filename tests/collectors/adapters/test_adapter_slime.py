"""slime and miles, driven as stand-ins of their signatures (standins/slime.py says of which upstream files).

Expected values are what the trainers held: their batches, and log-probs computed again from the weights of each optimizer step.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from standins.slime import drive
from standins.slime_places import Ranks, StandIn
from support.dialect_golden import read_json
from support.slime_rows import held, rows, scored
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.collectors.adapters.slime.batch import Rollout, Slicing, count, cut, positions
from ratioscope.collectors.adapters.slime.rollout import RolloutSide, _media, _replayed
from ratioscope.collectors.adapters.slime.versions import Calls
from ratioscope.ingest.analysis.weight_arrivals import weight_arrivals

TRAINERS = ("slime", "miles")
REJECTING = {
    "slime": "slime.backends.megatron_utils.loss",
    "miles": "miles.backends.training_utils.loss_hub.corrections",
}
STEPS = 2
"""Optimizer steps per rollout, unless a test says otherwise."""


def events(run: Path) -> list[tuple[str, int, str]]:
    return [(line["event"], line["step"], line["note"]) for line in commit_lines(run, "event")]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_policy_is_recorded_as_the_trainer_held_it(tmp_path: Path, trainer: str) -> None:
    trace = drive(tmp_path / "run", trainer, options={"strict": True})
    expected, found = held(trace), rows(tmp_path / "run")
    assert {(row["step"], row["sequence_id"]) for row in found} == set(expected) and len(found) == len(expected) == 16
    for row in found:
        one = expected[row["step"], row["sequence_id"]]
        current, entropy = scored(trace["history"][row["step"] * STEPS + row["minibatch"]], one)
        assert row["minibatch"] == one["minibatch"]
        assert row["rollout_logprobs"] == one["rollout_log_probs"].tolist()
        assert row["old_logprobs"] == one["log_probs"].tolist()
        assert row["reference_logprobs"] == one["ref_log_probs"].tolist()
        assert row["current_logprobs"] == pytest.approx(current.tolist(), abs=1e-6)
        assert row["entropy"] == pytest.approx(entropy.tolist(), abs=1e-6)
        assert row["advantages"] == one["advantages"].tolist()
        assert row["token_ids"] == one["tokens"][-one["response_lengths"] :].tolist()
    run = ratioscope.open_run(tmp_path / "run")
    metrics = run.metrics()
    counted = metrics["mismatch/sequences"].to_list()
    assert counted == metrics["total/sequences"].to_list()
    assert counted == (
        [8, 8] if trainer == "slime" else [7, 6]
    )  # miles sends only zeros of what is taken out of the loss
    assert run.gaps == ("mismatch", "total", "drift")


@pytest.mark.parametrize("steps", [STEPS, 1])
def test_both_sides_at_the_likeliest_tokens_are_recorded_with_score_centering(tmp_path: Path, steps: int) -> None:
    """With one step slime computes no old log-probs: old is current, at these tokens too."""
    settings: dict[str, Any] = {
        "use_score_centering": True,
        "num_steps_per_rollout": steps,
        "recompute_loss_function": True,
    }
    trace = drive(tmp_path / "run", options={"strict": True}, **settings)
    expected, run = held(trace), ratioscope.open_run(tmp_path / "run")
    for step in run.steps:
        for row in run.topk(step).to_pylist():
            one = expected[row["step"], row["sequence_id"]]
            length, tokens = one["response_lengths"], one["tokens"]
            assert row["topk_counts"] == [3] * length
            assert row["topk_ids"] == one["rollout_topk_token_ids"].flatten().tolist()
            assert row["rollout_topk_logprobs"] == one["rollout_topk_log_probs"].flatten().tolist()
            table = torch.as_tensor(trace["history"][row["step"] * steps + row["minibatch"]])
            logits = table[tokens[len(tokens) - length - 1 : -1]]
            train = torch.log_softmax(logits, -1).gather(1, one["rollout_topk_token_ids"].long())
            assert row["current_topk_logprobs"] == pytest.approx(train.flatten().tolist(), abs=1e-6)
            assert row["old_topk_logprobs"] == (None if steps > 1 else row["current_topk_logprobs"])
    assert list(run.topk_steps) == list(run.steps)
    assert all(map(np.array_equal, trace["gradients"], drive(None, **settings)["gradients"]))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_what_only_the_rollout_manager_knows_joins_the_trainers_rows(tmp_path: Path, trainer: str) -> None:
    trace = drive(tmp_path / "run", trainer, options={"strict": True})
    expected = held(trace)
    for row in rows(tmp_path / "run"):
        sample = expected[row["step"], row["sequence_id"]]["sample"]
        assert row["group_id"] == str(sample.group_index)
        assert row["reward"] == sample.reward
        assert row["finish_reason"] == sample.status.value
        assert row["prompt_text"] == sample.prompt
        assert row["rollout_version_min"] == row["rollout_version_max"] == int(sample.weight_versions[0])
        tools = [0] * 3 if len(sample.weight_versions) == 2 else []
        assert row["turn"] == sorted(row["turn"]) and max(row["turn"]) == (1 if tools else 0)
    facts = [row for row in token_rows(tmp_path / "run").to_pylist() if row["minibatch"] is None]
    assert facts[1]["cached_tokens"] == 2 and facts[1]["prompt_tokens"] > 2
    assert '"cached_tokens": 2' in facts[1]["extra"] and '"weight_versions": ["1"]' in facts[1]["extra"]


def test_the_mask_is_that_of_sampling_and_the_loss_mask_what_the_correction_left(tmp_path: Path) -> None:
    path = f"{REJECTING['slime']}.rejecting_tis_function"
    trace = drive(tmp_path / "run", use_tis=True, custom_tis_function_path=path, options={"strict": True})
    expected = held(trace)
    rejected = 0
    for row in rows(tmp_path / "run"):
        one = expected[row["step"], row["sequence_id"]]
        difference = (one["log_probs"] - one["rollout_log_probs"]).abs()
        kept = (one["loss_masks"].bool() & (difference < 0.02)).tolist()
        assert row["mask"] == [bool(sampled) for sampled in one["sample"].loss_mask]
        assert row["loss_mask"] == kept
        rejected += sum(row["mask"]) - sum(kept)
    assert rejected > 0


def test_lag_is_counted_in_pushes(tmp_path: Path) -> None:
    drive(tmp_path / "sync", options={"strict": True}, rollouts=3)
    drive(tmp_path / "async", options={"strict": True}, rollouts=4, asynchronous=True)
    for name, lags in (("sync", [0, 0, 0]), ("async", [0, 1, 1, 1])):
        run = ratioscope.open_run(tmp_path / name)
        found = run.sequences().filter(minibatch=0).select("step", "lag").unique().sort("step")
        assert found["lag"].to_list() == lags
        by_lag = run.metrics(by=["step", "lag"])
        assert by_lag["lag"].to_list() == [str(lag) for lag in lags]


def test_updates_that_were_not_pushed_count_as_well(tmp_path: Path) -> None:
    drive(tmp_path / "run", options={"strict": True}, rollouts=5, asynchronous=True, update_weights_interval=2)
    found = ratioscope.open_run(tmp_path / "run").sequences().filter(minibatch=0)
    assert found.select("step", "lag").unique().sort("step")["lag"].to_list() == [0, 1, 2, 1, 2]


def test_an_old_actor_that_is_kept_has_the_version_of_the_samples(tmp_path: Path) -> None:
    drive(tmp_path / "run", options={"strict": True}, rollouts=4, asynchronous=True, keep_old_actor=True)
    found = ratioscope.open_run(tmp_path / "run").sequences().filter(minibatch=0)
    assert found.select("step", "lag").unique().sort("step")["lag"].to_list() == [0, 0, 0, 0]


def test_each_call_of_an_engine_gives_its_tokens_their_version(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", resumed_calls=True, options={"strict": True})
    mixed = 0
    for row in rows(tmp_path / "run"):
        sample = held(trace)[row["step"], row["sequence_id"]]["sample"]
        versions = [int(version) for version in sample.weight_versions]
        assert (row["rollout_version_min"], row["rollout_version_max"]) == (min(versions), max(versions))
        if len(set(versions)) > 1:
            mixed += 1
            second = row["turn"].index(1)
            assert set(row["rollout_versions"][second:]) == {2} and row["rollout_versions"][0] == 1
    assert mixed > 0
    by_lag = ratioscope.open_run(tmp_path / "run").metrics(by=["step", "lag"])
    assert set(by_lag["lag"].to_list()) == {"0", "1"}


def test_samples_of_several_versions_whose_calls_nobody_saw_have_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Calls, "note", lambda self, sample: None)
    trace = drive(tmp_path / "run", resumed_calls=True, options={"strict": True})
    for row in rows(tmp_path / "run"):
        versions = [int(version) for version in held(trace)[row["step"], row["sequence_id"]]["sample"].weight_versions]
        known = versions[0] if len(set(versions)) == 1 else None
        assert row["rollout_version_min"] == row["rollout_version_max"] == known
    assert [kind for kind, _, _ in events(tmp_path / "run")].count("mixed_versions") == 1


@pytest.mark.parametrize(("trainer", "settings"), [("slime", {}), ("miles", {"skip_actor_forward_only": True})])
def test_where_no_old_pass_is_made_old_is_the_detached_current(tmp_path: Path, trainer: str, settings: Any) -> None:
    drive(tmp_path / "run", trainer, num_steps_per_rollout=1, options={"strict": True}, **settings)
    found = rows(tmp_path / "run")
    assert len(found) == 16 and all(row["old_logprobs"] == row["current_logprobs"] for row in found)
    said = [event for event in events(tmp_path / "run") if event[0] == "old_is_current"]
    assert (
        len(said) == 1
        and ("--get-mismatch-metrics" if trainer == "slime" else "--skip-actor-forward-only") in said[0][2]
    )
    metrics = ratioscope.open_run(tmp_path / "run").metrics()
    assert metrics["drift/max_abs_log_ratio"].to_list() == [0.0, 0.0]
    assert metrics["mismatch/kl_k3"].to_list() == pytest.approx(metrics["total/kl_k3"].to_list())


@pytest.mark.parametrize("trainer", TRAINERS)
def test_in_bypass_mode_total_is_on_record_and_old_is_said_to_be_missing(tmp_path: Path, trainer: str) -> None:
    drive(tmp_path / "run", trainer, use_rollout_logprobs=True, options={"strict": True})
    found = rows(tmp_path / "run")
    assert all(row["old_logprobs"] is None for row in found)
    run = ratioscope.open_run(tmp_path / "run")
    assert run.gaps == ("total",)
    assert run.metrics()["total/sequences"].to_list() == ([8, 8] if trainer == "slime" else [7, 6])
    assert [event for event, _, note in events(tmp_path / "run") if "--use-rollout-logprobs" in note] == [
        "no_old_logprobs"
    ]


def test_a_loss_that_is_computed_again_is_recorded_once(tmp_path: Path) -> None:
    again = drive(tmp_path / "run", recompute_loss_function=True, options={"strict": True})
    once = drive(None)
    assert len(rows(tmp_path / "run")) == 16
    assert len(token_rows(tmp_path / "run")) == 32
    np.testing.assert_array_equal(again["weights"], once["weights"])


@pytest.mark.parametrize("trainer", TRAINERS)
def test_slices_of_context_parallel_ranks_make_the_whole_sequence(
    tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = drive(tmp_path / "whole", trainer, rollouts=1, options={"strict": True})
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        drive(
            tmp_path / "sliced",
            trainer,
            rollouts=1,
            ranks=Ranks(cp_size=2, cp_rank=rank),
            options={"strict": True, "attempt": 0},
        )
    table = token_rows(tmp_path / "sliced")
    assert {row["rank"] for row in table.to_pylist() if row["positions"] is not None} == {0, 1}
    first = {row["sequence_id"]: row for row in rows(tmp_path / "whole") if row["minibatch"] == 0}
    sliced = {row["sequence_id"]: row for row in rows(tmp_path / "sliced") if row["minibatch"] == 0}
    assert set(first) == set(sliced) and whole["finished"]
    for name, row in first.items():
        for column in ("rollout_logprobs", "old_logprobs", "reference_logprobs", "advantages"):
            assert sliced[name][column] == row[column]
        for column in ("mask", "loss_mask", "token_ids", "rollout_version_min", "trainer_version"):
            assert sliced[name][column] == row[column]
        assert sliced[name]["current_logprobs"] == pytest.approx(row["current_logprobs"], abs=1e-6)


def test_a_rank_holds_the_positions_that_slime_gives_it() -> None:
    layouts = read_json("slime", "cp_layout.json")["layouts"]
    assert len(layouts) == 84
    for layout in layouts:
        slicing = Slicing(layout["cp_size"], layout["cp_rank"])
        pieces = slicing.pieces(layout["total_length"], layout["response_length"])
        assert positions(pieces).tolist() == layout["response_positions"]
        assert count(pieces) == len(layout["response_positions"])


@given(size=st.integers(2, 8), prompt=st.integers(1, 60), response=st.integers(1, 90), more=st.integers(0, 40))
def test_the_ranks_share_out_each_token_once(size: int, prompt: int, response: int, more: int) -> None:
    total = prompt + response
    values = list(range(response))
    shared = [Slicing(size, rank).pieces(total, response, total + more) for rank in range(size)]
    assert sorted(value for pieces in shared for value in cut(values, pieces)) == values
    for pieces in shared:
        assert (
            cut(np.array(values), pieces).tolist() == cut(torch.tensor(values), pieces).tolist() == cut(values, pieces)
        )


@pytest.mark.parametrize("ranks", [Ranks(tp_rank=1), Ranks(is_last_stage=False)])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_ranks_that_hold_copies_or_nothing_write_nothing(tmp_path: Path, trainer: str, ranks: Ranks) -> None:
    def no_samples(s: StandIn) -> None:
        s.at("rollout_metrics").log_rollout_data = lambda *given: None
        monkeypatch.setattr(RolloutSide, "sampled", lambda self, call: None)

    with pytest.MonkeyPatch.context() as monkeypatch:
        trace = drive(tmp_path / "run", trainer, ranks=ranks, spoil=no_samples)
    assert trace["refused"] is None and len(trace["gradients"]) == 4
    assert not (tmp_path / "run").exists()


SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("slime", {}),
    ("slime", {"num_steps_per_rollout": 1}),
    ("slime", {"use_tis": True, "custom_tis_function_path": f"{REJECTING['slime']}.rejecting_tis_function"}),
    ("slime", {"use_rollout_logprobs": True, "asynchronous": True}),
    ("slime", {"recompute_loss_function": True}),
    ("miles", {}),
    ("miles", {"use_tis": True}),
    ("miles", {"fsdp": True}),
)


@pytest.mark.parametrize(("trainer", "settings"), SETTINGS, ids=str)
def test_training_is_bit_identical_with_and_without(tmp_path: Path, trainer: str, settings: Any) -> None:
    recorded = drive(tmp_path / "run", trainer, options={"strict": True}, **settings)
    plain = drive(None, trainer, **settings)
    assert recorded["finished"] and len(token_rows(tmp_path / "run")) > 0
    assert_same(recorded, plain)


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first["logs"] == second["logs"]
    for name in ("gradients", "history"):
        for one, other in zip(first[name], second[name], strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first["weights"], second["weights"])
    assert first["rng"][0] == second["rng"][0] and torch.equal(first["rng"][2], second["rng"][2])
    np.testing.assert_array_equal(first["rng"][1][1], second["rng"][1][1])
    assert first["config"] == second["config"]
    for one, other in zip(first["rollout_data"], second["rollout_data"], strict=True):
        assert list(one) == list(other)
        for name in one:
            for value, same in zip(one[name], other[name], strict=True):
                assert torch.equal(value, same) if isinstance(value, torch.Tensor) else value == same
    for rollout, samples in first["samples"].items():
        assert [repr(vars(sample)) for sample in samples] == [repr(vars(same)) for same in second["samples"][rollout]]


@pytest.mark.parametrize(("trainer", "settings"), [("slime", {}), ("miles", {}), ("miles", {"fsdp": True})])
def test_detaching_puts_back_every_name(tmp_path: Path, trainer: str, settings: Any) -> None:
    trace = drive(tmp_path / "run", trainer, **settings)
    assert trace["is_restored"] and trace["finished"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_version_that_lacks_a_name_is_refused_and_trains_on(tmp_path: Path, trainer: str) -> None:
    trace = drive(tmp_path / "run", trainer, spoil=without_steps)
    assert (
        "has no" in trace["refused"] and "train_one_step" in trace["refused"] and "training goes on" in trace["refused"]
    )
    assert not (tmp_path / "run").exists()
    assert_same(trace, drive(None, trainer))


def without_steps(s: StandIn) -> None:
    s.step_name = "one_step"
    s.at("model").one_step = s.at("model").train_one_step
    del s.at("model").train_one_step


def test_a_failing_look_is_counted_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Rollout, masks: Any) -> list[int]:
        raise RuntimeError("a look failed")

    monkeypatch.setattr(Rollout, "rows_of", fails)
    trace = drive(tmp_path / "run")
    assert_same(trace, drive(None))
    table = token_rows(tmp_path / "run")
    assert len(table) == 16 and table["minibatch"].null_count == 16  # the rollout manager's rows
    said = [record.message for record in caplog.records if "a look failed" in record.message]
    assert len(said) == 1 and "slime adapter failed 8 times" in caplog.text


def test_pushes_and_a_resume_are_events_of_the_rollout_they_come_before(tmp_path: Path) -> None:
    drive(tmp_path / "run", first=3, options={"strict": True})
    found = [(kind, step) for kind, step, _ in events(tmp_path / "run") if kind in ("weight_sync", "resume")]
    assert found == [("weight_sync", 3), ("resume", 3), ("weight_sync", 4), ("weight_sync", 5)]


def test_checksums_of_miles_engines_name_the_one_with_older_weights(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", "miles", options={"strict": True}, rollouts=3, engines_checked=3)
    assert_same(trace, drive(None, "miles", rollouts=3, engines_checked=3))
    found = {one.newest.replica: one for one in weight_arrivals(ratioscope.open_run(tmp_path / "run"))}
    assert set(found) == {"0", "1", "2"} and found["0"].versions == 3  # of the last push nothing was sampled
    assert found["1"].newest.state == "differs" and found["1"].newest.differing == ("rank0/lm_head", "rank1/lm_head")
    assert found["1"].words.startswith("replica 1 holds the weights of version 2 where version 3 was sent")
    assert found["0"].newest.state == "unknown" and "most engines hold the same weights" in found["0"].words


@pytest.mark.usefixtures("patient")
def test_scalars_go_into_the_trainers_own_log_rows(tmp_path: Path) -> None:
    recorded, plain = (
        drive(tmp_path / "run", options={"strict": True, "scalars": True}, rollouts=4),
        drive(None, rollouts=4),
    )
    added = [{name for name in row if name.startswith("ratioscope/")} for row in recorded["logs"]]
    assert any(added)
    stripped = [{name: row[name] for name in same} for row, same in zip(recorded["logs"], plain["logs"], strict=True)]
    assert stripped == plain["logs"]


def test_samples_replayed_from_a_dump_have_no_versions_of_this_run(tmp_path: Path) -> None:
    drive(tmp_path / "run", load_debug_rollout_data="dump.pt", options={"strict": True})
    assert all(row["rollout_version_min"] is None for row in rows(tmp_path / "run"))
    assert ["no_rollout_versions"] == [kind for kind, _, note in events(tmp_path / "run") if "--load-debug" in note]


def test_the_arguments_are_kept_without_secrets(tmp_path: Path) -> None:
    drive(tmp_path / "run", options={"strict": True, "name": "my run"})
    info = ratioscope.open_run(tmp_path / "run").info
    assert info["trainer"] == "slime" and info["name"] == "my run"
    assert info["config"]["args"]["tis_clip"] == 2.0 and info["config"]["args"]["wandb_key"] == "[redacted]"


def test_fsdp_ranks_of_miles_are_recorded_as_well(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", "miles", fsdp=True, options={"strict": True})
    expected = held(trace)
    found = rows(tmp_path / "run")
    assert {(row["step"], row["sequence_id"]) for row in found} == set(expected)
    for row in found:
        assert row["old_logprobs"] == expected[row["step"], row["sequence_id"]]["log_probs"].tolist()


def test_media_and_replay_are_those_of_each_sample() -> None:
    text, image = (
        SimpleNamespace(multimodal_inputs=None),
        SimpleNamespace(multimodal_inputs={"images": [1, 2], "videos": None}),
    )
    assert _media([text, image, SimpleNamespace()]) == [0, 2, 0] and _media([text, text]) is None
    routed = SimpleNamespace(rollout_routed_experts=np.zeros((3, 2)))
    flag = SimpleNamespace(use_rollout_routing_replay=True)
    assert _replayed([routed, text], flag) == [True, False] and _replayed([routed], SimpleNamespace()) is None
