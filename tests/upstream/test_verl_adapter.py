"""verl's own trainers with a collector attached: what is recorded is what they held, and they compute the same as without."""

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.collectors.adapters import verl as adapter
from ratioscope.collectors.adapters.verl import driver as verl_driver
from ratioscope.collectors.adapters.verl import rows as verl_rows
from ratioscope.collectors.adapters.verl import second_forward
from ratioscope.collectors.adapters.verl import worker as verl_worker
from ratioscope.collectors.watching.hooks import MARK, is_watched

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="verl runs on torch")
driving = pytest.importorskip("upstream.verl_drive", reason="verl is not importable here")

REJECTING = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.95_1.05", "rollout_is": "token"}
MODES: Mapping[str, Mapping[str, Any]] = {
    "sync": {"trainer": "sync", "epochs": 2, "mini_batch_size": 1, "correction": REJECTING},
    "sync on two workers": {"trainer": "sync", "workers": 2, "copies": 2},
    "sync, micro-batches by tokens": {"trainer": "sync", "epochs": 2, "most_tokens": 40},
    "colocate_async": {"trainer": "colocate_async", "correction": REJECTING},
    "separate_async": {"trainer": "separate_async", "epochs": 2},
    "v0": {"trainer": "v0", "epochs": 2, "mini_batch_size": 1, "correction": REJECTING},
    "fully_async": {"trainer": "fully_async", "correction": REJECTING},
    "sync bypass": {"trainer": "sync", "bypass": True, "epochs": 2},
    "sync bypass loss": {"trainer": "sync", "bypass": True, "bypass_loss": True, "correction": REJECTING},
    "separate_async bypass": {"trainer": "separate_async", "bypass": True},
    "v0 bypass": {"trainer": "v0", "bypass": True},
    "fully_async bypass": {"trainer": "fully_async", "bypass": True},
}
HELD = {
    "rollout_logprobs": "rollout_log_probs", "old_logprobs": "old_log_probs", "token_ids": "responses",
    "loss_mask": "response_mask", "advantages": "advantages",
}  # fmt: skip
"""Column -> what verl calls it."""


class Driven:
    """One recorded training and what verl held of it."""

    def __init__(self, mode: str, run: Path) -> None:
        self.mode, self.run = mode, run
        self.trace = driving.drive(run, **MODES[mode])
        self.held: dict[Any, dict[str, Any]] = {key: row for each in self.trace["held"] for key, row in each.items()}
        self.rows = {
            (row["step"], row["minibatch"], row["sequence_id"]): row for row in token_rows(run).to_pylist()
        }  # fmt: skip

    @property
    def bypasses(self) -> bool:
        return "bypass" in self.mode


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Driven]:
    known: dict[str, Driven] = {}

    def of(mode: str) -> Driven:
        if mode not in known:
            known[mode] = Driven(mode, tmp_path_factory.mktemp("verl") / "run")
        return known[mode]

    return of


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_the_sequences_that_verl_held_and_nothing_else(driven: Any, mode: str) -> None:
    found = driven(mode)
    assert found.rows.keys() == found.held.keys()
    assert len(found.rows) == len(token_rows(found.run))  # no key twice, whatever ranks hold copies
    assert not any(name.startswith("pad") for _, _, name in found.rows)


@pytest.mark.parametrize("mode", MODES)
def test_all_columns_are_verls_values_token_by_token(driven: Any, mode: str) -> None:
    found = driven(mode)
    for key, row in found.rows.items():
        truth = found.held[key]
        if key[1] is not None:
            assert row["current_logprobs"] == truth["current_logprobs"] and row["entropy"] == truth["entropy"]
            assert row["rollout_logprobs"] is row["old_logprobs"] is row["mask"] is None
            continue
        assert row["current_logprobs"] is None
        for column, name in HELD.items():
            if column == "old_logprobs" and found.bypasses:
                assert row[column] is None
            else:
                assert row[column] == pytest.approx(truth[name], abs=0), column
        assert row["reward"] == sum(truth["rm_scores"])
        assert row["group_id"] == truth["uid"]
        assert row["token_texts"] == [f"w{token}" for token in truth["responses"]]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("separate_async", "sync on two workers")])
