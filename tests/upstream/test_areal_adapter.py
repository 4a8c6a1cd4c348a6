"""The AReaL adapter on areal 1.0.4 itself: its trainer's loop, its FSDP engine and its actor, on one CPU."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.written_run import commit_lines, token_rows

from ratioscope import open_run
from ratioscope.collectors import attach as attaching
from ratioscope.collectors.adapters import areal as adapter
from ratioscope.collectors.adapters.areal.recorder import OLD_IS_INTERPOLATED, OLD_IS_ROLLOUT, VERSIONS
from ratioscope.collectors.trainers import adapter_named
from ratioscope.collectors.watching.hooks import MARK, Hook
from ratioscope.errors import ConfigError

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="AReaL runs on torch")
actor = pytest.importorskip("areal.trainer.ppo.actor", reason="the areal package is not importable here")
driving = pytest.importorskip("upstream.areal_drive", reason="the areal package is not importable here")
checks: Any = importlib.import_module("upstream.areal_checks")

RATIO = {"level": "token", "action": "mask", "metric": "ratio", "upper": 1.2, "lower": 0.8}
MODES: dict[str, dict[str, Any]] = {
    "recompute": {},
    "metrics": {"prox_logp_method": "metrics"},
    "loglinear": {"prox_logp_method": "loglinear"},
    "recomputed, not decoupled": {"use_decoupled_loss": False, "recompute_logprob": True},
    "bypass": {"use_decoupled_loss": False, "recompute_logprob": False},
    "rejection": {"rejection_sampling": RATIO},
    "rejection of sequences": {"rejection_sampling": {**RATIO, "level": "sequence", "upper": 1.02, "lower": 0.5}},
    "clamp": {"rejection_sampling": {**RATIO, "action": "clamp"}},
    "m2po": {"m2_threshold": 0.02},
    "m2po and rejection": {"m2_threshold": 0.05, "rejection_sampling": RATIO},
    "trees": {"enable_tree_training": True, "pad_to_maximum": True, "mb_spec": 128},
    "one minibatch": {"ppo_n_minibatches": 1},
    "reference": {"reference": True, "kl_ctl": 0.1},
}
OLD_IS_ABSENT = {"loglinear": OLD_IS_INTERPOLATED, "bypass": OLD_IS_ROLLOUT}


@dataclass
class Driven:
    """A training and what was recorded of it."""

    mode: str
    run: Path
    trace: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = token_rows(self.run).to_pylist()
        return rows


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Any:
    known: dict[str, Driven] = {}

    def of(mode: str) -> Driven:
        if mode not in known:
            folder = tmp_path_factory.mktemp("areal")
            known[mode] = Driven(mode, folder / "run", driving.drive(folder / "run", folder=folder, **settings(mode)))
        return known[mode]

    return of


def settings(mode: str) -> dict[str, Any]:
    given = dict(MODES[mode])
    if isinstance(given.get("mb_spec"), int):
        given["mb_spec"] = driving.cli_args.MicroBatchSpec(max_tokens_per_mb=given["mb_spec"])
    if "rejection_sampling" in given:
        given["rejection_sampling"] = actor.RejectionSamplingConfig(**given["rejection_sampling"])
    return given


@pytest.mark.parametrize("mode", MODES)
def test_every_row_holds_what_the_loss_held_token_by_token(driven: Any, mode: str) -> None:
    found, rows = checks.expected(driven(mode).trace), driven(mode).rows
    assert len(rows) == len(found) == 10
    for row in rows:
        wanted = found[row["step"], tuple(row["token_ids"])]
        absent = {"old_logprobs"} if mode in OLD_IS_ABSENT else set()
        elsewhere = {"rollout_logprobs"} if mode == "recomputed, not decoupled" else set()
        for name, values in wanted.columns.items():
            if name in absent:
                assert row[name] is None
            elif name not in elsewhere:
                assert row[name] == values, name
        assert row["minibatch"] == wanted.minibatch
        assert row["trainer_version"] == row["step"] == wanted.step


@pytest.mark.parametrize("mode", MODES)
def test_rollout_log_probs_groups_and_rewards_are_those_of_the_sampled_answer(driven: Any, mode: str) -> None:
    batches = driven(mode).trace["watched"].batches
    for row in driven(mode).rows:
        group, answer, which = checks.sampled_answer(batches[row["step"]], row["token_ids"])
        first = driving.PROMPT
        assert row["rollout_logprobs"] == answer["logprobs"][first:].tolist()
        assert row["rollout_versions"] == answer["versions"][first:].tolist()
        assert row["mask"] == answer["loss_mask"][first:].bool().tolist()
        assert row["group_id"] == f"{row['step']}-0-{group}"
        assert row["sequence_id"] == f"{row['step']}-0-{2 * group + which}"
        assert row["reward"] == float(answer["rewards"])


def test_lag_is_counted_per_token_without_the_trainers_shift(driven: Any) -> None:
    rows = [row for row in driven("recompute").rows if row["step"] == 1]
    lags = [[row["trainer_version"] - version for version in row["rollout_versions"]] for row in rows]
    assert all(set(lag[-3:]) == {0} and set(lag[:-3]) <= {1, 2} for lag in lags)
    assert {row["rollout_version_min"] for row in rows} == {0} and {row["rollout_version_max"] for row in rows} == {1}


def test_turns_are_told_by_the_tool_tokens_between_them(driven: Any) -> None:
    row = max(driven("recompute").rows, key=lambda row: len(row["mask"]))
    assert [any(row["mask"]), all(row["mask"])] == [True, False]
    assert row["turn"] == [0] * 7 + [1] * 9


def test_what_was_filtered_is_what_the_trainer_filtered(driven: Any) -> None:
    for mode in ("rejection", "rejection of sequences", "m2po", "m2po and rejection"):
        kept = sum(sum(row["loss_mask"]) for row in driven(mode).rows)
        assert 0 < kept < sum(sum(row["mask"]) for row in driven(mode).rows), mode
    assert all(row["loss_mask"] == row["mask"] for mode in ("recompute", "clamp") for row in driven(mode).rows)


@pytest.mark.parametrize("mode", OLD_IS_ABSENT)
def test_where_old_is_no_policy_of_its_own_total_is_on_record_and_it_is_said_why(driven: Any, mode: str) -> None:
    run = open_run(driven(mode).run)
    said = [line for line in commit_lines(driven(mode).run) if line.get("note") == OLD_IS_ABSENT[mode]]
    assert len(said) == 1
    frame = run.records().collect()
    assert frame["old_logprobs"].null_count() == len(frame) == 10
    assert frame["rollout_logprobs"].null_count() == frame["current_logprobs"].null_count() == 0


def test_new_weights_are_events_and_the_run_says_where_versions_come_from(driven: Any) -> None:
    syncs = [line for line in commit_lines(driven("recompute").run) if line.get("event") == "weight_sync"]
    assert [line["step"] for line in syncs] == [1, 2]
    run = open_run(driven("recompute").run)
    assert run.info["trainer"] == "areal 1.0.4"
    assert run.info["config"]["actor"]["prox_logp_method"] == "recompute"
    assert any(VERSIONS in str(line) for line in commit_lines(driven("recompute").run))


@pytest.mark.parametrize("mode", ("recompute", "recomputed, not decoupled", "bypass", "m2po and rejection", "trees"))
def test_training_is_bit_identical_with_the_collector(driven: Any, mode: str, tmp_path: Path) -> None:
    on, off = driven(mode).trace, driving.drive(None, folder=tmp_path, **settings(mode))
    for name in ("losses", "gradients", "parameters", "rng", "batch"):
        assert checks.same(on[name], off[name]), name
    assert [checks.untimed(log) for log in on["logs"]] == [checks.untimed(log) for log in off["logs"]]
    assert {**vars(on["config"]), "path": ""} == {**vars(off["config"]), "path": ""}
    assert on["attachment"].collector.counts.failures == {}


def test_detach_restores_every_name_in_every_module(tmp_path: Path) -> None:
    before = names_of_areal()
    trace = driving.drive(tmp_path / "run", folder=tmp_path, steps=1)
    after = names_of_areal()
    assert before.keys() <= after.keys()
    assert not {name for name, value in before.items() if after[name] is not value}
    assert not any(MARK in getattr(value, "__dict__", ()) for value in after.values() if inspect.isfunction(value))
    assert trace["attachment"].detach()


def names_of_areal() -> dict[tuple[str, str], Any]:
    """All functions that areal's modules and its classes have by name."""
    names: dict[tuple[str, str], Any] = {}
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "areal"]:
        for name, value in list(vars(module).items()):
            names[module.__name__, name] = value
            if isinstance(value, type) and value.__module__ == module.__name__:
                names |= {(f"{module.__name__}.{name}", inner): held for inner, held in vars(value).items()}
    return {name: value for name, value in names.items() if callable(value)}


