"""A real chain on a real model: sampled in bfloat16, scored by a trainer in float32, and read a third time by the referee.

The weights take 90 MB to install and 540 MB to unpack, so this runs with the trainers' own packages (`make test-upstream`). They
are dequantised once and kept in pytest's cache.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from support.smollm2 import kept_folder

from ratioscope import Collector, open_run
from ratioscope.app.cli import main

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="the model runs on torch")
transformers = pytest.importorskip("transformers", reason="the model runs on transformers")
THINGS = ("the moon", "a violin", "bread", "chess", "honey", "a comet")
NEW = 12


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    return kept_folder(request.config)


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)  # more only wait for each other on a machine that is shared
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    engine: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    trainer: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chats = [[{"role": "user", "content": f"Describe {thing} in one short sentence."}] for thing in THINGS]
    prompts = [
        tokenizer(tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True))["input_ids"]
        for c in chats
    ]
    answers = [sampled(engine, prompt) for prompt in prompts]
    out = tmp_path_factory.mktemp("run") / "run"
    with Collector(out, writer="thread", strict=True) as collector:
        collector.log(
            step=1,
            rollout_logprobs=[logprobs for _, logprobs in answers],
            old_logprobs=in_one_batch(trainer, prompts, [ids for ids, _ in answers]),
            token_ids=[ids for ids, _ in answers],
            prompt_ids=prompts,
        )
    return out


@torch.no_grad()  # type: ignore[untyped-decorator]
def sampled(engine: Any, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Tokens one by one with a cache, and the log-probs with which each was drawn, as an engine does it."""
    chance = torch.Generator().manual_seed(len(prompt))
    cache, fed, ids, logprobs = transformers.DynamicCache(), prompt, list[int](), list[float]()
    for _ in range(NEW):
        logits = engine(torch.tensor([fed]), past_key_values=cache, use_cache=True).logits[0, -1].float()
        distribution = torch.log_softmax(logits, -1)
        token = int(torch.multinomial(distribution.exp(), 1, generator=chance))
        ids.append(token)
        logprobs.append(float(distribution[token]))
        fed = [token]
    return ids, logprobs


@torch.no_grad()  # type: ignore[untyped-decorator]
def in_one_batch(trainer: Any, prompts: list[list[int]], answers: list[list[int]]) -> list[Any]:
    """The log-probs of all answers in one batch, padded on the left, as trainers do it."""
    whole = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(map(len, whole))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in whole])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in whole])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = trainer(ids, attention_mask=mask, position_ids=positions).logits[:, -NEW - 1 : -1]
    own: Any = torch.log_softmax(logits, -1).gather(2, ids[:, -NEW:, None])[..., 0]
    return list(own)


def test_the_referee_is_the_trainer_to_rounding_and_names_the_engine(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", str(run), "--model", str(folder), "--device", "cpu", "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    trainer, engine = (found["answer"]["distances"][policy] for policy in ("old", "rollout"))
    assert found["tokens"] == len(THINGS) * NEW
    assert trainer["mean"] < 1e-5 and trainer["largest"] < 1e-4
    assert found["answer"]["off"] == "rollout" and 0.005 < engine["mean"] < 0.2
    assert "referee" in open_run(run).readings
