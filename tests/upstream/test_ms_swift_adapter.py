"""The ms-swift adapter on ms-swift's own code (4.6.0): its samples, collation, advantages, corrections and losses, on a CPU.

Needs the unpacked wheel of ms-swift in a folder of SOURCES. Skipped otherwise.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.adapter_properties import differences, seed
from support.launched import two_ranks
from support.sources import root
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.collectors.adapters.ms_swift.recorder import FUSED, RAY
from ratioscope.collectors.watching.recording import Recording
from ratioscope.metrics.engines.join import joined
from ratioscope.record import MASK_REASONS

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="ms-swift runs on torch")
pytest.importorskip("trl", reason="ms-swift is built on TRL")
driving = pytest.importorskip("upstream.ms_swift_drive", reason="ms-swift is not importable here")

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"beta": 0.1},
    {"num_iterations": 2},
    {"loss_type": "dapo", "rollout_importance_sampling_mode": "token_truncate"},
    {"rollout_importance_sampling_mode": "token_mask", "rollout_importance_sampling_threshold": 1.0},
    {"rollout_importance_sampling_mode": "sequence_mask", "rollout_importance_sampling_threshold": 1.0},
    {"overlong_filter": True, "importance_sampling_level": "sequence"},
    {"off_policy_sequence_mask_delta": 0.0, "num_iterations": 2},
    {"top_entropy_quantile": 0.5},
    {"log_entropy": False},
    {"async_generate": True},
    {"padding_free": True, "beta": 0.1, "rollout_importance_sampling_mode": "token_mask"},
)


def drive(run: Path | None, **settings: Any) -> dict[str, Any]:
    seed()
    return driving.drive(run, options={"strict": True}, **settings)  # type: ignore[no-any-return]


def rows(run: Path) -> list[dict[str, Any]]:
    return list(joined(token_rows(run)).to_pylist())


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_ms_swift_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    recorded, plain = drive(tmp_path / "run", **settings), drive(None, **settings)
    assert recorded["attachment"] == (True, None)
    found = rows(tmp_path / "run")
    assert len(found) == sum(len(inputs["grpo_batch"].completion_mask) for _, inputs, _ in recorded["held"])
    for step, inputs, table in recorded["held"]:
        held = [row for row in found if row["step"] == step]
        for place in range(len(inputs["grpo_batch"].completion_mask)):
            assert_held(held, inputs, place, table, settings)
    for name in ("losses", "gradients", "table", "metrics"):
        assert differences(recorded[name], plain[name]) == []
    assert any(gradient.abs().sum() > 0 for gradient in recorded["gradients"])


def assert_held(found: list[dict[str, Any]], inputs: Any, place: int, table: Any, settings: Any) -> None:
    batch, ids = inputs["grpo_batch"], sequence(inputs["model_inputs"], place)
    own = batch.completion_mask[place]
    count = int(own.sum())
    prompt, tokens, before = ids[:-count], ids[-count:], ids[-count - 1 : -1]
    rollout = batch.rollout_per_token_logps[place][own].tolist()
    row = next(row for row in found if row["rollout_logprobs"] == rollout)
    assert row["token_ids"] == tokens.tolist() and row["mask"] == [True] * count
    assert row["old_logprobs"] == batch.old_per_token_logps[place][own].tolist()
    assert row["advantages"] == batch.advantages[place][own].tolist()
    logs = torch.log_softmax(table[before], -1)
    assert row["current_logprobs"] == pytest.approx(logs.gather(1, tokens[:, None])[:, 0].tolist(), abs=1e-6)
    if settings.get("log_entropy", True):
        assert row["entropy"] == pytest.approx((-(logs.exp() * logs).sum(-1)).tolist(), abs=1e-6)
    if settings.get("beta"):
        assert row["reference_logprobs"] == batch.ref_per_token_logps[place][own].tolist()
    assert row["prompt_ids"] == prompt.tolist()
    assert row["finish_reason"] == ("length" if bool(batch.truncated_mask[place]) else "stop")
    lag = (
        1
        if settings.get("async_generate") and row["step"] > 1
        else row["trainer_version"] - (row["generation_step"] - 1)
    )
    assert row["trainer_version"] - row["rollout_version_min"] == lag
    assert row["reward"] == float(sum(row["token_ids"]) % 3)


def sequence(given: Any, place: int) -> Any:
    """The tokens of a sequence of the batch, which is padded or one row of all."""
    ids, places = given["input_ids"], given.get("position_ids")
    if "attention_mask" in given:
        return ids[place][ids[place] != driving.PAD]
    starts = [*torch.where(places[0] == 0)[0].tolist(), ids.shape[1]]
    return ids[0, starts[place] : starts[place + 1]]


REASONS: dict[str, dict[str, Any]] = {
    "high": {"rollout_importance_sampling_mode": "token_mask", "rollout_importance_sampling_threshold": 1.0},
    "sequence": {"rollout_importance_sampling_mode": "sequence_mask", "rollout_importance_sampling_threshold": 1.0},
    "length": {"overlong_filter": True},
    "off_policy": {"off_policy_sequence_mask_delta": 0.0, "num_iterations": 2},
    "other": {"top_entropy_quantile": 0.5},
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_tokens_that_the_loss_leaves_out_have_their_reason(tmp_path: Path, reason: str) -> None:
    drive(tmp_path / "run", steps=2, **REASONS[reason])
    found = rows(tmp_path / "run")
    numbers = [number for row in found for number in row["mask_reason"]]
    assert set(numbers) == {0, MASK_REASONS.index(reason)}
    for row in found:
        assert row["loss_mask"] == [number == 0 for number in row["mask_reason"]]
        if reason == "high":
            ratios = [old - rollout for old, rollout in zip(row["old_logprobs"], row["rollout_logprobs"], strict=True)]
            assert row["loss_mask"] == [ratio <= 0 for ratio in ratios]


LIGER: tuple[dict[str, Any], ...] = (
    {},
    {"beta": 0.1, "num_iterations": 2},
    {"rollout_importance_sampling_mode": "token_mask", "rollout_importance_sampling_threshold": 1.0},
    {"overlong_filter": True, "rollout_importance_sampling_mode": "sequence_mask", "rollout_importance_sampling_threshold": 1.0},
)  # fmt: skip


@pytest.mark.parametrize("settings", LIGER, ids=str)
def test_of_ligers_fused_loss_the_mismatch_is_recorded_and_what_is_missing_is_said(
    tmp_path: Path, settings: Any
) -> None:
    pytest.importorskip("liger_kernel", reason="liger-kernel is not importable here")
    given = [drive(run, use_liger_kernel=True, **settings) for run in (tmp_path / "run", None)]
    for name in ("losses", "gradients", "table", "metrics", "fused"):
        assert differences(*(trace[name] for trace in given)) == []
    assert any(gradient.abs().sum() > 0 for gradient in given[0]["gradients"])
    found = rows(tmp_path / "run")
    assert len(found) == sum(len(told["attention_mask"]) for told in given[0]["fused"]) == 12
    for (step, inputs, _), told in zip(given[0]["held"], given[0]["fused"], strict=True):
        batch, weights = inputs["grpo_batch"], told["vllm_is_ratio"]
        for place, own in enumerate(told["attention_mask"]):
            rollout = batch.rollout_per_token_logps[place][own].tolist()
            row = next(row for row in found if row["step"] == step and row["rollout_logprobs"] == rollout)
            assert row["token_ids"] == told["selected_token_ids"][place][own].tolist()
            assert row["old_logprobs"] == told["old_per_token_logps"][place][own].tolist()
            assert row["current_logprobs"] is None and row["entropy"] is None
            kept = own if weights is None else own & (weights[place] != 0)
            assert (
                row["loss_mask"] == kept[own].tolist()
            )  # liger's loss trains truncated sequences, whatever is asked for
    run = ratioscope.open_run(tmp_path / "run")
    assert run.gaps == ("mismatch",) and run.policies[:2] == ("rollout", "old")
    assert run.events.filter(event="no_current_logprobs")["note"].to_list() == [FUSED]


RANKS: dict[str, dict[str, Any]] = {
    "with data of their own, sampled again where rewards are equal": {"dynamic_sample": True},
    "with different numbers of samples": {"uneven": True, "steps_per_generation": 1, "log_entropy": False},
    "that split sequences": {"splits": True, "beta": 0.1},
}


@pytest.mark.parametrize("kind", RANKS)
def test_two_ranks_record_what_each_of_them_held_once(tmp_path: Path, kind: str) -> None:
    root("ms_swift")  # a rank that has no checkout cannot skip the test
    held = dict[str, list[Any]]()
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
        run = tmp_path / "on" / "run" if name == "on" else None
        held[name] = two_ranks("upstream.ms_swift_drive", tmp_path / name, run, RANKS[kind])
    recorded = (
        held["on"][:1] if "splits" in RANKS[kind] else held["on"]
    )  # ranks that split sequences hold the same ones
    found = rows(tmp_path / "on" / "run")
    count = 0
    for rank, trace in enumerate(recorded):
        assert trace["attachment"] == (True, None)
        for step, inputs, table in trace["held"]:
            own = [row for row in found if row["step"] == step and row["rank"] == rank]
            given = {**inputs, "grpo_batch": SimpleNamespace(**inputs["grpo_batch"])}
            count += len(given["grpo_batch"].completion_mask)
            for place in range(len(given["grpo_batch"].completion_mask)):
                assert_held(own, given, place, table, RANKS[kind])
    assert count == len(found) == len({(row["rank"], row["sequence_id"]) for row in found})
    for on, off in zip(held["on"], held["off"], strict=True):
        for name in ("losses", "gradients", "table", "metrics"):
            assert differences(on[name], off[name]) == [], name
        assert any(gradient.abs().sum() > 0 for gradient in on["gradients"])


MEGATRON: tuple[dict[str, Any], ...] = (
    {},
    {"beta": 0.1, "loss_type": "dapo"},
    {"rollout_importance_sampling_mode": "token_mask", "rollout_importance_sampling_threshold": 1.0},
    {"off_policy_sequence_mask_delta": 0.0, "overlong_filter": True},
    {"top_entropy_quantile": 0.5},
)


@pytest.mark.parametrize("settings", MEGATRON, ids=str)
def test_what_the_megatron_trainer_holds_is_recorded_and_bit_identical(tmp_path: Path, settings: Any) -> None:
    megatron = pytest.importorskip("upstream.ms_swift_megatron_drive")
    seed()
    recorded = megatron.drive(tmp_path / "run", options={"strict": True}, **settings)
    seed()
    plain = megatron.drive(None, **settings)
    assert recorded["attachment"]
    for name in ("losses", "table"):
        assert differences(recorded[name], plain[name]) == []
    found = rows(tmp_path / "run")
    assert len(found) == len(recorded["held"]) == 8
    for step, data, table in recorded["held"]:
        batch, ids = data["grpo_batch"], data["input_ids"][0]
        own = batch.completion_mask[0]
        (row,) = [row for row in found if row["rollout_logprobs"] == batch.rollout_per_token_logps[0][own].tolist()]
        assert row["step"] == step and row["token_ids"] == ids.roll(-1)[own].tolist()
        assert row["old_logprobs"] == batch.old_per_token_logps[0][own].tolist()
        assert row["advantages"] == batch.advantages[0][own].tolist()
        logs = torch.log_softmax(table[ids], -1)
        current = logs.gather(1, ids.roll(-1)[:, None])[:, 0][own]
        assert row["current_logprobs"] == pytest.approx(current.tolist(), abs=1e-6)
        assert row["trainer_version"] == row["rollout_version_min"] == row["generation_step"] - 1
        assert row["reward"] == float(sum(row["token_ids"]) % 3)
    left = {MASK_REASONS[number] for row in found for number in row.get("mask_reason") or ()} - {"kept"}
    wanted = {"rollout_importance_sampling_mode": "high", "overlong_filter": "length", "top_entropy_quantile": "other"}
    assert all(reason in left for name, reason in wanted.items() if name in settings)


def test_a_loss_of_rays_workers_is_computed_as_ever_and_says_why_nothing_is_recorded(tmp_path: Path) -> None:
    megatron = pytest.importorskip("upstream.ms_swift_megatron_drive")
    given = list[Any]()
    for run in (tmp_path / "run", None):
        seed()
        given.append(megatron.drive(run, options={"strict": True}, of_ray=True))
    for name in ("losses", "table"):
        assert differences(*(trace[name] for trace in given)) == []
    events = [
        line for line in commit_lines(tmp_path / "run") if line["kind"] == "event" and line["event"] != "weight_sync"
    ]
    assert [line["note"] for line in events] == [RAY]
    assert all("rows" not in line for line in commit_lines(tmp_path / "run"))


def test_what_fails_in_a_look_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(recording: Recording, **values: Any) -> None:
        failed.append(recording.adapter)
        raise RuntimeError("cannot look")

    plain, failed = drive(None), list[str]()
    monkeypatch.setattr(Recording, "log", broken)
    seed()
    recorded = driving.drive(tmp_path / "run")
    assert set(failed) == {"ms_swift"}
    assert differences(recorded["losses"], plain["losses"]) == [] and torch.equal(recorded["table"], plain["table"])


def test_a_run_of_ms_swift_opens_with_its_lag(tmp_path: Path) -> None:
    drive(tmp_path / "run", async_generate=True)
    run = ratioscope.open_run(tmp_path / "run")
    lags = run.metrics(by=["step", "lag"]).select("step", "lag").rows()
    assert lags == [(1, "0"), (2, "1"), (3, "1")]
    assert run.policies == ("rollout", "old", "current")
    assert run.info["config"]["loss_type"] == "grpo"