@pytest.mark.parametrize("by", ("object", "actor", "engine"))
def test_attach_takes_the_trainer_its_actor_and_its_engine(tmp_path: Path, by: str) -> None:
    driving.drive(tmp_path / "run", folder=tmp_path, steps=1, by=by)
    assert len(token_rows(tmp_path / "run")) == 5


def test_a_trainer_whose_workers_are_other_processes_is_refused(tmp_path: Path) -> None:
    trainer_class = driving.rl_trainer.PPOTrainer
    trainer = trainer_class.__new__(trainer_class)
    trainer.scheduler = object()
    attachment = attaching.attach(trainer, tmp_path / "run")
    assert attachment.refused == adapter.ELSEWHERE
    assert not (tmp_path / "run").exists()
    assert not hasattr(actor.grpo_loss_fn, MARK)


def test_a_version_without_what_is_needed_is_refused_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "HOOKS", (*adapter.HOOKS, Hook(adapter.ACTOR, "PPOActor.renamed", before="divided")))
    trace = driving.drive(tmp_path / "run", folder=tmp_path, steps=1)
    assert "AReaL 1.0.4 has no areal.trainer.ppo.actor.PPOActor.renamed" in trace["attachment"].refused
    assert len(trace["losses"]) == 4 and len(token_rows(tmp_path / "run")) == 0


