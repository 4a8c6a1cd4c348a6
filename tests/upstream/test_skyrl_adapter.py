"""SkyRL 0.4.0's own trainers recorded: what they held against what was written, and that they train the same.

Needs torch and the files of skyrl 0.4, with what `make test-upstream` installs beside them. Skipped otherwise.
"""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ratioscope
from ratioscope.collectors.adapters import skyrl
from ratioscope.collectors.watching.hooks import MARK, resolve
from ratioscope.metrics.dialects import skyrl as dialect

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

driving = pytest.importorskip("upstream.skyrl_drive", reason="torch and typing_extensions are not importable here")
STRICT = {"strict": True}


def one_step_ahead(module: Any, name: str) -> Any:
    """A trainer of the user's own, as SkyRL's examples have one: it samples and filters the next batch before it trains."""

    class Ahead(getattr(module, name)):  # type: ignore[misc]
        async def train(self) -> None:
            self.init_weight_sync_state()
            await self.dispatch.save_weights_for_sampler()
            self.global_step = 1
            waiting: Any = None
            for prompts in self.train_dataloader:
                size = self.cfg.generator.n_samples_per_prompt
                asked, uids = module.prepare_generator_input(prompts, size, {}, "none", "train", self.global_step)
                output, uids = self.postprocess_generator_output(await self.generate(asked), uids)
                if waiting is not None:
                    self._learn(self.convert_to_training_input(*waiting))
                    await self.dispatch.save_weights_for_sampler()
                    self.global_step += 1
                waiting = (output, uids)
            self._learn(self.convert_to_training_input(*waiting))

        def _learn(self, batch: Any) -> None:
            batch = self.compute_advantages_and_returns(self.fwd_logprobs_values_reward(batch))
            del batch["rewards"], batch.metadata["uids"]
            self.dump_data(batch, file_name=f"global_step_{self.global_step}_training_input")
            self.train_critic_and_policy(batch)

    return Ahead


VARIANTS: Mapping[str, dict[str, Any]] = {
    "sync": {},
    "packed": {"trainer__max_tokens_per_microbatch": 20},
    "dynamic sampling": {"trainer__algorithm__dynamic_sampling__type": "filter", "prompts": 16},
    "whole batch": {"trainer__recompute_old_logprobs_per_minibatch": False, "generator__apply_overlong_filtering": False},
    "async": {"is_async": True},
    "async with old": {
        "is_async": True, "trainer__algorithm__off_policy_correction__outlier_token_is_threshold_high": 1e9,
    },
    "one step ahead": {"kind": one_step_ahead, "prompts": 16},
    "async, full batches": {"is_async": True, "trainer__fully_async__sample_full_batch": True, "prompts": 12},
}  # fmt: skip


def rows_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ratioscope.open_run(run).records().collect().to_dicts()
    return rows


def events(run: Path, kind: str) -> list[tuple[int, str]]:
    found = ratioscope.open_run(run).events.to_dicts()
    return [(event["step"], event["note"]) for event in found if event["event"] == kind]


def right(row: Any, length: int) -> list[float]:
    """The last tokens of a row, with SkyRL's sentinel as what it stands for."""
    values: list[float] = row[len(row) - length :].tolist()
    return [math.nan if value == -9999.0 else value for value in values]


