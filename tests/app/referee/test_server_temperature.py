"""Temperature and truncation through a server: log-probs between the bounds that its likeliest tokens leave."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import tiny_model as tiny
from support.engine_server import EngineServer, engine_server

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.referee import server
from ratioscope.app.referee.likeliest import LIKELIEST, SETTINGS, Likeliest, between, likeliest
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
COOL = {"sampling": NEUTRAL | {"temperature": 0.7}, "model": {"name": "org/Tiny"}}
SIZE = 0.02
"""Standard deviation of the rounding of a decode, nats."""
Logprobs = Callable[[list[int], list[int]], Any]


@pytest.fixture(scope="module")
def weights() -> Any:
    """Sharper than the default: most of the probability is that of 20 tokens, as in a language model."""
    return tiny.model(initializer_range=0.6)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.0)
    monkeypatch.delenv(server.KEY, raising=False)


def true_logprob(p: list[float], token: int, name: str, value: float) -> float:
    """The log-prob of a sampled token under a setting, by a plain loop over the whole vocabulary."""
    order, kept = sorted(range(len(p)), key=lambda k: -p[k]), set[int]()
    if name == "temperature":
        return math.log(p[token] ** (1 / value) / sum(each ** (1 / value) for each in p))
    if name == "top_k":
        kept = set(order[: int(value)])
    elif name == "min_p":
        kept = {k for k in order if p[k] >= value * max(p)}
    else:
        before = 0.0
        for k in order:
            kept |= {k} if before < value else set()
            before += p[k]
    return math.log(p[token] / sum(p[k] for k in kept | {token}))


def known(p: list[float], token: int, most: int = LIKELIEST) -> Likeliest:
    return Likeliest(np.array([math.log(p[token])]), np.log(np.array([sorted(p, reverse=True)[:most]])))


VALUES = {"temperature": st.floats(0.2, 5), "top_p": st.floats(0.05, 0.999), "min_p": st.floats(0.001, 0.9)}


@pytest.mark.parametrize("name", SETTINGS)
@given(data=st.data(), size=st.integers(2, 200), sharpness=st.floats(0.1, 8))
def test_the_true_log_prob_lies_between_the_bounds(name: str, data: st.DataObject, size: int, sharpness: float) -> None:
    chance = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    logits = chance.normal(0, sharpness, size)
    p = (np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()).tolist()
    token = int(chance.choice(size, p=p))
    value = data.draw(VALUES.get(name, st.integers(1, 250)))
    (low,), (high,) = between(known(p, token), (name, float(value)))
    assert low - 1e-9 <= true_logprob(p, token, name, value) <= high + 1e-9


@pytest.mark.parametrize("off", [-1e-7, 0.0, 1e-7])
def test_a_kept_token_that_is_rounded_down_is_not_counted_twice(off: float) -> None:
    p = [0.9, 0.06, *[0.04 / 18] * 18]
    for at, value in ((0, 1.0), (1, 2.0), (19, 20.0)):
        held = Likeliest(np.array([math.log(p[at]) + off]), np.log(np.array([p])))
        (low,), (high,) = between(held, ("top_k", value))
        true = math.log(p[at] / sum(p[: int(value)]))
        assert low - 1e-5 <= true <= high + 1e-5 and not held.is_beyond.any()


def test_the_bounds_meet_where_nothing_is_left_over_and_part_above_temperature_1() -> None:
    even, sharp = [1 / 1000] * 1000, [0.9, 0.0999, 0.0001]
    for setting in (("temperature", 0.5), ("top_p", 0.5), ("top_k", 2.0), ("min_p", 0.2)):
        (low,), (high,) = between(known(sharp, 0), setting)
        assert high - low < 1e-2 and low == pytest.approx(true_logprob(sharp, 0, *setting), abs=1e-2)
    (low,), (high,) = between(known(even, 3), ("temperature", 1.5))
    assert high - low > 0.5
    (low,), (high,) = between(known(even, 3), ("temperature", 1.0))
    assert high - low < 1e-4 and low == pytest.approx(math.log(1 / 1000), abs=1e-4)


def at(weights: Any, temperature: float = 1.0, size: float = 0.0) -> Logprobs:
    """Log-probs of a sampler that divides its logits by the temperature, and rounds by this size."""

    def logprobs(prompt: list[int], response: list[int]) -> Any:
        chance = np.random.default_rng([1, *prompt, *response])
        own = every(weights, prompt, response, temperature)[np.arange(len(response)), response]
        return np.minimum(own + chance.normal(0, size, len(response)), 0)

    return logprobs


@torch.no_grad()
def every(weights: Any, prompt: list[int], response: list[int], temperature: float = 1.0) -> NDArray[np.float32]:
    """The log-probs of all tokens at each place of the response."""
    logits = weights(torch.tensor([prompt + response])).logits.float()[0, len(prompt) - 1 : -1]
    found: NDArray[np.float32] = torch.log_softmax(logits / temperature, -1).numpy()
    return found


def served(kind: str, weights: Any, **settings: Any) -> Any:
    """A server whose decode rounds, at the temperature that it is asked for."""
    own: dict[str, Any] = {
        "top": lambda model, prompt, response: every(weights, prompt, response),
        "sampler": lambda model, prompt, tokens: tiny.sampled(weights, prompt, min(24, tokens), len(prompt)),
        "scaled": lambda sampling, model, *pair: at(weights, sampling["temperature"], SIZE)(*pair),
    }
    return engine_server(kind, at(weights), **(own | settings))


@KINDS
def test_a_run_of_another_temperature_is_read_at_it_and_the_bounds_are_told(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    cool = at(weights, 0.7)
    config = COOL | {"logprobs_mode": "processed_logprobs"}
    run = tiny.record(tmp_path / "run", cool, cool, sampler=weights, config=config)
    with served(kind, weights) as engine:
        assert main(["rescore", str(run), "--engine", engine.address, "--all"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert main(["rescore", str(run), "--engine", engine.address, "--all"]) == 0
        assert "12 more were read before" in capsys.readouterr().out
    assert "not certain: a server gives the 20 likeliest tokens of each place alone" in said
    assert "temperature 0.7 are known to ±" in said and "the server's log-probs are of" not in said
    opened = open_run(run)
    gap = opened.metrics((), gap="rollout:engine_prefill")["rollout:engine_prefill/abs_log_ratio"].item()
    plain = np.concatenate([at(weights)(*pair) - cool(*pair) for pair in pairs(run)])
    assert gap < 0.05 * np.abs(plain).mean()
    (made,) = opened.readings["engine_prefill"].made_of
    assert (made["temperature"], made["likeliest tokens"]) == (0.7, LIKELIEST)


def pairs(run: Path) -> list[tuple[list[int], list[int]]]:
    opened = open_run(run)
    tables = [opened.rows(step, columns=["prompt_ids", "token_ids"]) for step in opened.steps]
    return [(row["prompt_ids"], row["token_ids"]) for table in tables for row in table.to_pylist()]


@KINDS
def test_a_temperature_that_one_side_forgot_is_found_through_a_server(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The engine divides its logits by 0.7, and the record says 1."""
    config = COOL | {"sampling": NEUTRAL}
    run = tiny.record(tmp_path / "run", at(weights, 0.7, SIZE), at(weights), sampler=weights, config=config)
    with served(kind, weights) as engine:
        assert main(["rescore", str(run), "--engine", engine.address, "--try", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["readings"]
    (best,) = [own for own in found["tried"]["best"] if own["policy"] == "rollout"]
    assert best["hypothesis"] == "temperature 0.7" and best["mean"] * 10 < best["plain"]
    first = diagnosis_of(open_run(run)).diagnosis.likely[0]
    assert (first.cause.code, first.side) == ("trainer_temperature", "engine")


@KINDS
def test_a_trainer_without_the_temperature_of_its_run_is_found_through_a_server(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = COOL | {"logprobs_mode": "processed_logprobs"}
    run = tiny.record(tmp_path / "run", at(weights, 0.7), at(weights), sampler=weights, config=config)
    with served(kind, weights) as engine:
        assert main(["rescore", str(run), "--engine", engine.address, "--try"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "by temperature 1 (steps 10 to 30" in said


def test_a_server_that_gives_no_likeliest_tokens_tries_the_rest(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = at(weights)
    run = tiny.record(
        tmp_path / "run", lambda prompt, response: own(prompt[:-2], response), own, sampler=weights,
        config=COOL | {"sampling": NEUTRAL},
    )  # fmt: skip
    with served("vllm", weights, top=None) as engine:
        assert main(["rescore", str(run), "--engine", engine.address, "--try"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "by without the last 2 tokens of the prompt" in said
    assert "other alternatives: Unknown: http://127.0.0.1:" in said and "status 404" in said


def spoiled(change: Callable[[list[float]], list[float]]) -> Callable[[Any], Any]:
    """An answer with the log-probs of the likeliest tokens at its last place changed."""

    def fault(answer: Any) -> Any:
        if isinstance(answer, list):
            place = answer[0]["meta_info"]["input_top_logprobs"][-1]
            place[:] = [[x, 1, None] for x in change([x for x, *_ in place])]
        else:
            place = answer["choices"][0]["prompt_logprobs"][-1]
            own = next(iter(place))
            made = {str(1000 + k): {"logprob": x} for k, x in enumerate(change([e["logprob"] for e in place.values()]))}
            answer["choices"][0]["prompt_logprobs"][-1] = {own: place[own], **made}
        return answer

    return fault


@KINDS
@pytest.mark.parametrize(
    "change",
    [
        lambda every: [math.nan, *every[1:]],
        lambda every: [0.5, *every[1:]],
        lambda every: [-0.01] * len(every),
        lambda every: every[:1],
        lambda every: ["-1", *every[1:]],
    ],
)
def test_likeliest_tokens_that_are_none_are_refused_and_nothing_is_written(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, change: Any
) -> None:
    config = COOL | {"logprobs_mode": "processed_logprobs"}
    run = tiny.record(tmp_path / "run", at(weights, 0.7), at(weights), sampler=weights, config=config, steps=(10,))
    with served(kind, weights, fault=spoiled(change)) as engine:
        assert main(["rescore", str(run), "--engine", engine.address]) == 3
    said = capsys.readouterr().err
    assert "likeliest" in said or "has another form" in said
    assert not (run / "readings").exists()


def test_a_list_that_ends_early_is_whole_only_if_its_probabilities_are() -> None:
    assert likeliest(np.array([-0.7], np.float32), [[math.log(0.5), math.log(0.5)]]).rest == pytest.approx(
        [0], abs=1e-6
    )
    with pytest.raises(SourceError, match="wanted the log-probs of 20 at each of 1 place"):
        likeliest(np.array([-0.7], np.float32), [[math.log(0.5), math.log(0.4)]])


def test_the_mode_that_tells_the_temperature_is_asked_for(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny.record(tmp_path / "run", at(weights, 0.7), at(weights), sampler=weights, config=COOL, steps=(10,))
    engine: EngineServer
    with served("vllm", weights) as engine:
        assert main(["rescore", str(run), "--engine", engine.address]) == 2 and not engine.asked
        error = " ".join(capsys.readouterr().err.split())
        assert "its log-prob mode is not on record" in error and "--temperature 0.7 if the logits were divided" in error
        assert main(["rescore", str(run), "--engine", engine.address, "--temperature", "0.7"]) == 0
    assert open_run(run).readings["engine_prefill"].made_of[0]["temperature"] == 0.7
