"""--try through a server with the rounding of a low precision: its own decode beside its prefill is the floor of proof."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny_model as tiny
from support.engine_server import engine_server

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.referee import server
from ratioscope.ingest.analysis.diagnosis import diagnosis_of

SETTINGS = {"sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}}
SIZE = 0.02
"""Standard deviation of the rounding of a log-prob, nats."""
Logprobs = Callable[[list[int], list[int]], Any]


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.0)
    monkeypatch.delenv(server.KEY, raising=False)


def rounded(weights: Any, seed: int, size: float = SIZE) -> Logprobs:
    """Log-probs of the model, each off by chance as these tokens and this kernel (the seed) make it."""

    def logprobs(prompt: list[int], response: list[int]) -> Any:
        own = tiny.trainer_logprobs(weights, prompt, response)
        chance = np.random.default_rng([seed, *prompt, *response])
        return np.minimum(own + chance.normal(0, size, len(response)), 0)

    return logprobs


def served(kind: str, weights: Any, size: float = SIZE, **settings: Any) -> Any:
    """A server whose prefill and decode round otherwise, and that stops after 24 tokens. loras: name of an adapter -> weights."""
    loras = settings.pop("loras", {})
    settings["adapters"] = {name: rounded(own, 0, size) for name, own in loras.items()}

    def sampler(model: str, prompt: list[int], tokens: int) -> list[int]:
        return tiny.sampled(loras[model] if model else weights, prompt, min(24, tokens), len(prompt))

    def decode(model: str, prompt: list[int], response: list[int]) -> Any:
        return rounded(loras[model] if model else weights, 1, size)(prompt, response)

    return engine_server(kind, rounded(weights, 0, size), **({"sampler": sampler, "decode": decode} | settings))


def recorded(folder: Path, weights: Any, change: Callable[[list[int]], list[int]], **options: Any) -> Path:
    """A run whose engine reads a changed prompt, and rounds."""
    decode = rounded(weights, 1)
    asked = options.get("prompts_of", lambda prompt: prompt)
    return tiny.record(
        folder, lambda prompt, response: decode(change(asked(prompt)), response),
        lambda prompt, response: tiny.trainer_logprobs(weights, asked(prompt), response), sampler=weights, config=SETTINGS,
        **({"steps": (10, 20), "sequences": 6} | options),
    )  # fmt: skip


def tried_by(address: str, run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Policy -> what `--try` found first."""
    capsys.readouterr()
    assert main(["rescore", str(run), "--engine", address, "--try", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["readings"]
    return {name: found["tried"][name] for name in ("skipped", "means")} | {
        best["policy"]: best for best in found["tried"]["best"][::-1]
    }


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_fault_of_an_engine_that_rounds_is_proved_to_the_floor_of_its_own_server(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    run = recorded(tmp_path / "run", weights, lambda prompt: prompt[:-2])
    with served(kind, weights) as engine:
        every = tried_by(engine.address, run, capsys)
    found = every["rollout"]
    others = [mean for name, mean in every["means"]["rollout"].items() if name != found["hypothesis"]]
    assert found["hypothesis"] == "without the last 2 tokens of the prompt" and not found["others"]
    assert len(others) > 3 and min(others) > 2 * found["floor"]
    assert found["floor"] == pytest.approx(SIZE * 2 / np.pi**0.5, rel=0.2)  # E|x| of a difference of two normal numbers
    assert 0 < found["floor_error"] < found["floor"] / 5 and found["mean"] <= 1.5 * (
        found["floor"] - found["floor_error"]
    )
    first = diagnosis_of(open_run(run)).diagnosis.likely[0]
    assert (first.cause.code, first.side, first.confidence) == ("different_prompt", "engine", "high")
    assert "the server's decode alone gives 0.02" in first.proof


def test_an_engine_whose_fault_is_not_among_the_alternatives_is_not_proved_to_have_one_of_them(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "run", tiny.trained_on(weights, 3, size=0.1), lambda prompt: prompt, steps=(10,))
    with served("vllm", weights) as engine:
        found = tried_by(engine.address, run, capsys)["rollout"]
    assert found["plain"] > 3 * found["plain_floor"] > 0
    assert not any(item.proved for item in diagnosis_of(open_run(run)).diagnosis.likely)


def test_a_decode_as_near_as_the_server_is_to_itself_is_left_alone(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "run", weights, lambda prompt: prompt, steps=(10,))
    with served("vllm", weights) as engine:
        found = tried_by(engine.address, run, capsys)
        assert {found[policy]["hypothesis"] for policy in ("rollout", "old")} == {"the server as it is"}
        assert [path for path, _ in engine.asked].count("/v1/completions") == 4  # twice all, decode and its prefill
        assert main(["rescore", str(run), "--engine", engine.address, "--try"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rollout (the engine's) is reproduced to 0.02" in said and "by the server as it is" in said
    assert "decides nothing" not in said and " arise between the engine's decode and its prefill" in said


def test_two_alternatives_that_read_alike_are_a_set(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All prompts begin with the same two tokens, which the engine did not read."""
    begun = lambda prompt: [7, 8, *prompt]  # noqa: E731
    run = recorded(tmp_path / "run", weights, lambda prompt: prompt[2:], prompts_of=begun)
    with served("vllm", weights) as engine:
        found = tried_by(engine.address, run, capsys)["rollout"]
    alike = {"without the first 2 tokens of the prompt", "without the 2 tokens that all prompts begin with"}
    assert {found["hypothesis"], *found["others"]} == alike
    assert diagnosis_of(open_run(run)).diagnosis.likely[0].confidence == "high"  # both show the same cause


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"sampler": None}, "status 404"),
        ({"decode": lambda _, prompt, response: [np.nan] * len(response)}, "gives the log-prob nan"),
    ],
)
def test_a_server_that_does_not_show_its_decode_has_no_floor_and_proves_nothing(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], why: str
) -> None:
    run = recorded(tmp_path / "run", weights, lambda prompt: prompt[:-2], steps=(10,))
    with served("vllm", weights, 0.001, **settings) as engine:
        found = tried_by(engine.address, run, capsys)
    assert why in found["skipped"]["the server's decode beside its prefill"]
    first = next(item for item in diagnosis_of(open_run(run)).diagnosis.likely if item.cause.code == "different_prompt")
    assert first.confidence != "high"


@pytest.mark.parametrize("kind", ["vllm", "sglang", "two servers"])
def test_the_adapter_that_the_engine_held_on_to_is_found_among_those_that_a_server_has(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The trainer goes on to step40 after the first step, the engine stays at step20."""
    step20, step40 = (tiny.trained_on(weights, seed, size=0.05) for seed in (1, 2))
    decode, config = rounded(step20, 1), SETTINGS | {"model": {"name": "org/Tiny"}}
    for step, own in zip(tiny.STEPS, (step20, step40, step40), strict=True):
        trainer = lambda *pair, own=own: tiny.trainer_logprobs(own, *pair)  # noqa: E731
        tiny.record(tmp_path / "run", decode, trainer, sampler=step20, config=config, steps=(step,), sequences=6)
    if kind == "two servers":
        made = served("vllm", step20, root="/step20"), served("vllm", step40, root="/step40")
        names = "tiny", "tiny"
    else:
        made = (served(kind, weights, loras={"step20": step20, "step40": step40}),) * 2
        names = "step20", "step40"
    with ExitStack() as stack:
        engines = {own: stack.enter_context(own) for own in dict.fromkeys(made)}
        addresses = [
            f"step{n}={engines[own].address}#{name}" for n, own, name in zip((20, 40), made, names, strict=True)
        ]
        named = [text for address in addresses for text in ("--engine", address)]
        assert main(["rescore", str(tmp_path / "run"), *named, "--try"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "step40 stands for the current weights" in said and "not certain" not in said
    assert "rollout (the engine's) is reproduced to 0.02" in said and "by the checkpoint step20 (steps 10 to 30" in said
    assert "this side holds the weights of step20, not the current ones: check the weight sync" in said
    first, *others = diagnosis_of(open_run(tmp_path / "run")).diagnosis.likely
    assert (first.cause.code, first.side, first.confidence) == ("sync_broke", "engine", "high")
    assert not any(item.side == "trainer" for item in others)


def test_a_replica_is_no_other_checkpoint(weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path / "run", weights, lambda prompt: prompt, steps=(10,))
    with served("vllm", weights) as one, served("vllm", weights, 0.3) as other:
        assert (
            main(["rescore", str(run), "--engine", f"one={one.address}", "--engine", f"two={other.address}", "--try"])
            == 0
        )
    assert "the checkpoint two: its weights are those of one by their names" in " ".join(
        capsys.readouterr().out.split()
    )
