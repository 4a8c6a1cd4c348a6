"""NeMo-RL's adapter, driven by a stand-in of its training loops: what driver and workers recorded meets, token by token."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from standins.module_table import importable
from standins.nemo_rl import (
    ROWS,
    TABLE,
    ClippedPGLossFn,
    DTensorPolicyWorkerV2Impl,
    LossConfig,
    Policy,
    drive,
)
from support.paths import ROOT
from support.written_run import commit_lines

import ratioscope
from ratioscope.collectors.adapters.nemo_rl import HOOKS
from ratioscope.collectors.adapters.nemo_rl.driver import settings
from ratioscope.collectors.adapters.nemo_rl.rows import (
    ABSENT_OLD,
    ABSENT_REFERENCE,
    ABSENT_STEP,
    FILTERED,
    VERSIONS,
    sequence_ids,
    shifted,
    sliced,
)
from ratioscope.collectors.adapters.nemo_rl.tags import stamped
from ratioscope.collectors.trainers import adapter_named
from ratioscope.collectors.watching.hooks import MARK
from ratioscope.ingest.analysis.comparability import run_facts
from ratioscope.metrics.known.references import reference_for

MODES = ("sync", "async", "ppo", "tq", "single_controller")
Rows = list[dict[str, Any]]


@pytest.fixture
def loaded() -> Iterator[None]:
    """NeMo-RL's modules, imported."""
    with importable(TABLE):
        for module in TABLE:
            import_module(module)
        yield


def rows_of(run: Path) -> Rows:
    found: Rows = ratioscope.open_run(run).records().collect().to_dicts()
    return found


def facts_of(rows: Rows) -> Rows:
    return [row for row in rows if row["minibatch"] is None]


def notes(run: Path) -> dict[str, str]:
    return {line["event"]: line["note"] for line in commit_lines(run, "event")}


def response(batch: dict[str, torch.Tensor], row: int, name: str) -> list[Any]:
    """From the first sampled token to the last, cut from what the trainer held by numpy."""
    sampled = np.flatnonzero(batch["token_mask"][row])
    found: list[Any] = np.asarray(batch[name][row])[sampled[0] : sampled[-1] + 1].tolist()
    return found