def test_the_mask_is_that_before_rejection(driven: Any, mode: str) -> None:
    found = driven(mode)
    rows = [(key, row) for key, row in found.rows.items() if key[1] is None]
    for _, row in rows:
        sampled = [index != 2 or len(row["mask"]) <= 4 for index in range(len(row["mask"]))]  # the tool's token
        assert row["mask"] == sampled
        assert all(was or not left for was, left in zip(row["mask"], row["loss_mask"], strict=True))
    rejects = "correction" in MODES[mode] and not found.bypasses
    assert (any(row["mask"] != row["loss_mask"] for _, row in rows)) is rejects


@pytest.mark.parametrize("mode", MODES)
def test_versions_are_the_engines_and_lag_0_is_fresh(driven: Any, mode: str) -> None:
    for (step, minibatch, name), row in driven(mode).rows.items():
        assert row["trainer_version"] == step - 1
        if minibatch is None:
            oldest, newest = driven(mode).held[step, None, name]["versions"]
            assert (row["rollout_version_min"], row["rollout_version_max"]) == (oldest, newest)
            assert (
                newest == step - 1
            )  # the drive samples with the weights just synced, the second sample in part before


@pytest.mark.parametrize("mode", MODES)
def test_gaps_are_read_back_with_every_update_counted(driven: Any, mode: str) -> None:
    found = driven(mode)
    run = ratioscope.open_run(found.run)
    metrics = run.metrics()
    for step in run.steps:
        row = metrics.filter(metrics["step"] == step).to_dicts()[0]
        sampled = {name: r["mask"] for (s, k, name), r in found.rows.items() if s == step and k is None}
        visits = [name for s, k, name in found.rows if s == step and k is not None]
        assert row["total/tokens"] == sum(sum(sampled[name]) for name in visits)
        differences = [
            later - earlier
            for (s, k, name), r in found.rows.items()
            if s == step and k is not None
            for later, earlier, was in zip(
                r["current_logprobs"], found.rows[s, None, name]["rollout_logprobs"], sampled[name], strict=True
            )
            if was
        ]
        assert row["total/kl_direct"] == pytest.approx(-sum(differences) / len(differences), rel=1e-9)
        if found.bypasses:
            assert row.get("mismatch/tokens") in (None, 0.0)
        else:
            assert row["mismatch/tokens"] == sum(map(sum, sampled.values()))
            assert row["drift/tokens"] == row["total/tokens"]


def test_minibatches_count_over_epochs_and_over_the_batches_of_a_step(driven: Any) -> None:
    def updates(mode: str) -> set[int]:
        return {k for _, k, _ in driven(mode).rows if k is not None}

    assert updates("sync") == set(range(2 * driving.PROMPTS))
    assert updates("separate_async") == set(range(2 * 3))  # three batches between two weight syncs
    assert updates("fully_async") == {0, 1}


def test_rejection_inside_the_bypass_loss_is_seen_in_the_workers(driven: Any) -> None:
    helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
    found = driven("sync bypass loss")
    updated = {key: row for key, row in found.rows.items() if key[1] is not None}
    for (step, _, name), row in updated.items():
        facts = found.rows[step, None, name]
        given = [torch.tensor([row["current_logprobs"]]), torch.tensor([facts["rollout_logprobs"]])]
        mask = torch.tensor([facts["mask"]]).long()
        left = helper.compute_rollout_correction_and_rejection_mask(*given, mask, **REJECTING)[1]
        assert row["loss_mask"] == left[0].bool().tolist()
    assert any(row["loss_mask"] != found.rows[key[0], None, key[2]]["mask"] for key, row in updated.items())


