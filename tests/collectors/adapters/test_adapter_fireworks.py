"""The Fireworks cookbook's adapter, driven by a stand-in of its recipes: what is recorded is what the loss saw."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from standins.fireworks import TABLE, Datum, ModelInput, cookbook, drive, igpo
from support.paths import ROOT
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.collectors.adapters.fireworks import HOOKS, NO_VERSIONS, OLD_IS_CURRENT, OLD_IS_ROLLOUT, OLD_IS_SHORT
from ratioscope.collectors.adapters.fireworks.centering import ANOTHER, NO_GROUPS, NO_OLD
from ratioscope.collectors.adapters.fireworks.facts import FactsByDatum
from ratioscope.collectors.trainers import adapter_named
from ratioscope.collectors.watching.hooks import MARK

TRAINED = ("losses", "gradients", "weights", "rng", "logs", "current")


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Token rows as the recipe trained them: by step, group and datum."""
    found: list[dict[str, Any]] = ratioscope.open_run(run).records().collect().to_dicts()
    return sorted(found, key=lambda row: (row["step"], row["sequence_id"]))


def held(trace: dict[str, Any], name: str) -> list[list[Any]]:
    """The response's part of what the trainer held, in the order of training."""
    found = []
    for lens, rows in zip(trace["lens"], trace[name], strict=True):
        found += [list(row)[max(0, plen - 1) :] for plen, row in zip(lens, rows, strict=True)]
    return found


def close(recorded: list[float], wanted: list[float]) -> bool:
    return len(recorded) == len(wanted) and np.array_equal(
        np.asarray(recorded, np.float32), np.asarray(wanted, np.float32)
    )


def notes(run: Path) -> dict[str, str]:
    return {line["event"]: line["note"] for line in commit_lines(run, "event")}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(repr(one[name]) == repr(other[name]) for name in TRAINED) and bool(
        (one["weights"] == other["weights"]).all()
    )


