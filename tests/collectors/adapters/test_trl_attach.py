"""attach on TRL's real trainer: what is put on comes off, and what goes wrong of ours stays with us."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_trl import TrainingTrace, make_trainer, tiny_tokenizer, train, transformers
from support.written_run import commit_lines, token_rows
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ratioscope import attach
from ratioscope.collectors.adapters.trl import WRAPPED
from ratioscope.collectors.adapters.trl.attaching import engine_name
from ratioscope.collectors.adapters.trl.foreign import other_sampler
from ratioscope.collectors.adapters.trl.recorder import NO_ROLLOUT, NO_VERSIONS, OLD_IS_CURRENT
from ratioscope.collectors.batch.token_texts import decoder
from ratioscope.errors import ConfigError

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]


def test_detach_leaves_the_trainer_as_it_was(tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path))
    class_before = {name: vars(type(trainer)).get(name) for name in WRAPPED}
    before, callbacks = dict(vars(trainer)), list(trainer.callback_handler.callbacks)
    attachment = attach(trainer, tmp_path / "run")
    assert all(name in vars(trainer) for name in WRAPPED)
    with pytest.raises(ConfigError, match="already attached to this trainer"):
        attach(trainer, tmp_path / "again")
    assert attachment.detach() and attachment.detach()
    assert vars(trainer).keys() == before.keys()
    assert all(vars(trainer)[name] is value for name, value in before.items())
    assert trainer.callback_handler.callbacks == callbacks
    assert {name: vars(type(trainer)).get(name) for name in WRAPPED} == class_before
    assert attach(trainer, tmp_path / "run").detach()


def test_one_trainer_may_be_recorded_for_a_part_of_its_life(tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path), max_steps=2)
    attachment = attach(trainer, tmp_path / "run")
    trainer.train()
    assert attachment.detach()
    trainer.args.max_steps = 4
    trainer.train()
    assert set(token_rows(tmp_path / "run")["step"].to_pylist()) == {1, 2}


def test_a_wrapper_left_under_somebody_elses_only_passes_calls_on(tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path), max_steps=1)
    attachment = attach(trainer, tmp_path / "run")
    ours, calls = trainer._compute_loss, list[str]()

    def theirs(*arguments: Any, **named: Any) -> Any:
        calls.append("theirs")
        return ours(*arguments, **named)

    trainer._compute_loss = theirs
    assert attachment.detach()
    trainer.train()
    assert calls == ["theirs", "theirs"]
    assert len(token_rows(tmp_path / "run")) == 0
    assert attachment.collector.counts.failures == {}


def test_what_fails_in_our_hooks_stays_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(trainer: Any) -> int:
        raise RuntimeError("no version here")

    trace, plain = train(tmp_path / "run", options={"rollout_version": broken}), train(None)
    assert [loss.item() for loss in trace.losses] == [loss.item() for loss in plain.losses]
    assert trace.attachment is not None
    assert trace.attachment.collector.counts.failures == {"trl adapter": 3}
    assert sum("no version here" in record.message for record in caplog.records) == 1
    with pytest.raises(RuntimeError, match="no version here"):
        train(tmp_path / "strict", options={"rollout_version": broken, "strict": True})


def test_what_fails_in_the_trainer_reaches_its_user(tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path))
    trainer.rollout_func = lambda prompts, trainer: {"prompt_ids": [], "completion_ids": []}
    attachment = attach(trainer, tmp_path / "run")
    with pytest.raises(ValueError, match="rollout_func must return keys"):
        trainer.train()
    assert attachment.detach()


def test_every_original_is_called_once_with_its_own_arguments(tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path), max_steps=1)
    called = []

    def spied(name: str, method: Any) -> Any:
        def spy(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            called.append((name, arguments, named, result))
            return result

        return spy

    for name in WRAPPED:
        setattr(trainer, name, spied(name, getattr(trainer, name)))
    attachment = attach(trainer, tmp_path / "run")
    outer, seen = trainer._compute_loss, []

    def loss(model: Any, inputs: Any) -> Any:
        seen.append((model, inputs, outer(model, inputs)))
        return seen[-1][2]

    trainer._compute_loss = loss
    trainer.train()
    losses = [call for call in called if call[0] == "_compute_loss"]
    assert len(losses) == len(seen) == 2
    for (_, arguments, named, result), (model, inputs, returned) in zip(losses, seen, strict=True):
        assert arguments[0] is model and arguments[1] is inputs and not named and result is returned
    names = [name for name, *_ in called]
    assert [names.count(name) for name in WRAPPED] == [1, 1, 2, 2]
    assert attachment.detach()


def events(trace: TrainingTrace) -> list[tuple[str, int, str]]:
    assert trace.attachment is not None
    lines = commit_lines(trace.attachment.collector.run_dir, "event")
    return [(line["event"], line["step"], line["note"]) for line in lines if line["event"] != "first_rows"]


def test_what_the_trainer_does_not_hold_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace = train(tmp_path / "run", rollout=False)
    assert events(trace) == [("no_rollout_logprobs", 1, NO_ROLLOUT), ("old_is_current", 1, OLD_IS_CURRENT)]
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [words for words in said if words.startswith("step ") and "rollout" in words] == [f"step 1: {NO_ROLLOUT}"]
    assert "no rollout log-probs, so no gap between sampler and trainer" in said[-1], "the last line"


def test_versions_are_those_of_the_engine_and_of_the_trainer(tmp_path: Path) -> None:
    trace = train(tmp_path / "synced", vllm_stub=True, rollout=False, num_iterations=2)
    assert [(event, step) for event, step, _ in events(trace)] == [("weight_sync", 1), ("weight_sync", 3)]
    rows = token_rows(tmp_path / "synced").to_pylist()
    # sampled before steps 1 and 3, each then used for two updates; old is computed with the sampling
    found = {(row["step"], row["generation_step"], row["rollout_version_min"], row["trainer_version"]) for row in rows}
    assert found == {(1, 1, 0, 0), (2, 1, 0, 0), (3, 3, 2, 2)}
    train(tmp_path / "own", rollout=False, steps=2)
    rows = token_rows(tmp_path / "own").to_pylist()
    assert {(row["step"], row["rollout_version_min"]) for row in rows} == {(1, 0), (2, 1)}
    train(tmp_path / "stale", options={"rollout_version": lambda trainer: trainer.state.global_step // 2 * 2})
    rows = token_rows(tmp_path / "stale").to_pylist()
    assert {(row["step"], row["rollout_version_min"], row["trainer_version"]) for row in rows} == {
        (1, 0, 0),
        (2, 0, 1),
        (3, 2, 2),
    }


@pytest.mark.parametrize("vllm_stub", [False, True])
def test_nobody_knows_the_weights_that_a_rollout_func_samples_with_unless_it_tells(
    tmp_path: Path, vllm_stub: bool
) -> None:
    trace = train(tmp_path / "run", vllm_stub=vllm_stub, steps=1)
    assert {row["rollout_version_min"] for row in token_rows(tmp_path / "run").to_pylist()} == {None}
    assert [note for event, _, note in events(trace) if event == "no_rollout_versions"] == [
        NO_VERSIONS.format("a rollout_func")
    ]
    trainer = make_trainer(str(tmp_path), max_steps=1)
    untold = trainer.rollout_func
    trainer.rollout_func = lambda prompts, trainer: untold(prompts, trainer) | {"rollout_version": [7, None] * 4}
    attachment = attach(trainer, tmp_path / "told")
    trainer.train()
    assert attachment.detach()
    assert {row["rollout_version_min"] for row in token_rows(tmp_path / "told").to_pylist()} == {7, None}


def test_a_subclass_that_samples_itself_has_no_version(tmp_path: Path) -> None:
    made = make_trainer(str(tmp_path), rollout=False)
    assert other_sampler(made) is None
    made.__class__ = type("Mine", (type(made),), {"_generate_single_turn": lambda *_: None})
    assert other_sampler(made) == f"_generate_single_turn of {__name__}"


def test_a_row_that_comes_by_twice_in_one_step_is_another_minibatch(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=2, num_iterations=2, gradient_accumulation_steps=4, steps_per_generation=2)
    rows = token_rows(tmp_path / "run").to_pylist()
    keys = [(row["step"], row["minibatch"], row["sequence_id"]) for row in rows]
    assert len(set(keys)) == len(keys) == 32
    assert {minibatch for _, minibatch, _ in keys} == {0, 1}


def test_sequences_are_named_apart_and_groups_belong_together(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=2, steps_per_generation=1)  # two samplings per update
    rows = token_rows(tmp_path / "run").to_pylist()
    assert len({row["sequence_id"] for row in rows}) == len(rows) == 16
    prompts: dict[str, set[str]] = {}
    for row in rows:
        prompts.setdefault(row["group_id"], set()).add(row["prompt_text"])
    assert len(prompts) == 4 and all(len(of_group) == 1 for of_group in prompts.values())
    for group in prompts:
        advantages = [row["advantages"][0] for row in rows if row["group_id"] == group]
        assert len(advantages) == 4
        np.testing.assert_allclose(sum(advantages), 0, atol=1e-5)  # TRL centres them within a group


def test_run_json_says_what_trained_and_how_it_sampled(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        steps=1,
        options={"config": {"wandb_api_key": "0123456789"}, "name": "tiny"},
        hub_token="hf_abcdefghijklmnop",
    )
    text = (tmp_path / "run" / "run.json").read_text()
    run = json.loads(text)
    assert (run["name"], run["trainer"]) == ("tiny", "trl 1.16.0")
    assert run["versions"]["torch"] == torch.__version__
    config = run["config"]
    assert (config["engine"], config["model"], config["model_dtype"]) == ("rollout_func", "llama", "torch.float32")
    assert (config["sampling"]["temperature"], config["args"]["learning_rate"]) == (0.9, 5e-3)
    assert "0123456789" not in text and "hf_abc" not in text


def test_no_text_is_kept_when_none_is_wanted(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=1, options={"text": "none"})
    rows = token_rows(tmp_path / "run")
    assert all(rows[name].null_count == len(rows) for name in ("token_ids", "token_texts", "prompt_text"))
    assert rows["rollout_logprobs"].null_count == 0


def test_single_tokens_keep_the_space_before_them() -> None:
    metaspace = Tokenizer(models.WordLevel({"\u2581the": 0, "se": 1, "<unk>": 2}, unk_token="<unk>"))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace()
    metaspace.decoder = decoders.Metaspace()
    assert decoder(transformers.PreTrainedTokenizerFast(tokenizer_object=metaspace))([0, 1]) == [" the", "se"]
    assert decoder(tiny_tokenizer())([3, 1]) == ["0", "<eos>"]


def test_texts_come_from_a_tokenizer_that_nobody_else_uses() -> None:
    tokenizer = tiny_tokenizer()
    decode = decoder(tokenizer)
    tokenizer.decode = None  # whatever happens to the trainer's own
    assert decode([3]) == ["0"]


def test_the_precision_of_a_colocated_engine_is_recorded_and_that_of_a_server_is_not() -> None:
    engine = SimpleNamespace(vllm_config=SimpleNamespace(model_config=SimpleNamespace(dtype=torch.bfloat16)))
    generation = SimpleNamespace(llm=SimpleNamespace(llm_engine=engine))
    colocated = SimpleNamespace(use_vllm=True, vllm_mode="colocate", vllm_generation=generation)
    assert engine_name(colocated).endswith("(colocate) bfloat16")
    server = SimpleNamespace(use_vllm=True, vllm_mode="server", vllm_generation=SimpleNamespace())
    assert engine_name(server).endswith("(server)")