@pytest.mark.parametrize("mode", MODES)
def test_training_is_bit_identical_with_and_without(driven: Any, mode: str) -> None:
    with_it, without = driven(mode).trace, driving.drive(None, **MODES[mode])
    assert_same(comparable(with_it), comparable(without))
    assert not any(verl_rows.ROW in keys for keys in names_in(with_it["batches"]))


def comparable(trace: dict[str, Any]) -> dict[str, Any]:
    """Without V0's uids, which are drawn from the operating system, and what is made of them."""
    batches = [
        {**batch, "beside": {n: v for n, v in batch["beside"].items() if n != "uid"}} if "beside" in batch else batch
        for batch in trace["batches"]
    ]
    return {**{name: value for name, value in trace.items() if name != "held"}, "batches": without_pads(batches)}


def without_pads(batches: list[dict[str, Any]]) -> list[Any]:
    """Padding rows have random names."""
    return [
        {**batch, "rows": [{n: v for n, v in row.items() if n != "uid"} for row in batch["rows"].values()]}
        if "rows" in batch
        else batch
        for batch in batches
    ]


def names_in(batches: list[dict[str, Any]]) -> list[set[str]]:
    rows = [set(row) for batch in batches for row in batch.get("rows", {}).values()]
    return rows + [set(batch["batch"]) | set(batch["beside"]) for batch in batches if "batch" in batch]


