"""--try with LoRA adapters and chat templates, each put into a run on purpose, and found."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import tiny_model as tiny
from support.tiny_trl import tiny_tokenizer

from ratioscope import open_run
from ratioscope.app.referee.changed_weights import with_adapter
from ratioscope.app.referee.choice import Wanted, chosen
from ratioscope.app.referee.findings import ReproductionAttempt
from ratioscope.app.referee.hypotheses import messages_of
from ratioscope.app.referee.inputs import inputs_of
from ratioscope.app.referee.model import referee
from ratioscope.app.referee.reproduction import Trial, checkpoints_in, tried
from ratioscope.errors import SourceError

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] == 'system' and '(' or '=' }} {{ m['content'] }} ) {% endfor %}"
    "{% if add_generation_prompt %}so the{% endif %}"
)


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


def adapter(folder: Path, weights: Any, **config: Any) -> tuple[Path, Any]:
    """A LoRA adapter of rank 2 as PEFT saves it, and the model with it."""
    merged, tensors = tiny.model(), dict[str, torch.Tensor]()
    chance = torch.Generator().manual_seed(4)
    for name, weight in merged.named_parameters():
        if name.endswith(("q_proj.weight", "down_proj.weight")):
            down = torch.randn(2, weight.shape[1], generator=chance)
            up = torch.randn(weight.shape[0], 2, generator=chance) * 0.1
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            tensors |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
            weight.data += (8 / 2) * up @ down
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 8, **config}))
    return folder, merged


def tried_on(run: Path, model: Path, checkpoints: Path | None = None, tokenizer: Any = None) -> ReproductionAttempt:
    opened, judge = open_run(run), referee(model, device="cpu")
    inputs = inputs_of(opened, chosen(opened, Wanted(everything=True)), judge.room)
    saved = [] if checkpoints is None else checkpoints_in(checkpoints)
    return tried(judge, inputs.sequences, Trial(saved, tokenizer))


@pytest.mark.parametrize("merged_is_given", [True, False])
def test_an_adapter_that_one_side_lacks_is_found(weights: Any, tmp_path: Path, merged_is_given: bool) -> None:
    _, merged = adapter(tmp_path / "adapters" / "step-40", weights)
    run = tiny.record(
        tmp_path / "run", lambda *pair: tiny.trainer_logprobs(weights, *pair),
        lambda *pair: tiny.trainer_logprobs(merged, *pair), sampler=weights, steps=(10,),
    )  # fmt: skip
    model = tiny.saved(merged if merged_is_given else weights, tmp_path / "model")
    found = {best.policy: best for best in tried_on(run, model, tmp_path / "adapters").best}
    assert {best.verdict for best in found.values()} == {"reproduced"}
    names = {policy: best.hypothesis for policy, best in found.items()}
    plain = "the referee as it is"
    if merged_is_given:
        assert names == {"rollout": "without the adapter step-40", "old": plain}
    else:
        assert names == {"rollout": plain, "old": "the adapter step-40 merged"}


@pytest.mark.parametrize(
    ("config", "wanted"), [({"use_dora": True}, "use_dora"), ({"peft_type": "IA3"}, "its peft_type is IA3")]
)
def test_an_adapter_that_is_not_plain_lora_is_not_tried_and_it_says_why(
    weights: Any, tmp_path: Path, config: dict[str, Any], wanted: str
) -> None:
    folder, _ = adapter(tmp_path / "adapters" / "own", weights, **config)
    with pytest.raises(SourceError, match=wanted):
        with_adapter(folder)
    plain = lambda *pair: tiny.trainer_logprobs(weights, *pair)  # noqa: E731
    off = lambda prompt, response: tiny.trainer_logprobs(weights, prompt[1:], response)  # noqa: E731
    run = tiny.record(tmp_path / "run", off, plain, sampler=weights, steps=(10,))
    skipped = tried_on(run, tiny.saved(weights, tmp_path / "model"), tmp_path / "adapters").skipped
    assert wanted in skipped["the adapter own merged"]


def test_an_adapter_of_another_model_is_named(weights: Any, tmp_path: Path) -> None:
    folder, _ = adapter(tmp_path / "own", weights)
    with pytest.raises(SourceError, match="of another model"):
        with_adapter(folder)(tiny.model(num_hidden_layers=1))


@pytest.mark.parametrize(
    ("name", "messages", "generation"),
    [
        ("the template without a generation prompt", ["1 2 3", "4 plus 5"], False),
        ("the template without the system message", ["4 plus 5"], True),
        ("the template with an empty system message", ["", "4 plus 5"], True),
        ("the text of the messages without a template", None, False),
    ],
)
def test_another_template_is_found(
    tmp_path: Path, weights: Any, name: str, messages: list[str] | None, generation: bool
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE

    def ids(parts: list[str], prompted: bool) -> list[int]:
        roles = ["system", "user"][-len(parts) :]
        chat = [{"role": role, "content": part} for role, part in zip(roles, parts, strict=True)]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompted)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    recorded = ids(["1 2 3", "4 plus 5"], True)
    other = tokenizer("1 2 3\n4 plus 5")["input_ids"] if messages is None else ids(messages, generation)
    run = tiny.record(
        tmp_path / "run", lambda _, response: tiny.trainer_logprobs(weights, other, response),
        lambda _, response: tiny.trainer_logprobs(weights, recorded, response), sampler=weights, steps=(10,),
        prompts_of=lambda _: recorded, prompt_texts=["system: 1 2 3\nuser: 4 plus 5"] * 4,
    )  # fmt: skip
    found = {best.policy: best for best in tried_on(run, tiny.saved(weights, tmp_path / "model"), None, tokenizer).best}
    assert found["old"].hypothesis == "the referee as it is" and found["rollout"].verdict == "reproduced"
    if found["rollout"].hypothesis != name:  # a cut of the prompt may give the same ids
        assert name == "the template without a generation prompt" and "without the last" in found["rollout"].hypothesis


def test_a_tokenizer_without_a_template_adds_nothing_and_breaks_nothing(weights: Any, tmp_path: Path) -> None:
    plain = lambda *pair: tiny.trainer_logprobs(weights, *pair)  # noqa: E731
    run = tiny.record(tmp_path / "run", plain, plain, sampler=weights, steps=(10,), prompt_texts=["1 plus 2"] * 4)
    found = tried_on(run, tiny.saved(weights, tmp_path / "model"), None, tiny_tokenizer())
    assert not [name for name in found.means["old"] if name.startswith("the template")]
    assert found.best[0].verdict == "reproduced"


def test_text_without_roles_is_a_users() -> None:
    assert messages_of("hello: you\nsystem: x") == [{"role": "user", "content": "hello: you\nsystem: x"}]
    assert [message["role"] for message in messages_of("user: a\nassistant: b\nuser: c\nd")] == [
        "user",
        "assistant",
        "user",
    ]
