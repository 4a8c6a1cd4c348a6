"""The adapter for MOLT, on MOLT's own trainer of the policy actor; see molt_drive.py.

Needs an importable molt (molt-rl 0.2.1) and ray. Skipped otherwise; `pytest -m upstream` runs nothing else.
"""

import math
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.drawn_supports import drawn

import ratioscope
from ratioscope.collectors.adapters.molt import MoltRecorder, is_a_copy
from ratioscope.collectors.watching.hooks import MARK, Call
from ratioscope.ingest.analysis.support import support_of
from ratioscope.ingest.analysis.support_numbers import support_numbers
from ratioscope.metrics.analysis.score_centering import CENTERINGS, Centering, bias_left
from ratioscope.metrics.analysis.support_bins import bins_of

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="MOLT runs on torch")
driving = pytest.importorskip("upstream.molt_drive", reason="the package is not importable here")
SAMPLES, MICRO_BATCH, PER_UPDATE, drive = driving.SAMPLES, driving.MICRO_BATCH, driving.PER_UPDATE, driving.drive
CENTERED: dict[str, Any] = {"top_k": 4, "epochs": 1, "strict": True}


def rows_of(run_dir: Path) -> pl.DataFrame:
    files = sorted(run_dir.glob("tokens/*/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]).sort("step", "minibatch", "sequence_id")


def span(values: Any, mask: list[bool]) -> Any:
    """A row from its first action to its last; written apart from the adapter."""
    places = [place for place, is_action in enumerate(mask) if is_action]
    return values[places[0] : places[-1] + 1]


def given_rows(trace: dict[str, Any], mask_of: str = "action_mask") -> list[dict[str, Any]]:
    """What the loss was given of each sample, in order of its calls."""
    return [
        {"call": call, **{name: span(values[row], seen[mask_of][row]) for name, values in seen.items()}}
        for call, seen in enumerate(trace["seen"])
        for row in range(len(seen[mask_of]))
    ]


def test_all_policies_are_what_the_loss_was_given_token_by_token(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", strict=True)
    wanted = sorted(given_rows(trace), key=lambda row: (row["call"], row["old_log_probs"]))
    found = rows_of(tmp_path / "run").to_dicts()
    calls = SAMPLES // MICRO_BATCH * 2  # of a step, which has two epochs
    assert len(found) == len(wanted) == 2 * 2 * SAMPLES
    for row in wanted:
        step, update = 1 + row["call"] // calls, row["call"] % calls // PER_UPDATE
        (own,) = [
            one for one in found
            if (one["step"], one["minibatch"]) == (step, update) and one["old_logprobs"] == row["old_log_probs"]
        ]  # fmt: skip
        assert own["mask"] == row["action_mask"] and own["trainer_version"] == step - 1
        for name, theirs in (("rollout", "rollout_log_probs"), ("current", "log_probs")):
            assert own[f"{name}_logprobs"] == pytest.approx(row[theirs], abs=1e-6)
        assert own["advantages"] == pytest.approx(row["advantages"]) and own["rollout_version_min"] is None
        assert len(own["entropy"]) == len(own["mask"])
    batch = {tuple(span(item["sequences"][1:], item["action_mask"])): item for item in trace["batch"][0]}
    for own in (row for row in found if row["step"] == 1):
        item = batch[tuple(own["token_ids"])]
        assert (own["group_id"], own["prompt_text"]) == (item["group"], item["prompt"])
        assert own["reward"] == pytest.approx(item["reward"])


def test_both_sides_at_the_likeliest_tokens_are_what_score_centering_was_given(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", **CENTERED)
    run = ratioscope.open_run(tmp_path / "run")
    for step in run.steps:
        found = support_of(run, step, "total")
        calls = [row for row in given_rows(trace) if row["call"] // (SAMPLES // MICRO_BATCH) == step - 1]
        wanted = {
            (round(rollout, 5), round(train, 5))
            for row in calls
            for token, is_action in enumerate(row["action_mask"]) if is_action
            for rollout, train in zip(row["rollout_top_log_probs"][token], row["top_log_probs"][token], strict=True)
        }  # fmt: skip
        used = found.mask
        own = {
            (round(q, 5), round(p, 5)) for q, p in zip(found.rollout[used].flat, found.train[used].flat, strict=True)
        }
        assert own == wanted and (found.ids[~used] == -1).all()


def test_the_masses_outside_are_those_that_molt_logs(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", **CENTERED)
    found = support_numbers(ratioscope.open_run(tmp_path / "run"), "total")
    assert found is not None and len(found.by_step) == 2
    for status, outside in zip(
        trace["logs"], found.course.select("total/outside_rollout", "total/outside_trainer").rows(), strict=True
    ):
        theirs = [1 - status[name] for name in ("sc_sampler_head_mass", "sc_policy_head_mass")]
        assert outside == pytest.approx(theirs, rel=1e-4)


def test_the_distances_that_molt_logs_are_ours(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", epochs=1, strict=True)
    metrics = ratioscope.open_run(tmp_path / "run").metrics()
    names = {
        "vllm_kl": "mismatch/kl_direct",
        "mismatch/k3_kl": "total/kl_k3",
        "mismatch/abs_diff_mean": "total/abs_log_ratio",
    }
    for theirs, own in names.items():
        assert metrics[own].to_list() == pytest.approx([status[theirs] for status in trace["logs"]], rel=1e-4), theirs


@pytest.mark.parametrize("centering", [each for each in CENTERINGS if each.is_centered], ids=lambda each: each.name)
def test_what_molt_subtracts_is_what_our_correction_subtracts(centering: Centering) -> None:
    """MOLT's own function. The gradient of its term is the coefficient of each head token; we sum it times the score."""
    tokens = drawn(np.random.default_rng(5), n=50, k=4, gap=0.5)
    mode = {"one": "none", "clamp": "clip", "zero": "mask"}[centering.outside]
    low, high = (None, None) if mode == "none" else (centering.low, centering.high)
    head = torch.tensor(tokens.train, requires_grad=True)
    with driving.on_the_cpu():
        function = import_module("molt.models.score_centering").score_centering_correction
        function(head, torch.tensor(tokens.rollout), mode=mode, low=low, high=high).sum().backward()
    bins = bins_of(tokens)
    bare = Centering(
        centering.name, is_centered=False, outside=centering.outside, low=centering.low, high=centering.high
    )
    x, rest = tokens.train - tokens.rollout, np.log(bins.p[:, -1] / bins.q[:, -1])
    center = (np.exp(tokens.train) * x).sum(1) + bins.p[:, -1] * rest
    theirs = tokens.advantage * (head.grad.numpy() * (x - center[:, None])).sum(1)
    assert bias_left(bare, bins) - bias_left(centering, bins) == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_old_that_is_the_current_forward_is_said_and_has_both_sides_too(tmp_path: Path) -> None:
    drive(tmp_path / "run", on_policy=True, **CENTERED)
    run = ratioscope.open_run(tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert (rows["old_logprobs"] == rows["current_logprobs"]).all()
    assert run.events["event"].to_list().count("old_is_current") == 1
    of_each = [support_numbers(run, gap) for gap in ("mismatch", "total")]
    assert of_each[0] is not None and of_each[1] is not None and of_each[0].whole == of_each[1].whole


def test_what_a_run_lacks_is_said_once(tmp_path: Path) -> None:
    drive(tmp_path / "run", correction="off", strict=True)
    events = ratioscope.open_run(tmp_path / "run").events["event"].to_list()
    assert events.count("no_rollout_logprobs") == events.count("no_rollout_versions") == 1
    assert rows_of(tmp_path / "run")["rollout_logprobs"].null_count() == 4 * SAMPLES
    assert not list((tmp_path / "run").glob("topk*"))


@pytest.mark.parametrize("how", [{}, {"correction": "off"}, {"top_k": 4, "epochs": 1}], ids=str)
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path, how: dict[str, Any]) -> None:
    assert repr(drive(tmp_path / "run", **how)) == repr(drive(None, **how))


def test_a_rank_with_a_copy_of_the_tokens_writes_nothing_and_frozen_steps_count(tmp_path: Path) -> None:
    drive(tmp_path / "copy", cp_rank=1, strict=True)
    assert not (tmp_path / "copy").exists()
    drive(tmp_path / "run", frozen=5, steps=1, strict=True)
    assert set(rows_of(tmp_path / "run")["step"]) == {6}
    assert not is_a_copy(SimpleNamespace(cp_size=1, tp_size=1))


def test_steps_go_on_after_a_checkpoint() -> None:
    recorder = MoltRecorder(SimpleNamespace(has_collector=False))  # type: ignore[arg-type]
    recorder.checkpoint_loaded(Call(None, {}, (None, {"global_step": 7})))
    args = SimpleNamespace(actor=SimpleNamespace(), algo=SimpleNamespace(advantage=SimpleNamespace(estimator="grpo")))
    trainer = SimpleNamespace(args=args, strategy=SimpleNamespace(), replay_buffer=SimpleNamespace(items=[]))
    for number in (8, 9):
        recorder.step_begins(Call(trainer, {}))
        assert recorder._number == number
    assert math.isfinite(recorder._resumed)


def test_detach_restores_every_name() -> None:
    with driving.on_the_cpu() as module:
        names = [(module.PolicyTrainer, "policy_train"), (module.PolicyTrainer, "training_step")]
        names += [(module.PolicyLoss, "forward"), (module.Actor, "forward")]
        before = [getattr(owner, name) for owner, name in names]
        attached = ratioscope.attach("molt", "/nonexistent/run")
        assert all(hasattr(getattr(owner, name), MARK) for owner, name in names)
        attached.detach()
        assert [getattr(owner, name) for owner, name in names] == before