def assert_same(one: Any, other: Any) -> None:
    """Equal to the last bit, whatever it is made of; NaN equals NaN."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7)) and one.dtype == other.dtype
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif hasattr(one, "tolist"):
        assert_same(one.tolist(), other.tolist())
    else:
        assert one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def test_nothing_of_ours_is_left_behind(driven: Any) -> None:
    driven("sync")
    driven("v0")
    assert not any(is_watched(hook) for hook in adapter.HOOKS)
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == "verl"]
    assert not [name for module in loaded for name, value in list(vars(module).items()) if hasattr(value, MARK)]


def test_only_what_a_mode_lacks_is_read_from_the_queue(tmp_path: Path) -> None:
    def reads(bypass: bool, run: Path | None) -> list[list[str]]:
        training = driving.Training("sync", bypass=bypass)
        attachment = None if run is None else ratioscope.attach("verl", run)
        training.run()
        if attachment is not None:
            attachment.detach()
        found: list[list[str]] = training.queue.reads
        return found

    for bypass, lacking in ((False, ["prompts"]), (True, ["prompts", "responses"])):
        theirs, ours = reads(bypass, None), reads(bypass, tmp_path / f"run {bypass}")
        assert lacking not in theirs
        assert ours.count(lacking) == 2 and [read for read in ours if read != lacking] == theirs  # one each step


def test_events_tell_syncs_and_what_is_absent_and_why(driven: Any, tmp_path: Path) -> None:
    def events(run: Path) -> list[tuple[str, int]]:
        return [(line["event"], line["step"]) for line in commit_lines(run, "event")]

    assert [event for event in events(driven("sync").run) if event[0] == "weight_sync"] == [
        ("weight_sync", 0), ("weight_sync", 1), ("weight_sync", 2),
    ]  # fmt: skip
    (line,) = [line for line in commit_lines(driven("v0 bypass").run, "event") if line["event"] == "no_old_logprobs"]
    assert "algorithm.rollout_correction.bypass_mode=True" in line["note"]
    driving.drive(tmp_path / "run", trainer="sync", log_probs=False)
    notes = {line["event"]: line["note"] for line in commit_lines(tmp_path / "run", "event")}
    assert "actor_rollout_ref.rollout.calculate_log_probs=True" in notes["no_rollout_logprobs"]
    rows = token_rows(tmp_path / "run").to_pylist()
    assert all(row["rollout_logprobs"] is None for row in rows) and any(row["old_logprobs"] for row in rows)


def test_the_run_knows_verls_version_and_configuration(driven: Any) -> None:
    info = ratioscope.open_run(driven("sync").run).info
    assert info["trainer"] == "verl 0.9.1"
    assert info["config"]["algorithm"]["rollout_correction"]["rollout_rs"] == "token_k1"
    assert info["config"]["trainer"]["v1"]["trainer_mode"] == "sync"


def test_scalars_join_what_verl_logs_and_change_none_of_it(driven: Any, tmp_path: Path) -> None:
    options = {**MODES["sync"], "steps": 4}
    ours = driving.drive(tmp_path / "run", attach={"scalars": True}, **options)["logged"]
    theirs = driving.drive(None, **options)["logged"]
    added = [set(one) - set(other) for (_, one), (_, other) in zip(ours, theirs, strict=True)]
    assert_same([(s, {n: v for n, v in one.items() if not n.startswith("ratioscope/")}) for s, one in ours], theirs)
    assert any("ratioscope/mismatch/kl_k3" in names for names in added)


def test_a_look_that_fails_does_not_reach_verl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("broken look")

    for module, name in ((verl_driver, "known_of_tags"), (verl_worker, "response_views")):
        monkeypatch.setattr(module, name, broken)
    found, without = driving.drive(tmp_path / "run", trainer="sync"), driving.drive(None, trainer="sync")
    assert_same(comparable(found), comparable(without))
    assert len(token_rows(tmp_path / "run")) == 0


def test_a_verl_without_what_is_needed_is_refused_and_trains_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without = driving.drive(None, trainer="v0")
    trainers = pytest.importorskip("verl.trainer.ppo.v1.trainer_base")
    monkeypatch.delattr(trainers.PPOTrainer, "_compute_advantage")
    attachment = ratioscope.attach("verl", tmp_path / "run")
    assert attachment.refused is not None
    for part in ("PPOTrainer._compute_advantage", "training goes on", "0.9.1"):
        assert part in attachment.refused
    assert_same(comparable(driving.drive(None, trainer="v0")), comparable(without))
    assert attachment.detach() and not (tmp_path / "run").exists()


def test_an_object_is_attached_to_alone(tmp_path: Path) -> None:
    ours, other = driving.Training("sync"), driving.Training("sync")
    attachment = ratioscope.attach(ours.trainer, tmp_path / "run")
    try:
        other.run()
        assert not [row for row in token_rows(tmp_path / "run").to_pylist() if row["minibatch"] is None]
        ours.run()
    finally:
        assert attachment.detach()
    assert {row["step"] for row in token_rows(tmp_path / "run").to_pylist() if row["minibatch"] is None} == {1, 2}
    assert not any(is_watched(hook) for hook in adapter.HOOKS)


ZERO_CODE = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from upstream.verl_drive import drive
drive(None, trainer=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("variables", "recorded"),
    [({}, True), ({"VERL_USE_EXTERNAL_PLUGINS": "none"}, False), ({"RATIOSCOPE_RUN": ""}, False)],
)
def test_installing_ratioscope_and_one_variable_are_enough(
    tmp_path: Path, variables: dict[str, str], recorded: bool
) -> None:
    run, tests = tmp_path / "run", str(Path(__file__).parents[1])
    environment = {**os.environ, "RATIOSCOPE_RUN": str(run), **variables}
    found = subprocess.run(  # elsewhere: an egg-info left in the checkout would hide the installed entry points
        [sys.executable, "-c", ZERO_CODE, tests, "sync"],
        env=with_absolute_paths(environment), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert run.exists() is recorded
    if recorded:
        rows = token_rows(run).to_pylist()
        assert {(row["step"], row["minibatch"]) for row in rows} == {(1, None), (1, 0), (2, None), (2, 0)}


def with_absolute_paths(environment: dict[str, str]) -> dict[str, str]:
    paths = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def test_the_plug_in_acts_by_its_import_and_is_light(tmp_path: Path) -> None:
    code = """