def held(trace: Mapping[str, Any]) -> dict[tuple[int, int, int], dict[str, Any]]:
    """What SkyRL dumped, and its workers returned, by step, minibatch and place in it."""
    given = {}
    for asked, output in trace["sampled"]:
        for row, trajectory in enumerate(asked["trajectory_ids"][: len(output["response_ids"])]):
            key = (trajectory.instance_id, tuple(output["response_ids"][row]))
            given[key] = {name: output[name][row] for name in ("loss_masks", "rewards", "stop_reasons")}
    outputs, found = iter(trace["outputs"]), {}
    for step, batch in trace["batch"].items():
        boundaries = batch["metadata"]["policy_mini_batch_boundaries"]
        prompts = batch["metadata"]["policy_prompt_boundaries"]
        epochs = len(trace["outputs"]) // 2 // len(boundaries) // len(trace["batch"])
        for minibatch in range(len(boundaries) * epochs):
            current = [each["logprobs"] for _ in range(2) for each in next(outputs)[1]]
            start, end = boundaries[minibatch % len(boundaries)]
            for place, row in enumerate(range(start, end)):
                length = int(batch["response_mask"][row].sum())
                prompt = next(i for i, (first, last) in enumerate(prompts) if first <= row < last)
                ids = [int(token) for token in right(batch["sequences"][row], length)]
                found[step, minibatch, place] = {
                    "prompt": prompt,
                    "token_ids": ids,
                    "rollout_logprobs": right(batch["rollout_logprobs"][row], length),
                    "old_logprobs": None
                    if batch["action_log_probs"] is None
                    else right(batch["action_log_probs"][row], length),
                    "reference_logprobs": right(batch["base_action_log_probs"][row], length),
                    "current_logprobs": current[place],
                    "loss_mask": [value > 0 for value in right(batch["loss_mask"][row], length)],
                    "advantages": right(batch["advantages"][row], length),
                    "given": given,
                }
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_written_is_what_the_trainer_held(variant: str, tmp_path: Path) -> None:
    trace = driving.drive(tmp_path / "run", attach=STRICT, **VARIANTS[variant])
    wanted = held(trace)
    rows = rows_of(tmp_path / "run")
    assert len(rows) == len(wanted) > 8
    place, last = 0, (-1, -1)
    groups: dict[tuple[int, int], set[str]] = {}
    for row in rows:
        place = place + 1 if last == (row["step"], row["minibatch"]) else 0
        last = (row["step"], row["minibatch"])
        expected = dict(wanted[*last, place])
        sampled = expected.pop("given")[row["group_id"], tuple(expected["token_ids"])]
        groups.setdefault((row["step"], expected.pop("prompt")), set()).add(row["group_id"])
        for name, values in expected.items():
            np.testing.assert_array_equal(row[name], values, name) if values is not None else None
            assert (row[name] is None) == (values is None), name
        assert row["mask"] == [bool(each) for each in sampled["loss_masks"]]
        assert (row["reward"], row["finish_reason"]) == (sampled["rewards"], sampled["stop_reasons"])
        assert row["prompt_text"] == f"user: prompt {row['group_id']}"
        assert row["trainer_version"] == row["step"] - 1
    lags = {row["trainer_version"] - row["rollout_version_max"] for row in rows if row["step"] > 1}
    assert lags == ({1} if variant == "one step ahead" else lags if "async" in variant else {0})
    assert all(len(names) == 1 for names in groups.values())
    assert any(row["mask"] != row["loss_mask"] for row in rows)  # something was filtered
    assert any(False in row["mask"] for row in rows) and any(math.isnan(row["rollout_logprobs"][0]) for row in rows)


