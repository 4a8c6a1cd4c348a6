"""attach: which trainers it knows, and that it leaves an object as it found it."""

from types import SimpleNamespace
from typing import Any

import pytest

import ratioscope
from ratioscope.collectors.adapters.trl.rows import Completions, prompt_text, sampled_rows
from ratioscope.collectors.trainers import adapter_named
from ratioscope.collectors.watching.patches import Patches
from ratioscope.errors import ConfigError


class Trainer:
    """Somebody's trainer."""

    def loss(self, batch: int, *, scale: int = 1) -> int:
        return batch * scale


def test_an_unknown_trainer_is_told_what_is_known_and_what_works_anywhere(tmp_path: Any) -> None:
    with pytest.raises(ConfigError) as error:
        ratioscope.attach(Trainer(), tmp_path / "run")
    for part in ("test_attach.Trainer", "TRL", "Collector(run_dir).log(step="):
        assert part in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_trainer_is_known_by_its_class_and_where_that_comes_from() -> None:
    trl = adapter_named("trl")
    assert trl is not None

    def trainer(module: str, name: str = "GRPOTrainer") -> Any:
        made: Any = type("Mine", (type(name, (), {"__module__": module}),), {})
        return made()

    assert trl.fits(trainer("trl.trainer.grpo_trainer")) and trl.fits(trainer("trl"))
    assert not trl.fits(trainer("trlx.trainer")) and not trl.fits(trainer("UnslothGRPOTrainer"))
    assert trl.fits(trainer("trl.trainer.rloo_trainer", "RLOOTrainer"))
    assert not trl.fits(trainer("trl.trainer.sft_trainer", "SFTTrainer"))


def test_another_version_of_a_known_trainer_is_told_what_it_lacks(tmp_path: Any) -> None:
    class GRPOTrainer:
        """From a TRL that has other methods."""

    GRPOTrainer.__module__ = "trl.trainer.grpo_trainer"
    with pytest.raises(ConfigError, match="has no _generate, .*pip install 'trl==1.16"):
        ratioscope.attach(GRPOTrainer(), tmp_path / "run", strict=True)
    attachment = ratioscope.attach(GRPOTrainer(), tmp_path / "run")
    assert attachment.refused is not None and "training goes on" in attachment.refused
    assert attachment.detach() and not (tmp_path / "run").exists()


def test_wrappers_come_off_without_a_trace() -> None:
    trainer, other = Trainer(), Trainer()
    trainer.state = 1  # type: ignore[attr-defined]
    before = dict(vars(trainer))
    patches = Patches()
    patches.put(trainer, "loss", lambda method: lambda *a, **k: method(*a, **k) + 1)
    assert (trainer.loss(2, scale=3), other.loss(2)) == (7, 2)
    patches.restore()
    assert vars(trainer) == before
    assert trainer.loss(2, scale=3) == 6


def test_what_somebody_else_put_there_stays() -> None:
    trainer: Any = Trainer()
    trainer.loss = mine = lambda: 100  # noqa: E731
    patches = Patches()
    patches.put(trainer, "loss", lambda method: lambda *a, **k: method(*a, **k) + 1)
    assert trainer.loss() == 101
    patches.restore()
    assert trainer.loss is mine
    patches.put(trainer, "loss", lambda method: lambda *a, **k: method(*a, **k) + 1)
    ours: Any = trainer.loss
    trainer.loss = later = lambda: ours() + 10  # noqa: E731
    patches.restore()
    assert trainer.loss is later


def trainer_of(rank: int, ranks: int, rewards: dict[str, list[float]], weights: list[float]) -> Any:
    """What the rows are told from, of a TRL trainer that samples in groups of two."""
    return SimpleNamespace(
        state=SimpleNamespace(global_step=6),
        accelerator=SimpleNamespace(process_index=rank, num_processes=ranks),
        num_generations=2,
        reward_func_names=list(rewards),
        reward_weights=SimpleNamespace(tolist=lambda: weights),
        eos_token_ids=[1],
        _tokenizer=SimpleNamespace(pad_token_id=0),
        mask_truncated_completions=True,
        _logs={"rewards": rewards},
    )


def test_groups_and_rewards_are_those_of_all_ranks() -> None:
    nan = float("nan")
    rewards: dict[str, list[float]] = {
        "a": [9, 9, 1, 2, 3, 4],
        "b": [9, 9, 10, nan, nan, nan],
        "c": [9, 9, nan, nan, 0, nan],
    }  # two are older
    trainer = trainer_of(1, 2, {name: [float(v) for v in values] for name, values in rewards.items()}, [1.0, 0.5, 2.0])
    examples: list[dict[str, Any]] = [{"prompt": "p"}, {"prompt": "p", "rollout_version": 4, "replica": "e1"}]
    completions = Completions(ids=[[5, 1], [5, 5]], sampled=[[1, 1], [1, 0]])
    first, second = sampled_rows(trainer, examples, completions, first=2, loaded=6)
    assert (first.sequence_id, second.sequence_id) == ("7-1-2", "7-1-3")
    assert first.group_id == second.group_id == "7-3"  # the fourth: ranks 0 and 1 sampled one each, then again
    assert (first.reward, second.reward) == (3.0, 4.0)
    assert first.extra == {"rewards": {"a": 3.0, "b": None, "c": 0.0}}
    assert (first.rollout_version, second.rollout_version, second.replica, first.version) == (6, 4, "e1", 6)
    assert (first.finish_reason, first.is_hidden, second.finish_reason, second.is_hidden) == (
        "stop",
        False,
        "length",
        True,
    )
    assert (second.length, second.sampled) == (2, [1, 0])
    assert all(row.length is None for row in sampled_rows(trainer, examples, None, first=0, loaded=6))
    unscored = trainer_of(0, 1, {"a": [nan, 1.0]}, [1.0])
    assert [row.reward for row in sampled_rows(unscored, examples, None, first=0, loaded=0)] == [None, 1.0]


def test_a_conversation_reads_as_a_line_per_message() -> None:
    parts = [{"type": "text", "text": "what is "}, {"type": "image"}]
    conversation = [{"role": "system", "content": "be brief"}, {"role": "user", "content": parts}]
    assert prompt_text(conversation) == "system: be brief\nuser: what is [image]"
    assert (prompt_text("as it is"), prompt_text(None)) == ("as it is", None)


def test_an_attachment_that_saw_no_step_says_so_once_and_shows_itself(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attachment = ratioscope.attach("openrlhf", tmp_path / "run")
    assert repr(attachment) == f"<Attachment of OpenRLHF (version unknown) into {tmp_path / 'run'}: nothing yet>"
    assert attachment.detach() and attachment.detach()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        f"ratioscope: nothing was recorded by this process into {tmp_path / 'run'}: no step of OpenRLHF"
    )


def test_the_public_names_are_listed_before_their_first_use() -> None:
    assert set(ratioscope.__all__) <= set(dir(ratioscope)) and "import_module" not in dir(ratioscope)