import sys
from importlib.metadata import entry_points
(point,) = [point for point in entry_points(group="verl.plugins") if point.name == "ratioscope"]
print(type(point.load()).__name__, "torch" in sys.modules, "polars" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.split() == ["module", "False", "False"]  # a module: verl loads entry points and calls none


def test_a_worker_attached_to_late_waits_for_the_next_sync(tmp_path: Path) -> None:
    training = driving.Training("sync", steps=3)
    begin = training.trainer.__class__.sample
    attached: list[Any] = []

    def sample(self: Any, global_steps: int, *rest: Any, **named: Any) -> Any:
        if global_steps == 2 and not attached:
            attached.append(ratioscope.attach("verl", tmp_path / "run"))
        return begin(self, global_steps, *rest, **named)

    training.trainer.replay_buffer = SimpleNamespace(sample=lambda **named: sample(training.trainer, **named))
    training.run()
    assert attached[0].detach()
    found = {(row["step"], row["minibatch"]) for row in token_rows(tmp_path / "run").to_pylist()}
    assert found == {(2, None), (3, None), (3, 0)}


EACH = ratioscope.SelfNoise(every=1, sequences=2)


def drawing(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Has the engine draw from every source in each forward, as dropout does. fails: and raise in a second forward."""
    own = driving.tiny.BigramEngine.outputs

    def outputs(self: Any, data: Any) -> Any:
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002
        if fails and second_forward.MARK in data.keys():
            raise torch.OutOfMemoryError("out of memory")
        found = own(self, data)
        return {**found, "log_probs": found["log_probs"] * (1 + 0.01 * drawn)}

    monkeypatch.setattr(driving.tiny.BigramEngine, "outputs", outputs)


@pytest.mark.parametrize("mode", ["sync", "sync, micro-batches by tokens", "separate_async", "v0", "fully_async"])
def test_a_second_forward_is_recorded_and_leaves_training_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    drawing(monkeypatch)
    trace = driving.drive(tmp_path / "run", attach={"self_noise": EACH, "strict": True}, **MODES[mode])
    assert_same(comparable(trace), comparable(driving.drive(None, **MODES[mode])))
    run = ratioscope.open_run(tmp_path / "run")
    rows = run.tokens(None, ["step", "sequence_id", "old:trainer_again"]).collect().drop_nulls()
    assert rows.group_by("step").n_unique().sort("step")["sequence_id"].to_list() == [2, 2]
    assert 1e-4 < run.metrics((), gap="old:trainer_again")["old:trainer_again/max_abs_log_ratio"].item() < 0.5


@pytest.mark.parametrize("trainer", ["sync", "v0"])
def test_the_second_forward_of_the_same_weights_is_old(tmp_path: Path, trainer: str) -> None:
    """The table rounds alike in every shape, so that another row, place or weight would show."""
    options = {"trainer": trainer, "steps": 1, "workers": 2}
    driving.drive(tmp_path / "run", attach={"self_noise": EACH, "strict": True}, **options)
    found = ratioscope.open_run(tmp_path / "run").metrics((), gap="old:trainer_again")
    assert found["old:trainer_again/sequences"].item() == 4 and found["old:trainer_again/max_abs_log_ratio"].item() == 0


@pytest.mark.parametrize("mode", ["sync", "v0"])
def test_a_second_forward_that_fails_changes_nothing_and_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    drawing(monkeypatch, fails=True)
    trace = driving.drive(tmp_path / "run", attach={"self_noise": EACH}, **MODES[mode])
    assert_same(comparable(trace), comparable(driving.drive(None, **MODES[mode])))
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert "failed once with OutOfMemoryError" in note and not run.readings


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"rollout.log_prob_micro_batch_size_per_gpu": 1}, "hold one sequence"),
        ({"actor.megatron": {"router_replay": {"mode": "R2"}}}, "routes of its experts"),
        ({}, ""),
    ],
    ids=str,
)
def test_settings_that_cannot_be_read_again_are_told(changes: dict[str, Any], wanted: str) -> None:
    config = driving.configuration("sync", 1, {}).actor_rollout_ref
    for name, value in changes.items():
        driving.OmegaConf.update(config, name, value)
    assert wanted in second_forward._fault(config) and bool(second_forward._fault(config)) == bool(wanted)