@pytest.mark.parametrize("recipe", ["sync", "async"])
def test_every_token_has_all_policies_as_the_loss_saw_them(recipe: str, tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", recipe=recipe, kl_beta=0.1)
    rows = rows_of(tmp_path / "run")
    assert len(rows) == sum(map(len, trace["data"])) == 12
    for name, column in (("rollout", "rollout_logprobs"), ("old", "old_logprobs"), ("current", "current_logprobs")):
        assert all(close(row[column], wanted) for row, wanted in zip(rows, held(trace, name), strict=True)), name
    references = held(trace, "reference")
    assert all(close(row["reference_logprobs"], wanted) for row, wanted in zip(rows, references, strict=True))
    raws = held(trace, "raw")
    assert [json.loads(row["extra"])["raw_rollout_logprobs"] for row in rows] == raws
    data = [datum for part in trace["data"] for datum in part]
    lens = [plen for part in trace["lens"] for plen in part]
    for row, datum, plen in zip(rows, data, lens, strict=True):
        assert row["token_ids"] == datum.loss_fn_inputs["target_tokens"].data[plen - 1 :]
        assert row["mask"] == row["loss_mask"] == [m > 0 for m in datum.loss_fn_inputs["weights"].data[plen - 1 :]]
    assert [row["mask"] for row in rows[:2]] == [[True, True, False, True, True], [True, True, True]]


def test_segments_share_their_runs_reward_and_their_groups_name(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert [row["sequence_id"] for row in rows[:6]] == ["1-0-0", "1-0-1", "1-0-2", "1-1-0", "1-1-1", "1-1-2"]
    assert [row["group_id"] for row in rows[:6]] == ["1-0"] * 3 + ["1-1"] * 3
    assert [row["reward"] for row in rows[:3]] == [0.0, 1.0, 1.0]
    assert [row["finish_reason"] for row in rows[:3]] == ["stop", "length", "length"]
    assert [json.loads(row["extra"])["run_id"] for row in rows[:3]] == ["run-0", "run-1", "run-1"]
    advantages = [value for part in trace["advantages"] for value in part]
    assert [row["advantages"] for row in rows] == [[value] for value in advantages]
    assert {row["minibatch"] for row in rows} == {0}


def test_the_synchronous_recipe_samples_with_the_weights_it_trains(tmp_path: Path) -> None:
    drive(tmp_path / "run", steps=3)
    rows = rows_of(tmp_path / "run")
    assert {(row["step"], row["rollout_version_min"], row["trainer_version"]) for row in rows} == {
        (step, step - 1, step - 1) for step in (1, 2, 3)
    }
    synced = [line for line in commit_lines(tmp_path / "run", "event") if line["event"] == "weight_sync"]
    assert [line["step"] for line in synced] == [1, 2, 3, 4]


def test_the_asynchronous_recipe_says_how_old_each_group_is(tmp_path: Path) -> None:
    drive(tmp_path / "run", recipe="async", steps=3)
    rows = rows_of(tmp_path / "run")
    found = sorted({(r["step"], r["group_id"], r["rollout_version_max"], r["trainer_version"]) for r in rows})
    assert found == [
        (1, "1-0", 0, 0),
        (1, "1-1", 0, 0),
        (2, "2-0", 0, 1),
        (2, "2-1", 1, 1),
        (3, "3-0", 1, 2),
        (3, "3-1", 2, 2),
    ]
    lag = ratioscope.open_run(tmp_path / "run").metrics(by=("step", "lag"))
    assert set(lag["lag"].unique()) == {"0", "1"}


def test_a_resumed_run_goes_on_with_its_step(tmp_path: Path) -> None:
    for recipe in ("sync", "async"):
        drive(tmp_path / recipe, recipe=recipe, resume=40)
        rows = rows_of(tmp_path / recipe)
        assert {row["step"] for row in rows} == {41, 42}
        assert {row["trainer_version"] for row in rows} == {40, 41}
        assert notes(tmp_path / recipe)["resume"] == "training goes on after 40 steps"


def test_rollout_in_the_place_of_old_is_not_recorded_as_old(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", anchor="rollout")
    rows = rows_of(tmp_path / "run")
    assert all(row["old_logprobs"] is None for row in rows)
    assert all(close(row["current_logprobs"], wanted) for row, wanted in zip(rows, held(trace, "current"), strict=True))
    assert notes(tmp_path / "run")["old_is_rollout"] == OLD_IS_ROLLOUT
    assert ratioscope.open_run(tmp_path / "run").gaps == ("total",)
    assert ratioscope.open_run(tmp_path / "run").info["config"]["anchor_logp"] == "rollout"


def test_a_loss_that_is_given_no_old_has_per_token_advantages(tmp_path: Path) -> None:
    drive(tmp_path / "run", loss=igpo)
    rows = rows_of(tmp_path / "run")
    assert all(row["old_logprobs"] is None for row in rows)
    assert rows[0]["advantages"] == [-0.5 * 3, -0.5 * 4, -0.5 * 5, -0.5 * 6, -0.5 * 7]
    assert notes(tmp_path / "run")["old_is_current"] == OLD_IS_CURRENT
    assert ratioscope.open_run(tmp_path / "run").info["config"]["loss"] == "igpo"


def test_zeros_that_fill_up_old_are_set_aside(tmp_path: Path) -> None:
    drive(tmp_path / "run", old_tokens=5)
    rows = rows_of(tmp_path / "run")
    assert np.isnan(rows[0]["old_logprobs"]).tolist() == [False, False, False, True, True]
    assert notes(tmp_path / "run")["old_is_short"] == OLD_IS_SHORT


@pytest.mark.parametrize(
    ("plen", "rollout"),
    [(3, [0.0, 0.0, -0.5, -1.5]), (3, [-9.0, -8.0, -0.5, -1.5]), (3, [0.0, 0.0, -0.5, None]), (0, [-0.1, -0.2, -0.3, -0.4])],
    ids=["completion only", "echoed", "null", "no prompt"],
)  # fmt: skip
def test_echoed_and_completion_only_logprobs_lie_at_the_same_tokens(
    plen: int, rollout: list[float | None], tmp_path: Path
) -> None:
    import torch
    from standins.fireworks import Datum, TensorData

    weights = [0, 0, 1, 0 if rollout[3] is None else 1] if plen else [1, 1, 1, 1]
    datum = Datum(ModelInput([1, 2, 3, 4]), {
        "target_tokens": TensorData([2, 3, 4, 5], "int64"), "weights": TensorData(weights, "int64"),
    })  # fmt: skip
    current = torch.tensor([-0.1, -0.2, -0.3, -0.4], requires_grad=True)
    with cookbook() as recipe:
        attachment = ratioscope.attach("fireworks", tmp_path / "run")
        closure = recipe.make_grpo_loss_fn([1.0], [], plen, [rollout], [[-0.1] * 4])
        closure([datum], [current])[0].backward()
        assert attachment.detach()
        closure([datum], [current])  # made while attached, called later
    (row,) = token_rows(tmp_path / "run").to_pylist()
    start = max(0, plen - 1)
    wanted = [float("nan") if value is None else value for value in rollout[start:]]
    np.testing.assert_array_equal(row["rollout_logprobs"], np.asarray(wanted, np.float32))
    assert row["token_ids"] == [2, 3, 4, 5][start:] and row["mask"] == [w > 0 for w in weights[start:]]
    assert (row["group_id"], row["reward"], row["rollout_version_min"]) == (None, None, None)
    assert notes(tmp_path / "run")["no_versions"] == NO_VERSIONS


@pytest.mark.parametrize("recipe", ["sync", "async"])
def test_training_is_the_same_with_and_without(recipe: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"recipe": recipe, "kl_beta": 0.1, "steps": 3}
    assert same(drive(None, **options), drive(tmp_path / "run", **options))


def test_what_fails_in_our_look_stays_with_us(tmp_path: Path) -> None:
    def broken(trainer: Any) -> int:
        raise RuntimeError("no version here")

    trace = drive(tmp_path / "run", attach={"rollout_version": broken})
    assert same(trace, drive(None))
    assert trace["attachment"].collector.counts.failures == {"fireworks adapter": 2}


def test_detach_takes_everything_off(tmp_path: Path) -> None:
    def everywhere(module: ModuleType) -> list[Any]:
        owners = [module, *(sys.modules[path] for path in TABLE)]
        held = [value for owner in owners for value in vars(owner).values()]
        classes = [value for value in held if isinstance(value, type)]
        return [*held, *(value for owner in classes for value in vars(owner).values())]

    with cookbook() as module:
        before = everywhere(module)
        attachment = ratioscope.attach("fireworks", tmp_path / "run")
        marked = [value for value in everywhere(module) if hasattr(value, MARK)]
        assert len({id(value) for value in marked}) == sum(hook.module in sys.modules for hook in HOOKS)
        assert attachment.detach()
        after = everywhere(module)
        assert len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))
    assert not (tmp_path / "run").exists()


def test_a_cookbook_without_the_loss_is_refused_and_trains_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cookbook():
        monkeypatch.delattr(sys.modules["training.utils.rl.grpo"], "make_grpo_loss_fn")
        attachment = ratioscope.attach("fireworks", tmp_path / "run")
        assert attachment.refused is not None
        assert "has no training.utils.rl.grpo.make_grpo_loss_fn" in attachment.refused
        assert attachment.detach() and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("patient")
def test_scalars_join_the_recipes_own_metrics(tmp_path: Path) -> None:
    plain = drive(None)["logs"]
    trace = drive(tmp_path / "run", attach={"scalars": True})
    assert [{name: row[name] for name in own} for row, own in zip(trace["logs"], plain, strict=True)] == plain
    assert any("ratioscope/mismatch/kl_k3" in row for row in trace["logs"])


def test_setting_the_environment_is_enough(tmp_path: Path) -> None:
    script = """
import sys
sys.path.insert(0, "tests")
from ratioscope.collectors.environment import install
install()
from standins.fireworks import drive
drive(None, recipe="async")
"""
    environment = {"RATIOSCOPE_RUN": str(tmp_path / "run"), "PATH": "/usr/bin"}
    root = ROOT
    subprocess.run([sys.executable, "-c", script], cwd=root, env=environment, check=True)
    frame = ratioscope.open_run(tmp_path / "run").records().collect()
    assert len(frame) == 12 and frame.select(pl.col("current_logprobs").is_not_null().all()).item()


def test_the_table_says_what_is_recorded() -> None:
    row = adapter_named("fireworks")
    assert row is not None and row.against == "source" and "{run}" in row.lines and "rollout" in row.records


@pytest.mark.parametrize("recipe", ["sync", "async"])
def test_both_sides_at_the_likeliest_tokens_are_recorded_with_score_centering(recipe: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"recipe": recipe, "top_k": 3, "temperature": 1.0}
    trace = drive(tmp_path / "run", **options)
    rows, run = rows_of(tmp_path / "run"), ratioscope.open_run(tmp_path / "run")
    topk = {row["sequence_id"]: row for step in run.topk_steps for row in run.topk(step).to_pylist()}
    held_by = {name: held(trace, name) for name in ("rollout", "current", "ids", "heads")}
    assert len(rows) == len(topk) == 12 and trace["attachment"].collector.counts.failures == {}
    for index, row in enumerate(rows):
        rollout, current, ids, heads = (held_by[name][index] for name in ("rollout", "current", "ids", "heads"))
        assert close(row["rollout_logprobs"], rollout)
        assert close(row["current_logprobs"], [place[0] for place in current])
        active, one = row["mask"], topk[row["sequence_id"]]
        assert one["topk_counts"] == [3 * kept for kept in active]
        assert one["topk_ids"] == [each for place, kept in zip(ids, active, strict=True) if kept for each in place]
        for name, side in (("rollout", heads), ("current", [place[1:] for place in current])):
            wanted = [value for place, kept in zip(side, active, strict=True) if kept for value in place]
            assert close(one[f"{name}_topk_logprobs"], wanted)
        assert one.get("old_topk_logprobs") is None and row["old_logprobs"] is None
    assert notes(tmp_path / "run")["no_old"] == NO_OLD and run.gaps == ("total",)
    assert run.info["config"] == {
        "loss": "score_centering", "score_centering": {"top_k": 3, "tail_mass_epsilon": 1e-6}
    }  # fmt: skip
    assert same(trace, drive(None, **options))


def test_likeliest_tokens_of_another_temperature_are_not_the_samplers(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", top_k=3)
    assert len(rows_of(tmp_path / "run")) == 12 and not list(ratioscope.open_run(tmp_path / "run").topk_steps)
    assert notes(tmp_path / "run")["another_distribution"] == ANOTHER
    assert same(trace, drive(None, top_k=3))


def test_without_score_centering_there_is_no_top_k(tmp_path: Path) -> None:
    drive(tmp_path / "run", temperature=1.0)
    assert not list(ratioscope.open_run(tmp_path / "run").topk_steps)


def test_score_centering_on_data_of_no_group_is_told_and_not_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = drive(tmp_path / "run", top_k=3, known=False)
    assert notes(tmp_path / "run")["no_groups"] == NO_GROUPS and NO_GROUPS in caplog.text
    assert not token_rows(tmp_path / "run").num_rows
    assert same(trace, drive(None, top_k=3, known=False))


@pytest.mark.parametrize("lists", [{}, {"prompt_lens": [3, 4]}, {"prompt_lens": [3], "inf_logprobs": []}])
def test_a_group_without_lists_of_each_datum_keeps_its_other_facts(lists: dict[str, Any]) -> None:
    given = {"inf_logprobs": [], "prompt_len": 3, "truncated": [True], **lists}
    datum, facts = Datum(ModelInput([1, 2])), FactsByDatum()
    facts.add_groups([SimpleNamespace(data=[datum], rewards=[0.5], **given)], 7)
    found = facts.of(datum)
    assert found is not None and (found.reward, found.finish_reason, found.version) == (0.5, "length", 7)
    assert (found.rollout, found.prompt_len) == (None, 0)


@pytest.mark.parametrize("name", ["topk", "centered", "settings_of"])
def test_what_fails_in_our_look_at_score_centering_stays_with_us(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr(f"ratioscope.collectors.adapters.fireworks.{name}", broken)
    trace = drive(tmp_path / "run", top_k=3)
    assert same(trace, drive(None, top_k=3))
    assert trace["attachment"].collector.counts.failures == {"fireworks adapter": 2}
