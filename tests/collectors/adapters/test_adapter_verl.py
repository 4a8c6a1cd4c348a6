"""The verl adapter's decisions on hand-made batches; beside verl itself it is tested in upstream/test_verl_adapter.py."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratioscope.collectors.adapters.verl import messages as words
from ratioscope.collectors.adapters.verl.description import VerlDescription
from ratioscope.collectors.adapters.verl.driver import VerlDriver
from ratioscope.collectors.adapters.verl.rows import (
    ROW,
    Known,
    known_of_proto,
    known_of_tags,
    marks,
    numbered,
    padded,
    response_views,
    sequence_lengths,
    step_of,
)
from ratioscope.collectors.adapters.verl.worker import VerlWorker
from ratioscope.collectors.watching.hooks import Call
from ratioscope.errors import SchemaError

torch = pytest.importorskip("torch", reason="verl's batches are torch's")


class Heard:
    """A Recording that keeps what it is told."""

    rollout_version: Any = None
    run_dir = "run"
    has_collector = False

    def __init__(self) -> None:
        self.options: dict[str, Any] = {"text": "none"}
        self.rows: list[dict[str, Any]] = []
        self.events: list[tuple[str, int, str]] = []
        self.said: dict[str, str] = {}
        self.described = 0

    def describe(self, **facts: Any) -> None:
        self.described += 1

    def log(self, **values: Any) -> None:
        self.rows.append(values)

    def event(self, kind: str, step: int, note: str = "") -> None:
        self.events.append((kind, step, note))

    def say_once(self, kind: str, step: int, note: str, level: int = 0) -> None:
        self.said[kind] = note

    def watch(self, look: Any) -> Any:
        return look()


class Data(dict[str, Any]):
    """A TensorDict, as far as the worker reads it."""

    def __init__(self, rows: int, **columns: Any) -> None:
        super().__init__(columns)
        self.batch_size = [rows]


@pytest.fixture(autouse=True)
def omegaconf(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(OmegaConf=SimpleNamespace(to_container=lambda config, resolve: dict(config.algorithm)))
    monkeypatch.setitem(sys.modules, "omegaconf", fake)


def trainer_at(step: int, correction: Any = None) -> Any:
    return SimpleNamespace(global_steps=step, config=SimpleNamespace(algorithm={"rollout_correction": correction}))


def proto(**changes: Any) -> Any:
    """Two samples of one prompt in V0's layout: 2 prompt tokens, responses of 3 and 1 tokens."""
    ones = torch.ones(2, 3)
    fields = {
        "responses": torch.tensor([[5, 6, 7], [8, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]),
        "response_mask": torch.tensor([[1, 0, 1], [1, 0, 0]]), "rollout_log_probs": -ones, "old_log_probs": -1.5 * ones,
        "token_level_scores": torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]]), "advantages": ones,
    }  # fmt: skip
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    beside = {"uid": ["a", "a"], "min_global_steps": [3, None], "max_global_steps": [4, None]}

    class Proto:
        def __init__(self, batch: Any, non_tensor_batch: Any, meta_info: Any) -> None:
            self.batch, self.non_tensor_batch, self.meta_info = batch, non_tensor_batch, meta_info

    return Proto(fields, beside, {"temperature": 1.0})


def driver_of(heard: Heard) -> tuple[VerlDriver, VerlDescription]:
    description = VerlDescription(heard)  # type: ignore[arg-type]
    return VerlDriver(heard, description), description  # type: ignore[arg-type]


def updated(batch: Any, trainer: Any, driver: VerlDriver) -> Any:
    return driver.update_begins(Call(trainer, {"batch": batch}))