def held(trace: dict[str, Any]) -> dict[tuple[int, ...], tuple[dict[str, torch.Tensor], int]]:
    """Every row that was sent to workers, by its response's tokens."""
    return {
        tuple(response(batch, row, "input_ids")): (batch, row)
        for batch in trace["sent"]
        for row in range(len(batch["input_ids"]))
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Losses, gradients, weights, all that was sent to workers, logs, dumps, random states."""
    sent = [
        a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
        for a, b in zip(one["sent"], other["sent"], strict=True)
    ]
    gradients = [torch.equal(a, b) for a, b in zip(one["gradients"], other["gradients"], strict=True)]
    plain = all(repr(one[name]) == repr(other[name]) for name in ("losses", "logs", "dumps", "rng", "config"))
    return plain and all(sent) and all(gradients) and torch.equal(one["weights"], other["weights"])


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("mode", MODES)
def test_every_token_has_the_log_probs_that_the_trainer_held(mode: str, packed: bool, tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", mode=mode, packed=packed)
    rows, sent = rows_of(tmp_path / "run"), held(trace)
    facts = [row for row in facts_of(rows) if mode != "ppo" or row["step"] == 2]
    assert len(facts) == len(sent) == (ROWS if mode == "ppo" else 2 * ROWS)
    named = {
        "rollout_logprobs": "generation_logprobs", "old_logprobs": "prev_logprobs", "advantages": "advantages",
        "reference_logprobs": "reference_policy_logprobs", "token_ids": "input_ids",
    }  # fmt: skip
    for row in facts:
        batch, index = sent[tuple(row["token_ids"])]
        for column, name in named.items():
            assert row[column] == response(batch, index, name), column
        assert row["mask"] == [bool(x) for x in response(batch, index, "token_mask")]
        assert row["loss_mask"] == [x and bool(batch["sample_mask"][index]) for x in row["mask"]]
    current = [row for row in rows if row["minibatch"] is not None]
    assert len(current) == sum(len(logprobs) for _, logprobs in trace["current"])
    tokens = {row["sequence_id"]: tuple(row["token_ids"]) for row in facts}
    wanted = {
        (tuple(response(part, row, "input_ids")), round(float(logprobs[row].sum()), 5)): response(
            {**part, "current": torch.nn.functional.pad(logprobs, (1, 0))}, row, "current"
        )
        for part, logprobs in trace["current"]
        for row in range(len(logprobs))
    }
    found = {(tokens[row["sequence_id"]], tuple(row["current_logprobs"])) for row in current}
    assert found == {(key[0], tuple(values)) for key, values in wanted.items()}


def test_masks_tell_sampled_tokens_from_those_that_are_trained_on(tmp_path: Path) -> None:
    drive(tmp_path / "run", steps=1)
    facts = facts_of(rows_of(tmp_path / "run"))
    cut = [row for row in facts if row["finish_reason"] == "truncated"]
    assert len(cut) == 1 and not any(cut[0]["loss_mask"]) and any(cut[0]["mask"])
    assert all(row["loss_mask"] == row["mask"] for row in facts if row["finish_reason"] is None)
    assert all(row["mask"][:3] == [True, True, False] for row in facts)  # the tool's token


@pytest.mark.parametrize("mode", MODES)
def test_groups_are_the_trainers_prompts_and_rewards_its_rewards(mode: str, tmp_path: Path) -> None:
    drive(tmp_path / "run", mode=mode)
    facts = [row for row in facts_of(rows_of(tmp_path / "run")) if row["step"] == 2]
    groups: dict[str, list[float]] = {}
    for row in facts:
        groups.setdefault(row["group_id"], []).append(row["reward"])
    assert sorted(groups) == ["2-0", "2-1"]
    assert all(sorted(rewards) == [0.0, 1.0, 2.0] for rewards in groups.values())


def test_versions_are_those_of_the_prompt_groups(tmp_path: Path) -> None:
    lags = {}
    for mode in ("sync", "tq", "async", "single_controller"):
        drive(tmp_path / mode, mode=mode, steps=3)
        facts = facts_of(rows_of(tmp_path / mode))
        assert {(row["step"], row["trainer_version"]) for row in facts} == {(1, 0), (2, 1), (3, 2)}
        lags[mode] = sorted({(row["step"], row["trainer_version"] - row["rollout_version_max"]) for row in facts})
    assert lags["sync"] == lags["tq"] == [(1, 0), (2, 0), (3, 0)]
    assert lags["async"] == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]
    assert lags["single_controller"] == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]
    by_group = {row["group_id"]: row["rollout_version_max"] for row in facts}
    assert set(by_group.values()) == {0, 1, 2}
    synced = [line["step"] for line in commit_lines(tmp_path / "async", "event") if line["event"] == "weight_sync"]
    assert synced == [2, 3, 4]


@pytest.mark.parametrize(("mode", "updates"), [("sync", 2), ("tq", 2), ("ppo", 4)])
def test_updates_of_a_step_join_its_sequences(mode: str, updates: int, tmp_path: Path) -> None:
    drive(tmp_path / "run", mode=mode, gbs=ROWS // 2)
    run = ratioscope.open_run(tmp_path / "run")
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] == 2]
    facts = {row["sequence_id"] for row in facts_of(rows)}
    current = [row for row in rows if row["minibatch"] is not None]
    assert {row["minibatch"] for row in current} == set(range(updates))
    assert {row["sequence_id"] for row in current} == facts and len(current) == updates * ROWS // 2
    assert run.gaps == ("mismatch", "total", "drift") and run.unsettled == []
    (metrics,) = run.metrics(by=("step",)).filter(pl.col("step") == 2).to_dicts()
    sampled = [sum(row["mask"]) for row in facts_of(rows)]
    assert metrics["mismatch/tokens"] == sum(sampled)
    assert metrics["total/tokens"] == metrics["drift/tokens"] == sum(sampled) * updates // 2


@pytest.mark.parametrize("mode", ["sync", "tq"])
def test_zeros_in_the_place_of_old_are_not_recorded(mode: str, tmp_path: Path) -> None:
    drive(tmp_path / "run", mode=mode, force_on_policy=True, reference=False)
    facts = facts_of(rows_of(tmp_path / "run"))
    assert all(row["old_logprobs"] is None and row["reference_logprobs"] is None for row in facts)
    assert notes(tmp_path / "run")["no_old_logprobs"] == ABSENT_OLD
    assert notes(tmp_path / "run")["no_reference_logprobs"] == ABSENT_REFERENCE
    run = ratioscope.open_run(tmp_path / "run")
    assert run.gaps == ("total",)
    assert (run.metrics(by=("step",))["total/kl_k3"] > 0).to_list() == [True, True]


def test_a_step_without_a_dump_is_recorded_alike(tmp_path: Path) -> None:
    for gym in (False, True):
        assert bool(drive(tmp_path / str(gym), gym=gym)["dumps"]) is not gym
    names = ("step", "minibatch", "sequence_id", "rollout_logprobs", "old_logprobs", "current_logprobs", "reward")
    frames = [
        ratioscope.open_run(tmp_path / name).records().select(names).sort("step", "minibatch", "sequence_id").collect()
        for name in ("False", "True")
    ]
    assert frames[0].equals(frames[1]) and len(frames[0]) == 4 * ROWS


def test_a_frozen_policy_is_recorded_from_the_dump(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", mode="ppo")
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] == 1]
    assert len(rows) == ROWS and {row["minibatch"] for row in rows} == {None}
    dump = trace["dumps"]["train_data_step1.jsonl"]
    batch = {
        name: torch.tensor(dump[key]) for name, key in (("token_mask", "token_loss_mask"), ("input_ids", "token_ids"))
    }
    batch |= {name: torch.tensor(dump[name]) for name in ("generation_logprobs", "prev_logprobs")}
    found = {tuple(row["token_ids"]): row for row in rows}
    for index, reward in enumerate(dump["rewards"]):
        row = found[tuple(response(batch, index, "input_ids"))]
        assert row["rollout_logprobs"] == response(batch, index, "generation_logprobs")
        assert row["old_logprobs"] == response(batch, index, "prev_logprobs") and row["reward"] == reward
    assert "no_reference_logprobs" not in notes(tmp_path / "run")


def test_a_resumed_run_goes_on_with_its_step(tmp_path: Path) -> None:
    for mode in MODES:
        drive(tmp_path / mode, mode=mode, resume=7)
        rows = rows_of(tmp_path / mode)
        assert {row["step"] for row in rows} == {8, 9}
        assert {row["trainer_version"] for row in facts_of(rows)} == {7, 8}
        assert notes(tmp_path / mode)["resume"] == "training goes on after 7 steps"


def test_what_is_known_of_the_trainer_is_said(tmp_path: Path) -> None:
    drive(tmp_path / "run", top_p=0.9)
    run = ratioscope.open_run(tmp_path / "run")
    assert run.info["config"]["generation"] == {"temperature": 1.0, "top_p": 0.9}
    assert notes(tmp_path / "run")["filtered_logprobs"] == FILTERED
    assert run.info["trainer"] == "NeMo-RL"
    texts = rows_of(tmp_path / "run")[0]["token_texts"]
    assert texts is None or texts[0].startswith("<")
    assert set(VERSIONS) == {"sync", "async"}


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same_with_and_without(mode: str, packed: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"mode": mode, "packed": packed, "steps": 3}
    assert same(drive(None, **options), drive(tmp_path / "run", **options))


def test_what_fails_in_our_look_stays_with_us(tmp_path: Path) -> None:
    def broken(trainer: Any) -> int:
        raise RuntimeError("no version here")

    trace = drive(tmp_path / "run", attach={"rollout_version": broken})
    assert same(trace, drive(None))
    assert trace["attachment"].collector.counts.failures == {"nemo_rl adapter": 2}


@pytest.mark.usefixtures("loaded")
def test_ranks_that_hold_copies_and_evaluation_write_nothing(tmp_path: Path) -> None:
    attachment = ratioscope.attach("nemo_rl", tmp_path / "run")
    cfg = {"train_global_batch_size": 2, "train_micro_batch_size": 2, "packed": False}
    data = Policy(cfg, {"sent": []}, DTensorPolicyWorkerV2Impl)._longest_first(_batch(2))
    loss_fn = stamped(ClippedPGLossFn(LossConfig()), 1, 0)
    DTensorPolicyWorkerV2Impl(1, cfg, None).train(data, loss_fn=loss_fn)
    worker = DTensorPolicyWorkerV2Impl(0, cfg, None)
    worker.step = lambda: None  # type: ignore[method-assign]
    worker.train(data, loss_fn=loss_fn, eval_mode=True)
    assert not (tmp_path / "run").exists()
    DTensorPolicyWorkerV2Impl(0, cfg, None).train(data, loss_fn=loss_fn)
    assert attachment.detach()
    assert len(rows_of(tmp_path / "run")) == 2


@pytest.mark.usefixtures("loaded")
def test_a_worker_whose_driver_is_not_recorded_says_so(tmp_path: Path) -> None:
    attachment = ratioscope.attach("nemo_rl", tmp_path / "run")
    cfg = {"train_global_batch_size": 2, "train_micro_batch_size": 2, "packed": False}
    DTensorPolicyWorkerV2Impl(0, cfg, None).train(_batch(2), ClippedPGLossFn(LossConfig()))
    assert attachment.detach()
    assert notes(tmp_path / "run")["no_current_logprobs"] == ABSENT_STEP


def _batch(rows: int) -> Any:
    from standins.nemo_rl import BatchedDataDict

    zeros = torch.zeros(rows, 5)
    return BatchedDataDict({
        "input_ids": torch.arange(rows * 5).reshape(rows, 5) % 13, "input_lengths": torch.tensor([5] * rows),
        "generation_logprobs": zeros - 1.0, "prev_logprobs": zeros - 1.1, "advantages": zeros + 1.0,
        "token_mask": torch.tensor([[0, 0, 1, 1, 1]] * rows), "sample_mask": torch.ones(rows),
    })  # fmt: skip


def test_a_row_has_one_name_wherever_it_lies() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50_000, (200, 40), generator=generator)
    rollout = -torch.rand(200, 40, generator=generator)
    lengths = torch.randint(5, 30, (200,), generator=generator)
    data = {"input_ids": ids, "generation_logprobs": rollout, "input_lengths": lengths}
    names = sequence_ids(data)
    assert len(set(names.tolist())) == 200
    order = torch.randperm(200, generator=generator)
    assert torch.equal(sequence_ids({key: value[order] for key, value in data.items()}), names[order])
    width = int(lengths.max())
    cut = {"input_ids": ids[:, :width].clone(), "generation_logprobs": rollout[:, :width], "input_lengths": lengths}
    cut["input_ids"][torch.arange(width) >= lengths[:, None]] = 7  # another padding
    assert torch.equal(sequence_ids(cut), names)
    for key, changed in (("input_ids", ids + 1), ("generation_logprobs", rollout * 1.0000002)):
        assert not (sequence_ids({**data, key: changed}) == names).any()
    swapped = ids.clone()
    swapped[:, [1, 2]] = ids[:, [2, 1]]
    differs = ids[:, 1] != ids[:, 2]
    assert not (sequence_ids({**data, "input_ids": swapped}) == names)[differs].any()


def test_rows_on_a_device_are_moved_as_they_are_sliced_on_the_host() -> None:
    mask = torch.tensor([[0, 0, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]]) != 0
    values = torch.arange(24.0).reshape(4, 6)
    cut, moved = sliced(mask, {"x": values, "mask": mask}), shifted(mask, {"x": values, "mask": mask})
    for row in range(4):
        length = len(cut["x"][row])
        assert moved["mask"][row, :length].tolist() == cut["mask"][row].tolist()
        assert not moved["mask"][row, length:].any()
        assert moved["x"][row, :length].tolist() == cut["x"][row].tolist()


def _is_there(module: str, name: str) -> bool:
    """True if the stand-in has it: workers of other versions have other methods."""
    try:
        attrgetter(name)(sys.modules[module])
    except AttributeError:
        return False
    return name.split(".")[0] in TABLE[module]


@pytest.mark.usefixtures("loaded")
def test_detach_takes_everything_off(tmp_path: Path) -> None:
    def everywhere() -> list[Any]:
        values = [value for path in TABLE for value in vars(sys.modules[path]).values()]
        return [*values, *(v for owner in values if isinstance(owner, type) for v in vars(owner).values())]

    before = everywhere()
    attachment = ratioscope.attach("nemo_rl", tmp_path / "run")
    marked = {id(value) for value in everywhere() if hasattr(getattr(value, "__func__", value), MARK)}
    known = [hook for hook in HOOKS if hook.module in sys.modules]
    present = {(h.module, h.name) for h in known if _is_there(h.module, h.name)}
    assert len(marked) == len(present) == 25
    assert import_module("nemo_rl.algorithms.distillation").refit_policy_generation.__dict__.keys() >= {MARK}
    assert attachment.detach()
    assert all(one is other for one, other in zip(before, everywhere(), strict=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("loaded")
def test_a_version_without_the_loss_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["nemo_rl.algorithms.loss.loss_functions"], "ClippedPGLossFn")
    attachment = ratioscope.attach("nemo_rl", tmp_path / "run")
    assert attachment.refused is not None
    assert "has no nemo_rl.algorithms.loss.loss_functions.ClippedPGLossFn.__call__" in attachment.refused
    assert attachment.detach() and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("patient")
def test_scalars_join_the_metrics_of_a_step(tmp_path: Path) -> None:
    plain = drive(None, steps=3)["logs"]
    trace = drive(tmp_path / "run", steps=3, attach={"scalars": True})
    own = [(s, p, {k: v for k, v in m.items() if not k.startswith("ratioscope/")}) for s, p, m in trace["logs"]]
    names = {name for _, _, metrics in plain for name in metrics}
    assert [(s, p, {k: v for k, v in m.items() if k in names}) for s, p, m in own] == plain
    added = [metrics for _, prefix, metrics in trace["logs"] if "ratioscope/mismatch/kl_k3" in metrics]
    assert added and all(not name.startswith("train/") for metrics in added for name in metrics)


def test_setting_the_environment_is_enough(tmp_path: Path) -> None:
    script = """
import sys
sys.path.insert(0, "tests")
from ratioscope.collectors.environment import install
install()
from standins.nemo_rl import drive
drive(None, mode="async")
"""
    environment = {"RATIOSCOPE_RUN": str(tmp_path / "run"), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)
    run = ratioscope.open_run(tmp_path / "run")
    assert len(rows_of(tmp_path / "run")) == 4 * ROWS and run.gaps == ("mismatch", "total", "drift")


def test_the_table_says_what_is_recorded() -> None:
    row = adapter_named("nemo_rl")
    assert row is not None and row.against == "source" and "{run}" in row.lines and "rollout" in row.records


def test_model_precision_and_replay_are_recorded_where_the_config_has_them() -> None:
    policy = {
        "model_name": "Qwen/Qwen3-30B-A3B", "precision": "bfloat16", "router_replay": {"enabled": True}, "lr": 1e-6,
        "generation": {"top_p": 1.0, "vllm_cfg": {"precision": "bfloat16", "kv_cache_dtype": "auto", "gpu": 0.6}},
    }  # fmt: skip
    found = settings({"policy": policy, "grpo": {"seed": 1}})
    assert found["policy"] == {name: policy[name] for name in ("model_name", "precision", "router_replay")}
    assert found["generation"]["vllm_cfg"] == {"precision": "bfloat16", "kv_cache_dtype": "auto"}
    reference = reference_for(run_facts({"trainer": "NeMo-RL", "config": found}))
    assert reference is not None and reference.name == "moe bf16 replay"