def test_a_sequence_has_one_id_in_all_updates_of_its_step(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", attach=STRICT)
    rows = rows_of(tmp_path / "run")
    visits: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        visits.setdefault((row["step"], row["sequence_id"]), []).append(row)
    for (step, sequence_id), seen in visits.items():
        assert [each["minibatch"] % 2 for each in seen] == [seen[0]["minibatch"]] * 2 and len(seen) == 2
        assert seen[0]["token_ids"] == seen[1]["token_ids"]
        assert sequence_id.startswith(f"{step}-{seen[0]['group_id']}-")
    assert any(seen[0]["current_logprobs"] != seen[1]["current_logprobs"] for seen in visits.values())
    for told in ratioscope.open_run(tmp_path / "run").metrics(by=("step",)).to_dicts():
        counted = {
            gap: told[f"{gap}/sequences"] + told[f"{gap}/sequences_set_aside"] for gap in ("mismatch", "total", "drift")
        }
        assert counted == {"mismatch": 8, "total": 16, "drift": 16}  # of two epochs


def test_the_sync_trainer_samples_with_the_weights_it_trains(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", attach=STRICT)
    assert {(r["step"], r["rollout_version_min"], r["generation_step"]) for r in rows_of(tmp_path / "run")} == {
        (1, 0, 1), (2, 1, 2),
    }  # fmt: skip
    assert [step for step, _ in events(tmp_path / "run", "weight_sync")] == [1, 2, 3]


def test_the_async_trainers_staleness_is_the_lag(tmp_path: Path) -> None:
    trace = driving.drive(tmp_path / "run", attach=STRICT, is_async=True)
    told = {
        step: scalars["async/staleness_mean"] for step, scalars in trace["logs"] if "async/staleness_mean" in scalars
    }
    lags = {r["step"]: r["trainer_version"] - r["rollout_version_max"] for r in rows_of(tmp_path / "run")}
    assert lags == told == {1: 0, 2: 1, 3: 2, 4: 2}


def test_a_group_scheduled_after_the_sync_is_fresh_although_its_step_is_not_over(tmp_path: Path) -> None:
    """Two prompts wait for the first sync; the two after them are scheduled in new weights, while generation resumes."""
    versions: dict[str, tuple[int, int]] = {}

    async def slow(engine: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        uid, begun, call = request["trajectory_ids"][0].instance_id, engine.version, len(versions)
        versions[uid] = (begun, begun)
        output: dict[str, Any] = driving.single_turn(engine, request)
        while call in (0, 3) and engine.version < 1:
            await asyncio.sleep(0)
        versions[uid] = (begun, engine.version)
        return output

    trace = driving.drive(
        tmp_path / "run", attach=STRICT, is_async=True, generate=slow, trainer__fully_async__max_staleness_steps=4
    )
    rows = rows_of(tmp_path / "run")
    for row in rows:
        newest = json.loads(row["extra"] or "{}").get("rollout_version_newest", row["rollout_version_min"])
        assert (row["rollout_version_min"], newest) == versions[row["group_id"]]
    assert (0, 1) in versions.values()
    told = {step: scalars["async/staleness_max"] for step, scalars in trace["logs"] if "async/staleness_max" in scalars}
    lags = {row["step"]: row["trainer_version"] - row["rollout_version_min"] for row in rows}
    assert told[3] == 2 and lags[3] == 1


@pytest.mark.parametrize("variant", ["sync", "packed", "dynamic sampling", "one step ahead", "async", "async with old"])
def test_training_is_the_same_to_the_bit(variant: str, tmp_path: Path) -> None:
    watched = driving.drive(tmp_path / "run", **VARIANTS[variant])
    alone = driving.drive(None, **VARIANTS[variant])
    assert watched["losses"] == alone["losses"] and any(loss != 0 for loss in alone["losses"])
    assert all(torch.equal(a, b) for a, b in zip(watched["gradients"], alone["gradients"], strict=True))
    assert torch.equal(watched["weights"], alone["weights"])
    assert watched["rng"][0] == alone["rng"][0] and torch.equal(watched["rng"][2], alone["rng"][2])
    np.testing.assert_array_equal(watched["rng"][1][1], alone["rng"][1][1])
    assert watched["staged"] == alone["staged"] and watched["outputs"] == alone["outputs"]
    assert watched["logs"] == alone["logs"] and watched["config"] == alone["config"]
    assert watched["batch"].keys() == alone["batch"].keys()
    for step, batch in alone["batch"].items():
        assert watched["batch"][step].keys() == batch.keys() and watched["batch"][step]["metadata"] == batch["metadata"]
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(watched["batch"][step][name], value), name


def test_the_setting_that_brings_old_back_changes_no_loss(tmp_path: Path) -> None:
    without = driving.drive(tmp_path / "without", attach=STRICT, is_async=True)
    with_old = driving.drive(tmp_path / "with", attach=STRICT, **VARIANTS["async with old"])
    ((step, note),) = events(tmp_path / "without", "no_old_logprobs")
    assert step == 1 and "policy_loss_type=rollout_is" in note and "outlier_token_is_threshold_high=1e9" in note
    assert not events(tmp_path / "with", "no_old_logprobs")
    assert without["losses"] == with_old["losses"]
    assert all(row["old_logprobs"] is None and row["current_logprobs"] for row in rows_of(tmp_path / "without"))
    assert all(row["old_logprobs"] for row in rows_of(tmp_path / "with"))


def test_without_rollout_logprobs_it_says_which_setting_records_them(tmp_path: Path) -> None:
    def silent(engine: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        return {**driving.single_turn(engine, request), "rollout_logprobs": None}

    driving.drive(tmp_path / "run", attach=STRICT, generate=silent)
    assert all(row["rollout_logprobs"] is None and row["old_logprobs"] for row in rows_of(tmp_path / "run"))
    ((_, note),) = events(tmp_path / "run", "no_rollout_logprobs")
    assert "generator.sampling_params.logprobs=1" in note


def stepwise(engine: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Trajectories of one to three turns, each a row of its own."""
    turns = [(row, turn) for row in range(len(request["prompts"])) for turn in range(1 + row % 3)]
    output = driving.single_turn(engine, request)
    found = {name: [values[row] for row, _ in turns] for name, values in output.items() if isinstance(values, list)}
    found["rewards"] = [
        [0.0] * (len(ids) - 1) + [float(turn)] for ids, (_, turn) in zip(found["response_ids"], turns, strict=True)
    ]
    found["trajectory_ids"] = [request["trajectory_ids"][row] for row, _ in turns]
    found["is_last_step"] = [turn == row % 3 for row, turn in turns]
    return found | {"rollout_metrics": {}}


def test_padding_rows_of_batch_and_mini_batches_are_left_out(tmp_path: Path) -> None:
    trace = driving.drive(
        tmp_path / "run",
        attach=STRICT,
        generate=stepwise,
        generator__step_wise_trajectories=True,
        trainer__algorithm__zero_variance_filter=False,
    )
    batch = trace["batch"][1]
    boundaries = batch["metadata"]["policy_mini_batch_boundaries"]
    assert batch["metadata"]["pad_size"] == 1 and any((end - start) % 2 for start, end in boundaries)
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] == 1 and row["minibatch"] < len(boundaries)]
    assert len(rows) == len(batch["sequences"]) - 1 == boundaries[-1][1]
    (_, output), *_ = trace["sampled"]
    for row, ids, trajectory, is_last in zip(
        rows, output["response_ids"], output["trajectory_ids"], output["is_last_step"], strict=True
    ):
        assert row["token_ids"] == ids and len(row["current_logprobs"]) == len(ids)
        assert f'"trajectory": "{trajectory.to_string()}"' in row["extra"]
        assert f'"is_last_step": {str(is_last).lower()}' in row["extra"]
    assert len({row["sequence_id"] for row in rows}) == len(rows)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("multi_turn", [True, False])
def test_what_counts_as_sampled_is_what_the_engine_sampled(multi_turn: bool, is_async: bool, tmp_path: Path) -> None:
    """In the records of SkyRL's own generator, which appends ends, adds observations and filters."""
    trace = driving.drive(
        tmp_path / "run",
        attach=STRICT,
        generate=None,
        is_async=is_async,
        generator__use_conversation_multi_turn=multi_turn,
        generator__max_turns=2,
    )
    rows = [row for row in rows_of(tmp_path / "run") if row["minibatch"] < 2]
    seen = {row["sequence_id"]: 0 for row in rows}
    for row in rows:
        sample = int(row["sequence_id"].rpartition("-")[2])
        turns = trace["sampled"][f"{row['group_id']}_{sample}", row["rollout_version_min"]]
        keeps_ends = multi_turn
        given = [
            (token, np.float32(logprob))
            for ids, logprobs in turns
            for place, (token, logprob) in enumerate(zip(ids, logprobs, strict=True))
            if keeps_ends or not (place == len(ids) - 1 and token == driving.END)
        ]
        recorded = zip(row["token_ids"], row["rollout_logprobs"], row["mask"], strict=True)
        assert [(token, np.float32(logprob)) for token, logprob, is_sampled in recorded if is_sampled] == given
        seen[row["sequence_id"]] = len(turns)
    assert {1, 2} == set(seen.values())
    appended = [row for row in rows if row["token_ids"][-1] == driving.END and not row["mask"][-1]]
    assert bool(appended) == bool(events(tmp_path / "run", "appended_eos")) == (not multi_turn)
    assert any(row["loss_mask"][-1] for row in appended) == (not multi_turn)
    assert any(any(row["mask"]) and not any(row["loss_mask"]) for row in rows)  # overlong, filtered


def test_ends_of_another_generator_that_look_appended_are_only_told_of(tmp_path: Path) -> None:
    def with_ends(engine: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        output: dict[str, Any] = driving.single_turn(engine, request)
        for ids, logprobs in zip(output["response_ids"], output["rollout_logprobs"], strict=True):
            logprobs[-1] = 0.0 if ids[-1] == driving.END else logprobs[-1]
        return output

    driving.drive(tmp_path / "run", attach=STRICT, generate=with_ends, generator__use_conversation_multi_turn=False)
    ((_, note),) = events(tmp_path / "run", "zero_logprob_eos")
    assert "it is not known whether the generator appended it" in note
    ended = [row for row in rows_of(tmp_path / "run") if row["token_ids"][-1] == driving.END and len(row["mask"]) > 2]
    assert ended and all(row["mask"][-1] for row in ended)


def test_a_resumed_run_says_so_and_keeps_its_step_numbers(tmp_path: Path) -> None:
    def prepare(folder: Path, cfg: Any) -> None:
        checkpoint = folder / "checkpoints" / "global_step_3"
        checkpoint.mkdir(parents=True)
        torch.save({"global_step": 3}, checkpoint / "trainer_state.pt")
        cfg.trainer.resume_mode, cfg.trainer.resume_path = "from_path", str(checkpoint)

    driving.drive(tmp_path / "run", attach=STRICT, prepare=prepare, trainer__epochs=2)
    assert events(tmp_path / "run", "resume") == [(4, "training goes on after 3 steps")]
    rows = rows_of(tmp_path / "run")
    assert {(row["step"], row["trainer_version"], row["rollout_version_max"]) for row in rows} >= {(4, 3, 3)}
    assert all(row["trainer_version"] == row["rollout_version_max"] for row in rows)


@pytest.mark.parametrize("is_async", [False, True])
def test_live_scalars_join_the_trainers_own_and_change_none(is_async: bool, tmp_path: Path, patient: None) -> None:
    plain = driving.drive(None, is_async=is_async, prompts=16)
    told = driving.drive(tmp_path / "run", attach={"scalars": True}, is_async=is_async, prompts=16)
    ours = [name for _, scalars in told["logs"] for name in scalars if name.startswith("ratioscope/")]
    assert any("kl_k3" in name for name in ours)
    theirs = [
        (step, {k: v for k, v in scalars.items() if k in own})
        for (step, scalars), (_, own) in zip(told["logs"], plain["logs"], strict=True)
    ]
    assert theirs == plain["logs"]


def test_the_recorded_configuration_is_one_the_dialect_reads(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", attach=STRICT, is_async=True)
    info = ratioscope.open_run(tmp_path / "run").info
    assert info["trainer"] == "skyrl 0.4.0"
    settings = dialect.parse(info["config"])
    assert settings.policy_loss_type == "rollout_is"
    assert info["config"]["trainer_class"].endswith("FullyAsyncRayPPOTrainer")


def test_detach_leaves_every_name_as_it_was(tmp_path: Path) -> None:
    driving.load()
    before = {hook.name: vars(resolve(hook)[0]).get(resolve(hook)[1]) for hook in skyrl.HOOKS}
    importer = sys.modules[driving.GENERATOR]
    filtering = vars(importer)["apply_overlong_filtering"]
    attachment = ratioscope.attach("skyrl", tmp_path / "run")
    assert hasattr(vars(importer)["apply_overlong_filtering"], MARK)
    assert all(hasattr(vars(resolve(hook)[0])[resolve(hook)[1]], MARK) for hook in skyrl.HOOKS)
    assert attachment.detach()
    assert {hook.name: vars(resolve(hook)[0]).get(resolve(hook)[1]) for hook in skyrl.HOOKS} == before
    assert vars(importer)["apply_overlong_filtering"] is filtering
    assert not (tmp_path / "run").exists()  # nothing happened, so nothing was made


@pytest.mark.parametrize("name", [hook.name for hook in skyrl.HOOKS if hook.needed])
def test_a_skyrl_without_what_is_needed_is_refused_and_trains(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving.load()
    hook = next(hook for hook in skyrl.HOOKS if hook.name == name)
    owner, last = resolve(hook)
    monkeypatch.setattr(owner, f"renamed_{last}", vars(owner)[last], raising=False)
    monkeypatch.delattr(owner, last)
    attachment = ratioscope.attach("skyrl", tmp_path / "run")
    assert attachment.refused is not None and name in attachment.refused and "skyrl==0.4.0" in attachment.refused
    monkeypatch.undo()
    assert driving.drive(None)["losses"] and not (tmp_path / "run").exists()


@pytest.mark.parametrize("fault", ["Facts", "Rows", "described"])
def test_a_failing_look_is_counted_and_does_not_reach_the_trainer(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    alone = driving.drive(None)
    monkeypatch.setattr(sys.modules[f"{skyrl.__name__}.recorder"], fault, broken)
    attachment = ratioscope.attach("skyrl", tmp_path / "run")
    watched = driving.drive(None)
    assert attachment.collector.counts.failures["skyrl adapter"] > 0 and attachment.detach()
    assert watched["losses"] == alone["losses"] and watched["logs"] == alone["logs"]
    rows = rows_of(tmp_path / "run") if fault != "Rows" else []
    assert all(row["rollout_logprobs"] and row["current_logprobs"] for row in rows)


def test_a_process_that_finds_the_environment_records_without_a_line_of_code(tmp_path: Path) -> None:
    program = (
        "from ratioscope.collectors.environment import install\n"
        "install()\n"
        "from upstream.skyrl_drive import drive\n"
        "drive(None, is_async=True)\n"
    )
    root = Path(__file__).parents[2]
    paths = [str(root / "tests"), str(root), *sys.path]
    environment = {**os.environ, "RATIOSCOPE_RUN": str(tmp_path / "run"), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, cwd=tmp_path, capture_output=True)
    rows = rows_of(tmp_path / "run")
    assert len(rows) == 16 and all(row["rollout_logprobs"] and row["current_logprobs"] for row in rows)


def test_what_another_client_of_the_workers_trains_is_not_recorded(tmp_path: Path) -> None:
    """The Tinker server drives the same dispatch without a trainer, and Ray's workers import the same modules."""
    driving.load()
    trace: dict[str, Any] = {}
    with driving.no_ray(trace):
        trainer = driving.trainer_of(driving.config(tmp_path / "export"), trace)
        attachment = ratioscope.attach("skyrl", tmp_path / "run")
        asyncio.run(trainer.dispatch.save_weights_for_sampler())
        batch = make_batch()
        (chunks,) = trainer.dispatch.stage_data("policy", batch, [(0, 2)])
        assert trainer.dispatch.forward_backward_from_staged("policy", chunks).loss_fn_outputs
    assert attachment.detach() and not (tmp_path / "run").exists()


def make_batch() -> Any:
    module: Any = sys.modules["skyrl.backends.skyrl_train.training_batch"]
    names = ("attention_mask", "response_mask", "loss_mask", "advantages", "action_log_probs", "base_action_log_probs")
    batch = module.TrainingInputBatch(
        {"sequences": torch.full((2, 5), 3), **{name: torch.ones(2, 5) for name in names}}
    )
    batch.metadata = {"response_length": 4}
    for name in names[1:]:
        batch[name] = batch[name][:, :4]
    return batch


EACH = ratioscope.SelfNoise(every=1, sequences=2)
OLD = {
    "per mini-batch": {},
    "packed": VARIANTS["packed"],
    "whole batch": VARIANTS["whole batch"],
    "async": VARIANTS["async with old"],
}


def drawing(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Has the model draw from every source in each forward, as dropout does. fails: and raise in a second forward."""
    own = driving.Bigram.forward

    def forward(self: Any, sequences: Any, *given: Any, **named: Any) -> Any:
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002
        if fails and len(sequences) == 1:  # SkyRL's own micro-batches here have two
            raise torch.OutOfMemoryError("out of memory")
        found = own(self, sequences, *given, **named)
        return (found[0] * (1 + drawn / 100), found[1]) if isinstance(found, tuple) else found * (1 + drawn / 100)

    monkeypatch.setattr(driving.Bigram, "forward", forward)


def assert_trained_alike(watched: dict[str, Any], alone: dict[str, Any]) -> None:
    assert watched["losses"] == alone["losses"] and watched["outputs"] == alone["outputs"]
    assert all(torch.equal(a, b) for a, b in zip(watched["gradients"], alone["gradients"], strict=True))
    assert torch.equal(watched["weights"], alone["weights"]) and watched["logs"] == alone["logs"]
    assert watched["rng"][0] == alone["rng"][0] and torch.equal(watched["rng"][2], alone["rng"][2])
    np.testing.assert_array_equal(watched["rng"][1][1], alone["rng"][1][1])


@pytest.mark.parametrize("variant", OLD)
def test_a_second_forward_is_recorded_and_leaves_training_bit_identical(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing(monkeypatch)
    watched = driving.drive(tmp_path / "run", attach={**STRICT, "self_noise": EACH}, **OLD[variant])
    assert_trained_alike(watched, driving.drive(None, **OLD[variant]))
    run = ratioscope.open_run(tmp_path / "run")
    found = run.metrics((), gap="old:trainer_again")
    assert set(run.readings["trainer_again"].steps) == set(run.steps)
    assert found["old:trainer_again/sequences"].item() == 2 * 2 * len(run.steps)  # on two ranks
    assert 1e-4 < found["old:trainer_again/max_abs_log_ratio"].item() < 0.5


def test_the_second_forward_of_the_same_weights_is_old(tmp_path: Path) -> None:
    """The table rounds alike in every shape, so that another row, place or weight would show."""
    driving.drive(tmp_path / "run", attach={**STRICT, "self_noise": EACH})
    found = ratioscope.open_run(tmp_path / "run").metrics((), gap="old:trainer_again")
    assert found["old:trainer_again/tokens"].item() > 20 and found["old:trainer_again/max_abs_log_ratio"].item() == 0


def test_a_second_forward_that_fails_changes_nothing_and_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing(monkeypatch, fails=True)
    watched = driving.drive(tmp_path / "run", attach={"self_noise": EACH})
    assert_trained_alike(watched, driving.drive(None))
    ((step, note),) = events(tmp_path / "run", "self_noise")
    assert step == 1 and "failed once with OutOfMemoryError" in note
    assert not ratioscope.open_run(tmp_path / "run").readings


@pytest.mark.parametrize(
    ("variant", "wanted"),
    [
        (VARIANTS["async"], "computes no old log-probs"),
        ({"trainer__micro_forward_batch_size_per_gpu": 1}, "hold one sequence"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_read_again_are_told(variant: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", attach={**STRICT, "self_noise": EACH}, **variant)
    ((_, note),) = events(tmp_path / "run", "self_noise")
    assert wanted in note and not ratioscope.open_run(tmp_path / "run").readings