def test_padding_rows_have_no_place_and_versions_may_be_unknown() -> None:
    tags: list[dict[str, Any]] = [
        {"response_len": 2, "global_steps": 7, "min_global_steps": None, "max_global_steps": None},
        {"response_len": 1, "is_padding": True},
        {"response_len": 4, "global_steps": 8, "min_global_steps": 6, "max_global_steps": 7},
    ]
    known = known_of_tags(["u_x_0_0", "pad_0_0", "u_x_1_2"], tags)
    assert known == Known(
        ids=["u_x_0_0", "u_x_1_2"], groups=["u_x", "u_x"], lengths=[2, 4], oldest=[None, 6], newest=[None, 7],
        generation_steps=[7, 8], kept=[0, 2],
    )  # fmt: skip
    assert known.versions == {"min": [None, 6], "max": [None, 7]}
    assert marks(known, 9, 3) == ["9 u_x_0_0", "", "9 u_x_1_2"]
    assert padded(torch.arange(15).reshape(3, 5), known).tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert known_of_tags(["a_0_0"], tags[:1]).versions is None


def test_samples_of_a_prompt_are_numbered_in_the_order_of_the_batch() -> None:
    known = known_of_proto(proto(), 4)
    assert (known.ids, known.groups, known.lengths) == (["a_0", "a_1"], ["a", "a"], [3, 1])
    assert (known.oldest, known.newest, known.kept) == ([3, None], [4, None], None)
    without = proto()
    without.non_tensor_batch = {}
    assert known_of_proto(without, 4).ids == ["4_0", "4_1"]
    assert numbered([]) == []


def test_a_response_begins_one_before_its_first_token_in_a_models_output() -> None:
    flat = torch.arange(9.0, requires_grad=True)
    lengths = [(2, 3), (3, 1)]
    views = response_views(flat, lengths)
    assert [view.tolist() for view in views] == [[1.0, 2.0, 3.0], [7.0]]
    assert not views[0].requires_grad and views[0].data_ptr() == flat[1:].data_ptr()
    jagged = torch.nested.nested_tensor_from_jagged(torch.arange(9.0), torch.tensor([0, 5, 9]))
    assert [view.tolist() for view in response_views(jagged, lengths)] == [[1.0, 2.0, 3.0], [7.0]]
    with pytest.raises(SchemaError, match="9 tokens, its rows have 8"):
        response_views(flat, [(2, 3), (2, 1)])


def test_lengths_are_read_on_the_host_or_not_at_all() -> None:
    left_and_right = {
        "prompts": torch.zeros(2, 2), "responses": torch.zeros(2, 3),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]),
    }  # fmt: skip
    assert sequence_lengths(left_and_right) == [(2, 3), (1, 1)]
    on_a_device = {**left_and_right, "prompts": torch.zeros(2, 2, device="meta")}
    with pytest.raises(SchemaError, match="make the device wait"):
        sequence_lengths(on_a_device)


def test_v0_passes_on_a_copy_with_names_and_keeps_its_own_batch() -> None:
    heard, batch = Heard(), proto()
    driver, _ = driver_of(heard)
    before = dict(batch.non_tensor_batch)
    given = updated(batch, trainer_at(5), driver)["batch"]
    assert batch.non_tensor_batch == before
    assert given.batch is batch.batch and given.meta_info is batch.meta_info
    assert list(given.non_tensor_batch[ROW]) == ["5 a_0", "5 a_1"]
    (row,) = heard.rows
    assert row["step"] == 5 and row["trainer_version"] == 4 and row["lengths"] == [3, 1]
    assert row["rewards"].tolist() == [1.0, 0.5]
    assert row["rollout_versions"] == {"min": [3, None], "max": [4, None]}


def test_the_mask_before_rejection_is_found_by_the_log_probs_it_belongs_to() -> None:
    left = torch.tensor([[1, 0, 0], [0, 0, 0]])
    for is_same in (True, False):
        heard, batch = Heard(), proto()
        driver, _ = driver_of(heard)
        driver.correction_begins(Call(None, {"batch": batch}))
        batch.batch["response_mask"] = left
        if not is_same:  # somebody reordered the rows
            batch.batch["rollout_log_probs"] = batch.batch["rollout_log_probs"].clone()
        updated(batch, trainer_at(5), driver)
        assert heard.rows[0]["loss_mask"] is not None and heard.rows[0]["loss_mask"].tolist() == left.tolist()
        assert (heard.rows[0]["mask"].tolist() != left.tolist()) is is_same
        assert ("mask_lost" in heard.said) is not is_same