def test_what_fails_in_our_looks_stays_there(driven: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(engine: Any) -> int:
        raise RuntimeError("no version here")

    with caplog.at_level(logging.WARNING, "ratioscope"):
        trace = driving.drive(tmp_path / "run", folder=tmp_path, attach={"rollout_version": broken})
    assert checks.same(trace["losses"], driven("recompute").trace["losses"])
    assert trace["attachment"].collector.counts.failures == {"areal adapter": 8}
    assert sum("no version here" in record.getMessage() for record in caplog.records) == 1


def test_the_users_word_on_the_engines_version_counts(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", folder=tmp_path, steps=1, attach={"rollout_version": lambda engine: 7})
    assert set(token_rows(tmp_path / "run")["rollout_version_max"].to_pylist()) == {7}


def test_a_recovered_training_is_a_resume(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", folder=tmp_path, resume=3, steps=6)
    resumes = [line for line in commit_lines(tmp_path / "run") if line.get("event") == "resume"]
    assert [line["step"] for line in resumes] == [4]
    assert set(token_rows(tmp_path / "run")["step"].to_pylist()) == {4, 5}
    assert open_run(tmp_path / "run").info["config"]["areal"]["total_train_steps"] == 6


def test_scalars_come_with_the_trainers_own_and_leave_those_alone(driven: Any, tmp_path: Path, patient: None) -> None:
    trace = driving.drive(tmp_path / "run", folder=tmp_path, attach={"scalars": True}, steps=2)
    added = [{name for name in log if name.startswith("ratioscope/")} for log in trace["logs"]]
    assert any("ratioscope/mismatch/kl_k3" in names for names in added)
    for log, plain in zip(trace["logs"], driven("recompute").trace["logs"], strict=True):
        assert checks.untimed(plain).items() <= log.items()
    assert checks.same(trace["losses"], driven("recompute").trace["losses"])


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's group has a rank before this one, which holds the same."""
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda group: [5, 0])


def test_a_rank_that_holds_a_copy_writes_nothing(tmp_path: Path, second_rank: None) -> None:
    driving.drive(tmp_path / "run", folder=tmp_path, steps=1, use_decoupled_loss=False, recompute_logprob=True)
    assert not (tmp_path / "run").exists()


class PlainEngine:
    """An engine that divides minibatches no further and packs nothing; the smallest that PPOActor takes."""

    def __init__(self) -> None:
        self.version, self.weight = 0, torch.zeros((), requires_grad=True)

    def get_version(self) -> int:
        return self.version

    def train(self) -> None:
        pass

    def train_batch(self, batch: dict[str, Any], loss_fn: Any, loss_weight_fn: Any) -> dict[str, float]:
        current = batch["logprobs"] + 0.01 + self.weight
        loss = loss_fn(current, torch.ones_like(current), batch)
        loss.backward()
        return {"loss": float(loss)}


def test_an_engine_that_packs_nothing_and_a_loop_of_ones_own_are_recorded(tmp_path: Path) -> None:
    config = actor.PPOActorConfig(experiment_name="e", trial_name="t", path="", use_decoupled_loss=True)
    config.ppo_n_minibatches, config.kl_ctl = 2, 0.0
    engine = PlainEngine()
    ppo = actor.PPOActor(config, engine)
    generator = torch.Generator().manual_seed(3)
    attachment = attaching.attach(ppo, tmp_path / "run", strict=True)
    try:
        for step in range(2):
            engine.version = step
            for _ in range(2):  # two calls in one step: minibatches, sequences and groups go on counting
                batch = [driving._group(generator, step, (9, 14)), driving._group(generator, step, (8, 8))]
                for group in batch:
                    group["logprobs"] = -torch.rand(group["input_ids"].shape, generator=generator)
                    group["prox_logp"] = torch.roll(group["logprobs"], -1, -1) + 0.1
                ppo.ppo_update(ppo.compute_advantages(batch))
    finally:
        assert attachment.detach(30)
    rows = token_rows(tmp_path / "run").to_pylist()
    for step in range(2):
        of_step = [row for row in rows if row["step"] == step]
        assert sorted(row["sequence_id"] for row in of_step) == [f"{step}-0-{index}" for index in range(8)]
        assert {row["group_id"] for row in of_step} == {f"{step}-0-{index}" for index in range(4)}
        assert {row["minibatch"] for row in of_step} == {0, 1, 2, 3}
    for row in rows:
        assert np.allclose(np.subtract(row["current_logprobs"], row["rollout_logprobs"]), 0.01, atol=1e-6)
        assert np.allclose(np.subtract(row["old_logprobs"], row["rollout_logprobs"]), 0.1, atol=1e-6)
    syncs = [line for line in commit_lines(tmp_path / "run") if line.get("event") == "weight_sync"]
    assert [line["step"] for line in syncs] == [1]


RANK = """
import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from upstream import areal_drive
rank, ranks, folder, backend = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
trace = areal_drive.drive(folder / "run", folder=folder, steps=1, rank=rank, ranks=ranks, backend=backend)
assert len(trace["losses"]) == 4, len(trace["losses"])
"""
COPIES = {"fsdp:d1t2": "tensor parallel", "fsdp:d1c2": "context parallel"}


def ran_in_ranks(folder: Path, backend: str) -> Path:
    """The run of two processes of AReaL with this allocation."""
    environment = {**os.environ, "RATIOSCOPE_LAUNCH": backend, "PYTHONPATH": python_path()}
    command = [sys.executable, "-c", RANK]
    logs = [folder / f"log-{rank}" for rank in range(2)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), "2", str(folder), backend],
            env=environment,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        for rank, log in enumerate(logs)
    ]
    try:
        codes = [process.wait(180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "".join(log.read_text()[-2000:] for log in logs)
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("backend", COPIES, ids=COPIES.values())
def test_of_ranks_that_hold_the_same_one_writes_and_it_writes_whole_sequences(
    tmp_path: Path, backend: str, driven: Any
) -> None:
    run = ran_in_ranks(tmp_path, backend)
    assert {line["rank"] for line in commit_lines(run, "open")} == {0}
    rows, alone = token_rows(run).to_pylist(), [row for row in driven("recompute").rows if row["step"] == 0]
    assert len(rows) == len(alone) == 5
    assert {tuple(row["token_ids"]) for row in rows} == {tuple(row["token_ids"]) for row in alone}
    assert all(len(row["current_logprobs"]) == len(row["token_ids"]) for row in rows)


@pytest.mark.slow
def test_data_parallel_ranks_write_what_they_hold_under_names_of_their_own(tmp_path: Path) -> None:
    run = ran_in_ranks(tmp_path, "fsdp:d2")
    rows = token_rows(run).to_pylist()
    assert {(row["rank"], row["sequence_id"].split("-")[1], row["group_id"].split("-")[1]) for row in rows} == {
        (0, "0", "0"),
        (1, "1", "1"),
    }
    assert len({row["sequence_id"] for row in rows}) == len(rows) == 10
    assert {row["attempt"] for row in rows} == {0}
    assert [line["step"] for line in commit_lines(run) if line.get("event") == "weight_sync"] == [1]


ENVIRONMENT = """
import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from ratioscope.collectors.environment import install
install()
from upstream import areal_drive
folder = Path(sys.argv[1])
trace = areal_drive.drive(folder / "unused", folder=folder, steps=1, by="environment")
assert not (folder / "unused").exists() and len(trace["losses"]) == 4
"""


def test_one_environment_variable_is_enough(tmp_path: Path, driven: Any) -> None:
    run = tmp_path / "run"
    environment = {**os.environ, "RATIOSCOPE_RUN": str(run), "PYTHONPATH": python_path()}
    environment.pop("RATIOSCOPE_LAUNCH", None)
    done = subprocess.run([sys.executable, "-c", ENVIRONMENT, str(tmp_path)], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    by_environment = token_rows(run).drop_columns(["attempt"])
    by_name = [row for row in driven("recompute").rows if row["step"] == 0]
    assert rows_by_id(by_environment) == {row["sequence_id"]: without_attempt(row) for row in by_name}


def python_path() -> str:
    """Where another process finds what this one does."""
    return os.pathsep.join((str(Path(__file__).parents[1]), *(path for path in sys.path if path)))


def rows_by_id(table: pa.Table) -> dict[str, Any]:
    return {row["sequence_id"]: row for row in table.to_pylist()}


def without_attempt(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "attempt"}


def test_the_table_says_what_this_was_run_with() -> None:
    row = adapter_named("areal")
    assert row is not None and row.version in row.tested
    assert row.against == "package"


def test_a_second_collector_is_refused_while_one_is_attached(tmp_path: Path) -> None:
    attachment = attaching.attach("areal", tmp_path / "run")
    try:
        with pytest.raises(ConfigError, match="attached to AReaL already"):
            attaching.attach("areal", tmp_path / "again")
    finally:
        attachment.detach()


@pytest.mark.parametrize("hook", adapter.HOOKS, ids=lambda hook: f"{hook.module}.{hook.name}")
def test_every_name_that_is_watched_is_there(hook: Hook) -> None:
    """Of engines that cannot be imported here (no megatron, no triton) the source is read."""
    module: ModuleType | None
    try:
        module = importlib.import_module(hook.module)
    except ImportError:
        module = None
    if module is not None:
        owner: Any = module
        for part in hook.name.split("."):
            owner = getattr(owner, part)
        return
    areal = Path(str(actor.__file__)).parents[2]
    source = areal.parent.joinpath(*hook.module.split(".")).with_suffix(".py").read_text()
    owner_name, _, name = hook.name.rpartition(".")
    assert f"class {owner_name}(" in source and f"    def {name}(" in source
