"""Each alternative of --try, put into a run on purpose, is found; and nothing is found where nothing is."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support import tiny_model as tiny

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.referee.changed_weights import computed_in, in_fp8, quantised, rounded
from ratioscope.app.referee.choice import Wanted, chosen
from ratioscope.app.referee.findings import Best
from ratioscope.app.referee.hypotheses import PLAIN, common_beginning
from ratioscope.app.referee.inputs import inputs_of
from ratioscope.app.referee.model import referee
from ratioscope.app.referee.reproduction import Trial, checkpoints_in, tried
from ratioscope.errors import SourceError

Logprobs = NDArray[np.float32]


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


@pytest.fixture(scope="module")
def folder(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(weights, tmp_path_factory.mktemp("model") / "tiny")


def best_of(run: Path, folder: Path, policy: str = "rollout", checkpoints: list[Path] | None = None) -> list[Best]:
    opened, judge = open_run(run), referee(folder, device="cpu")
    inputs = inputs_of(opened, chosen(opened, Wanted(everything=True)), judge.room)
    found = tried(judge, inputs.sequences, Trial(checkpoints or []))
    assert not found.skipped
    return [best for best in found.best if best.policy == policy]


@torch.no_grad()
def at_temperature(weights: Any, prompt: list[int], response: list[int], temperature: float) -> Logprobs:
    logits = weights(torch.tensor([prompt + response])).logits.float()[0, len(prompt) - 1 : -1] / temperature
    found: Logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0].numpy()
    return found


@torch.no_grad()
def by_autocast(weights: Any, prompt: list[int], response: list[int]) -> Logprobs:
    with torch.autocast("cpu", torch.bfloat16):
        return tiny.trainer_logprobs(weights, prompt, response)


@torch.no_grad()
def restarted(weights: Any, prompt: list[int], response: list[int]) -> Logprobs:
    """One sequence whose response has positions from 0 on, attended to as ever."""
    ids = torch.tensor([prompt + response])
    places = torch.tensor([[*range(len(prompt)), *range(len(response))]])
    causal = torch.ones((1, 1, ids.shape[1], ids.shape[1]), dtype=torch.bool).tril()
    logits = weights(ids, position_ids=places, attention_mask=causal).logits.float()[0, len(prompt) - 1 : -1]
    found: Logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0].numpy()
    return found


def shifted(weights: Any, prompt: list[int], response: list[int]) -> Logprobs:
    found = tiny.trainer_logprobs(weights, prompt, response)
    return np.concatenate([found[1:], np.full(1, -1.0, np.float32)])


def with_prompt(change: Any) -> Any:
    return lambda weights, prompt, response: tiny.trainer_logprobs(weights, change(prompt), response)


@torch.no_grad()
def with_fp8_cache(weights: Any, prompt: list[int], response: list[int]) -> Logprobs:
    """Decodes token by token; after each, what the cache holds is rounded."""
    made: Any = import_module("transformers").DynamicCache  # Any: its types are those of all its models, in 2,800 files

    def e4m3(tensor: Any) -> Any:
        return tensor.to(torch.float8_e4m3fn).float()

    class Rounding(made):  # type: ignore[misc]
        def update(self, key_states: Any, value_states: Any, *rest: Any, **named: Any) -> Any:
            return super().update(e4m3(key_states), e4m3(value_states), *rest, **named)

    cache, found = Rounding(), list[Any]()
    for token in [*prompt, *response][:-1]:
        logits = weights(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits.float()[0, -1]
        found.append(torch.log_softmax(logits, -1))
    own = torch.stack(found[len(prompt) - 1 :]).gather(1, torch.tensor(response)[:, None])[:, 0]
    logprobs: Logprobs = own.numpy()
    return logprobs


INJECTED = {
    "temperature 0.7": lambda w, p, r: at_temperature(w, p, r, 0.7),
    "temperature 1.5": lambda w, p, r: at_temperature(w, p, r, 1.5),
    "each log-prob one token later": shifted,
    "without the first token of the prompt": with_prompt(lambda ids: ids[1:]),
    "with the first token of the prompt twice": with_prompt(lambda ids: [ids[0], *ids]),
    "with BOS before the prompt": with_prompt(lambda ids: ids if ids[0] == 1 else [1, *ids]),
    "without the last 2 tokens of the prompt": with_prompt(lambda ids: ids[:-2]),
    "weights in bfloat16, computed in float32": lambda w, *a: tiny.trainer_logprobs(rounded(torch.bfloat16)(w), *a),
    "weights of 8 bits": lambda w, *a: tiny.trainer_logprobs(quantised(127)(w), *a),
    "weights of 4 bits": lambda w, *a: tiny.trainer_logprobs(quantised(7)(w), *a),
    "weights in float16, computed in float32": lambda w, *a: tiny.trainer_logprobs(rounded(torch.float16)(w), *a),
    "weights in FP8 (e4m3), a scale per matrix": lambda w, *a: tiny.trainer_logprobs(in_fp8(per_row=False)(w), *a),
    "weights in FP8 (e4m3), a scale per row": lambda w, *a: tiny.trainer_logprobs(in_fp8(per_row=True)(w), *a),
    "a KV cache in FP8 (e4m3)": with_fp8_cache,
    "positions that begin anew at the response": restarted,
    "temperature 0.7 and without the last 2 tokens of the prompt": lambda w, p, r: at_temperature(w, p[:-2], r, 0.7),
    "weights of 4 bits and temperature 1.2": lambda w, p, r: at_temperature(quantised(7)(w), p, r, 1.2),
}


@pytest.mark.parametrize("name", INJECTED)
def test_an_injected_fault_is_found_and_only_on_its_side(weights: Any, folder: Path, tmp_path: Path, name: str) -> None:
    engine = INJECTED[name]
    run = tiny.record(
        tmp_path / "run", lambda *pair: engine(weights, *pair), lambda *pair: tiny.trainer_logprobs(weights, *pair),
        sampler=weights, steps=(10,),
    )  # fmt: skip
    (best,) = best_of(run, folder)
    first, _, second = name.partition(" and ")
    assert best.hypothesis in (name, f"{second} and {first}") and best.verdict == "reproduced"
    assert best.mean < 1e-5 < best.plain
    assert "rollout (the engine's) is reproduced to" in best.sentence
    (other,) = best_of(run, folder, "old")
    assert (other.hypothesis, other.verdict) == (PLAIN.name, "reproduced")


@pytest.mark.parametrize(
    ("names", "engine"),
    [
        (
            {"bfloat16", "bfloat16 with the head in float32"},
            lambda w, *a: tiny.trainer_logprobs(computed_in(torch.bfloat16)(w), *a),
        ),
        ({"bfloat16 by autocast"}, by_autocast),
        (
            {"float16", "float16 with the head in float32"},
            lambda w, *a: tiny.trainer_logprobs(computed_in(torch.float16)(w), *a),
        ),
    ],
    ids=["bfloat16", "autocast", "float16"],
)  # fmt: skip
def test_low_precision_is_told_from_other_faults(
    weights: Any, folder: Path, tmp_path: Path, names: set[str], engine: Any
) -> None:
    """Kernels round in another order with another batch, so low precision is explained in part, and rarely reproduced."""
    trainer = lambda *pair: tiny.trainer_logprobs(weights, *pair)  # noqa: E731
    run = tiny.record(tmp_path / "run", lambda *pair: engine(weights, *pair), trainer, sampler=weights, steps=(10,))
    (best,) = best_of(run, folder)
    assert best.hypothesis in names and best.verdict != "no"


def test_the_checkpoint_that_the_engine_really_held_is_found_among_ten(weights: Any, tmp_path: Path) -> None:
    """The trainer moves on at every step; from step 30 on the engine keeps the weights of step 20."""
    trained = [tiny.trained_on(weights, seed, 0.003 * (seed + 1)) for seed in range(10)]
    folders = [tiny.saved(each, tmp_path / "checkpoints" / f"step-{10 * k}") for k, each in enumerate(trained)]
    for step in (10, 20, 30, 40):
        engine, trainer = trained[min(step, 20) // 10], trained[step // 10]
        tiny.record(
            tmp_path / "run", lambda *pair, own=engine: tiny.trainer_logprobs(own, *pair),
            lambda *pair, own=trainer: tiny.trainer_logprobs(own, *pair), sampler=engine, steps=(step,),
        )  # fmt: skip
    checkpoints = checkpoints_in(tmp_path / "checkpoints")
    assert checkpoints == folders
    found = best_of(tmp_path / "run", folders[9], checkpoints=checkpoints)
    assert [(best.hypothesis, best.steps) for best in found] == [
        ("the checkpoint step-10", (10,)), ("the checkpoint step-20", (20, 30, 40))
    ]  # fmt: skip
    assert all(best.verdict == "reproduced" and best.mean < 1e-5 for best in found)


def test_noise_is_not_reproduced_by_anything(weights: Any, folder: Path, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)

    def engine(*pair: Any) -> Any:
        return tiny.trainer_logprobs(weights, *pair) + chance.normal(0, 0.05, len(pair[1]))

    trainer = lambda *pair: tiny.trainer_logprobs(weights, *pair)  # noqa: E731
    run = tiny.record(tmp_path / "run", engine, trainer, sampler=weights, steps=(10,))
    (best,) = best_of(run, folder)
    assert best.verdict == "no" and "is not reproduced" in best.sentence


def test_a_common_beginning_is_that_of_prompts_that_differ() -> None:
    assert common_beginning([(1, 2, 3), (1, 2, 3)]) == 0
    assert common_beginning([(1, 2, 3), (1, 2), (1, 2, 9)]) == 2


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no checkpoint"):
        checkpoints_in(tmp_path)


def test_the_finding_enters_the_diagnosis_as_proof(
    weights: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny.record(
        tmp_path / "run", lambda p, r: at_temperature(weights, p, r, 0.7), lambda *pair: tiny.trainer_logprobs(weights, *pair),
        sampler=weights, steps=(10, 20),
    )  # fmt: skip
    assert main(["rescore", str(run), "--model", str(folder), "--device", "cpu", "--try", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tried"]
    assert found["best"][0]["hypothesis"] == "temperature 0.7" and found["sentences"][0].startswith(
        "rollout (the engine's)"
    )
    assert main(["diagnose", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "proof rollout (the engine's) is reproduced to" in said and "by temperature 0.7 (steps 10 to 20)" in said
    assert main(["diagnose", str(run), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["proofs"]) == 1