@pytest.mark.parametrize(
    ("changes", "correction", "lacking", "note"),
    [
        ({"rollout_log_probs": None}, None, "rollout_logprobs", words.NO_ROLLOUT),
        ({"rollout_log_probs": torch.zeros(2, 3)}, None, "rollout_logprobs", words.ZERO_ROLLOUT),
        ({"old_log_probs": None}, None, "old_logprobs", words.NO_OLD),
        ({}, {"bypass_mode": True}, "old_logprobs", words.BYPASS),
    ],
)
def test_what_is_not_what_its_name_says_is_left_out_and_why(
    changes: dict[str, Any], correction: Any, lacking: str, note: str
) -> None:
    heard = Heard()
    updated(proto(**changes), trainer_at(5, correction), driver_of(heard)[0])
    assert lacking not in heard.rows[0] and heard.said[f"no_{lacking}"] == note
    assert {"rollout_logprobs", "old_logprobs"} - {lacking} <= heard.rows[0].keys()


def test_the_users_word_on_the_engines_weights_counts() -> None:
    heard = Heard()
    heard.rollout_version = lambda trainer: trainer.global_steps - 3
    updated(proto(), trainer_at(5), driver_of(heard)[0])
    assert heard.rows[0]["rollout_versions"] == 2
    unknown, batch = Heard(), proto()
    del batch.non_tensor_batch["min_global_steps"], batch.non_tensor_batch["max_global_steps"]
    updated(batch, trainer_at(5), driver_of(unknown)[0])
    assert unknown.rows[0]["rollout_versions"] is None and unknown.said["no_versions"] == words.NO_VERSIONS


def test_syncs_and_a_resume_wait_for_the_run_to_be_described() -> None:
    heard = Heard()
    driver, description = driver_of(heard)
    description.loaded(Call(trainer_at(40), {}))
    for version in (40, None, 40):  # two managers, and a wake-up that changes nothing
        description.synced(Call(None, {"global_steps": version}))
    assert heard.events == []
    updated(proto(), trainer_at(41), driver)
    description.synced(Call(None, {"global_steps": 41}))
    assert [event[:2] for event in heard.events] == [("resume", 40), ("weight_sync", 40), ("weight_sync", 41)]
    assert heard.described == 1


def test_workers_started_later_find_the_run_and_earlier_ones_are_missed_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = type("RayWorkerGroup", (), {"__module__": "verl.single_controller.ray.base"})()
    for variable in ("RATIOSCOPE_RUN", "RATIOSCOPE_LAUNCH"):
        monkeypatch.delenv(variable, raising=False)
    for are_started in (True, False):
        heard, trainer = Heard(), trainer_at(5)
        driver, description = driver_of(heard)
        if are_started:
            given = description.worker_starts(Call(group, {"worker_env": {"THEIRS": "1"}}))["worker_env"]
            assert given == {"THEIRS": "1", "RATIOSCOPE_RUN": str(Path("run").absolute()), "RATIOSCOPE_TEXT": "none"}
        trainer.actor_rollout_wg = group
        updated(proto(), trainer, driver)
        assert ("workers_apart" in heard.said) is not are_started


def test_the_fully_async_trainer_logs_under_the_sync_to_come() -> None:
    assert step_of(SimpleNamespace(global_steps=17, current_param_version=4)) == 5
    assert step_of(SimpleNamespace(global_steps=17)) == 17


def worker_after(heard: Heard, data: Data, engine: Any) -> Any:
    """The loss that a worker of ours passes to the engine for this data."""
    worker = VerlWorker(heard)  # type: ignore[arg-type]
    batch = Data(
        2, prompts=torch.zeros(2, 2), responses=torch.zeros(2, 2), attention_mask=torch.ones(2, 4).long(), **data
    )
    assert worker.with_rows(Call(SimpleNamespace(engine=engine), {"data": batch})) is None
    swapped = worker.with_look(Call(engine, {"data": batch, "loss_function": lambda **_: ("loss", {})}))
    assert swapped is not None
    return swapped["loss_function"]


def engine_of(is_source: bool) -> Any:
    return SimpleNamespace(is_mp_src_rank_with_outputs=lambda: is_source)


def test_only_the_rank_that_verl_collects_from_records() -> None:
    output = {"log_probs": torch.arange(8.0), "entropy": torch.arange(8.0) + 10}
    for is_source in (True, False):
        heard, data = Heard(), Data(2, **{ROW: ["3 a_0", "3 a_1"]})
        assert worker_after(heard, data, engine_of(is_source))(model_output=output, data=data) == ("loss", {})
        assert len(heard.rows) == is_source
    (row,) = worker_rows(output)
    assert (row["step"], row["minibatch"], row["sequence_ids"]) == (3, 0, ["a_0", "a_1"])
    assert [view.tolist() for view in row["current_logprobs"]] == [[1.0, 2.0], [5.0, 6.0]]
    assert [view.tolist() for view in row["entropy"]] == [[11.0, 12.0], [15.0, 16.0]]


def worker_rows(output: dict[str, Any], **columns: Any) -> list[dict[str, Any]]:
    heard, data = Heard(), Data(2, **{ROW: ["3 a_0", "3 a_1"]}, **columns)
    worker_after(heard, data, engine_of(True))(model_output=output, data=data)
    return heard.rows


def test_with_dynamic_context_parallelism_the_leader_of_a_micro_batch_records(monkeypatch: pytest.MonkeyPatch) -> None:
    output = {"log_probs": torch.arange(8.0)}
    for tensor_rank, leads in ((0, True), (1, True), (0, False)):
        ranks = SimpleNamespace(get_tensor_model_parallel_rank=lambda rank=tensor_rank: rank)
        monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", ranks)
        heard, data = Heard(), Data(2, **{ROW: ["3 a_0", ""], "_dcp_group_leader": leads})
        worker_after(heard, data, engine_of(False))(model_output=output, data=data)
        assert [row["sequence_ids"] for row in heard.rows] == ([["a_0"]] if leads and tensor_rank == 0 else [])


def test_a_loss_called_for_something_else_or_without_log_probs_is_let_be() -> None:
    heard, data = Heard(), Data(2, **{ROW: ["3 a_0", "3 a_1"]})
    loss = worker_after(heard, data, engine_of(True))
    loss(student_logits=torch.zeros(1), data=data)
    assert not heard.rows and not heard.said
    loss(model_output={"distillation_losses": torch.zeros(8)}, data=data)
    assert not heard.rows and heard.said == {"no_current_logprobs": words.NO_CURRENT}


def test_a_loss_that_raises_raises_to_its_caller() -> None:
    heard = Heard()
    worker = VerlWorker(heard)  # type: ignore[arg-type]

    def loss(**_: Any) -> Any:
        raise ValueError("theirs")

    data = Data(1, **{ROW: ["3 a_0"]})
    worker._updates[id(data)] = 3, 0
    swapped = worker.with_look(Call(data, {"data": data, "loss_function": loss}))
    assert swapped is not None
    with pytest.raises(ValueError, match="theirs"):
        swapped["loss_function"](model_output={}, data=data)
    assert not worker._is_in_loss and not heard.rows


def test_a_worker_without_a_sync_before_does_not_guess_the_step() -> None:
    worker = VerlWorker(Heard())  # type: ignore[arg-type]
    meta = SimpleNamespace(keys=["a_0_0"], tags=[{"response_len": 1}], partition_id="train")
    worker.actor_update_begins(Call(None, {"data": meta}))
    data = Data(1, uid=["a"])
    with pytest.raises(SchemaError, match="from the next sync on"):
        worker.with_rows(Call(None, {"data": data}))
    worker.weights_sent(Call(None, {"global_steps": 2}))
    with pytest.raises(SchemaError, match="not in the order of its keys"):
        worker.with_rows(Call(None, {"data": Data(1, uid=["b"])}))
    worker.actor_update_ends(Call(None, {}))
    assert worker.with_rows(Call(None, {"data": data})) is None


def test_another_models_update_is_not_watched() -> None:
    worker = VerlWorker(Heard())  # type: ignore[arg-type]
    assert worker.with_look(Call(None, {"data": Data(2, values=torch.zeros(2)), "loss_function": print})) is None
    assert worker.with_rows(Call(None, {"data": SimpleNamespace(keys=["critic"], tags=[])})) is None
