"""`rescore --engine`: running servers of vLLM and SGLang score recorded tokens, and say what part of the gap is the engine's."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from support import tiny_model as tiny
from support.engine_server import EngineServer, compressed, cut, dripping, elsewhere, endless, engine_server, halting

from ratioscope import open_run
from ratioscope.app.blocks import Paragraph
from ratioscope.app.cli import main
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.pages.overview import overview
from ratioscope.app.referee import engines, server
from ratioscope.app.referee.answer import side_off
from ratioscope.app.referee.choice import Wanted
from ratioscope.app.referee.engine_part import ENGINE_PART, engine_part
from ratioscope.app.referee.engines import engine_at
from ratioscope.app.referee.model import referee
from ratioscope.app.referee.rescoring import rescore
from ratioscope.app.referee.server import server_at
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.layout import EVENT

EVERYTHING = Wanted(everything=True)
KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])
SETTINGS = {"sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}}


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


def scored(weights: Any, off: float = 0.0, seed: int = 0) -> Callable[..., Any]:
    """Log-probs of the model, each off by a normal number of this size that depends on the tokens alone."""

    def logprobs(prompt: list[int], response: list[int]) -> Any:
        own = tiny.trainer_logprobs(weights, prompt, response)
        return (
            np.minimum(own + np.random.default_rng(seed + sum(response)).normal(0, off, len(response)), 0)
            if off
            else own
        )

    return logprobs


@pytest.fixture(scope="module")
def recorded(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine's decode is off by about 0.05 nats a token, the trainer by 0.02."""
    folder, config = tmp_path_factory.mktemp("recorded") / "run", SETTINGS | {"model": {"name": "org/Tiny"}}
    return tiny.record(folder, scored(weights, 0.05), scored(weights, 0.02, 1), sampler=weights, config=config)


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(copytree(recorded, tmp_path / "run"))


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.0)
    monkeypatch.delenv(server.KEY, raising=False)


@pytest.fixture(params=["vllm", "sglang"])
def served(request: pytest.FixtureRequest, weights: Any) -> Iterator[EngineServer]:
    with engine_server(request.param, scored(weights)) as made:
        yield made


def read(run: Path, engine: EngineServer, name: str = "engine_prefill", **options: Any) -> Any:
    judge = engine_at(server_at(engine.address), **options)
    return rescore(open_run(run), judge, EVERYTHING, name=name)


def test_a_server_reads_what_a_model_reads(run: Path, weights: Any, served: EngineServer, tmp_path: Path) -> None:
    done = read(run, served)
    assert (done.sequences, done.before, done.steps) == (12, 0, list(tiny.STEPS))
    rescore(open_run(run), referee(tiny.saved(weights, tmp_path / "model"), device="cpu"), EVERYTHING)
    opened = open_run(run)
    assert opened.metrics((), gap="engine_prefill:referee")["engine_prefill:referee/max_abs_log_ratio"].item() < 1e-5
    (made,) = opened.readings["engine_prefill"].made_of
    told = {"engine": "vllm 0.32.0"} if served.kind == "vllm" else {"engine": "sglang 0.5.23", "weight_version": "7"}
    assert made == {"served": "tiny", "log-probs": "prompt", "temperature": 1.0, **told}
    assert read(run, served).before == 12 and {path for path, _ in served.asked if "http" in path} == set()


def test_the_answer_splits_the_gap_into_two_parts_that_add_up(run: Path, served: EngineServer) -> None:
    read(run, served)
    opened = open_run(run)
    frame = opened.tokens(columns=["rollout_logprob", "old_logprob", "engine_prefill_logprob"]).collect()
    decode, old, prefill = (frame[name].to_numpy() for name in frame.columns)
    x, found = old - decode, engine_part(opened)
    assert found is not None and found.decided == "parts" and found.steps == tiny.STEPS
    assert found.whole.mean == pytest.approx(np.abs(x).mean(), rel=1e-6)
    assert found.part[0] == pytest.approx((np.sign(x) * (prefill - decode)).mean(), rel=1e-6)
    assert found.part[0] > 0.75 * found.whole.mean > 0 and 0 < found.part[1] < found.part[0] / 5
    assert " nats/token (mean |x|) arise between the engine's decode and its prefill, " in found.sentence


def test_every_face_says_it(run: Path, served: EngineServer, capsys: pytest.CaptureFixture[str]) -> None:
    read(run, served)
    opened = open_run(run)
    found, data = engine_part(opened), material(opened)
    assert found is not None
    page, text, twin = html_report(data), markdown_report(data), json.loads(json_report(data))
    number = found.sentence.partition(" nats/token")[0]
    assert number in page and number in text and twin["engine_part"]["sentence"] == found.sentence
    said = [block for block in overview(data.scope) if isinstance(block, Paragraph) and block.head == ENGINE_PART]
    assert [block.text for block in said] == [found.sentence]
    assert main(["info", str(run)]) == 0
    told = capsys.readouterr().out
    assert found.sentence in told and f"by {served.kind} 0." in told


def test_a_prefill_of_the_engine_judges_nobody(run: Path, served: EngineServer) -> None:
    before = diagnosis_of(open_run(run))
    read(run, served)
    after = diagnosis_of(open_run(run))
    assert side_off(open_run(run)) is None and (after.diagnosis, after.next) == (before.diagnosis, before.next)


def test_a_server_with_other_weights_decides_nothing(run: Path) -> None:
    with engine_server("vllm", scored(tiny.model(seed=5))) as other:
        read(run, other)
    found = engine_part(open_run(run))
    assert found is not None and found.decided == "other weights" and "other weights now" in found.sentence


def test_steps_of_other_weights_are_left_out(weights: Any, tmp_path: Path) -> None:
    later = tiny.trained_on(weights, 3, size=0.2)
    for step, own in zip(tiny.STEPS, (later, weights, later), strict=True):
        tiny.record(tmp_path / "run", scored(own, 0.05), scored(own, 0.02, 1), sampler=own, steps=(step,))
    with engine_server("vllm", scored(weights)) as served:
        read(tmp_path / "run", served)
    found = engine_part(open_run(tmp_path / "run"))
    assert found is not None and found.steps == (20,) and "These numbers are of step 20." in found.sentence


def test_a_reading_that_was_resumed_after_a_weight_sync_says_what_it_may_be_of(
    run: Path, served: EngineServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def doubts() -> list[str]:
        assert main(["rescore", str(run), "--engine", served.address, "--all", "--json"]) == 0
        found: list[str] = json.loads(capsys.readouterr().out)["readings"][0]["doubts"]
        return found

    assert doubts() == []
    resumed = doubts()
    assert len(resumed) == (served.kind == "vllm") and all("vllm does not tell its weights" in each for each in resumed)
    OfflineWriter(run, "test").say({"kind": EVENT, "event": "weight_sync", "step": 30, "note": "version 30"})
    assert "1 weight sync at step 30 on record since this reading began: it may be of several weights" in doubts()[0]


def test_a_server_that_tells_of_other_weights_while_it_reads_is_doubted(
    run: Path, capsys: pytest.CaptureFixture[str], weights: Any
) -> None:
    def synced(answer: Any) -> Any:
        engine.weight_version = "8"
        return answer

    with engine_server("sglang", scored(weights), fault=synced) as engine:
        assert main(["rescore", str(run), "--engine", engine.address]) == 0
    assert "the server's weight_version went from 7 to 8 while it read" in " ".join(capsys.readouterr().out.split())


def test_requests_are_batched_within_the_bound(
    run: Path, served: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "REQUEST_TOKENS", 60)
    read(run, served, in_flight=2)
    sizes = [len(body.get("prompt") or body["input_ids"]) for _, body in served.asked if body]
    assert sum(sizes) == 12 and len(sizes) > 3 and max(sizes) > 1 and served.most_busy <= 2


def test_a_busy_server_is_asked_again_and_one_that_stays_so_is_an_error(
    run: Path, served: EngineServer, caplog: pytest.LogCaptureFixture
) -> None:
    served.statuses = [429, 503]
    assert read(run, served).sequences == 12
    assert sum("status 429: " in own and own.endswith(" s, try 2 of 6") for own in caplog.messages) == 1
    served.statuses, served.key = [500] * 30, ""
    with pytest.raises(SourceError, match="status 500 at each of 6 tries: .*not now"):
        read(run, served, "again")
    assert "again" not in open_run(run).readings


def test_what_was_read_before_a_failure_is_kept_and_not_read_twice(
    run: Path, served: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "REQUEST_TOKENS", 1)
    monkeypatch.setattr(engines, "AT_ONCE", 1)
    served.fault = lambda answer: answer if len(served.asked) < 9 else {}
    judge = replace(engine_at(server_at(served.address), 1), at_once=1)
    with pytest.raises(SourceError, match="has another form"):
        rescore(open_run(run), judge, EVERYTHING, name="engine_prefill")
    kept = open_run(run).readings["engine_prefill"].sequences
    served.fault = None
    done = read(run, served)
    assert 0 < kept == done.before and done.before + done.sequences == 12


def changed(answer: Any, change: Callable[[list[Any]], None]) -> Any:
    """The answer with a change of the places of its first sequence: pairs [log-prob, id]."""
    if isinstance(answer, list):
        change(answer[0]["meta_info"]["input_token_logprobs"])
        return answer
    choice = answer["choices"][0]
    pairs = [[None, 0], *([e["logprob"], int(i)] for place in choice["prompt_logprobs"][1:] for i, e in place.items())]
    change(pairs)
    choice["prompt_logprobs"] = [None, *({str(pair[1]): {"logprob": pair[0]}} for pair in pairs[1:])]
    return answer


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda pairs: pairs[-1].__setitem__(1, 95), "the server scored 95"),
        (lambda pairs: pairs[-1].__setitem__(0, float("nan")), "gives the log-prob nan"),
        (lambda pairs: pairs[-1].__setitem__(0, float("-inf")), "gives the log-prob -inf"),
        (lambda pairs: pairs[-1].__setitem__(0, -9999.0), "gives the log-prob -9999.0"),
        (lambda pairs: pairs[-1].__setitem__(0, 2.5), "gives the log-prob 2.5; .* gives logits"),
        (lambda pairs: pairs[-1].__setitem__(0, None), "gives the log-prob None"),
        (lambda pairs: pairs.pop(), "places for the .* that were asked for"),
    ],
)  # fmt: skip
def test_answers_that_are_no_log_probs_of_these_tokens_are_refused_and_nothing_is_written(
    run: Path, served: EngineServer, change: Callable[[list[Any]], None], wanted: str
) -> None:
    served.fault = lambda answer: changed(answer, change)
    with pytest.raises(SourceError, match=wanted):
        read(run, served)
    assert not (run / "readings").exists()


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (endless, "more than .* bytes"),
        (dripping, "TimeoutError at each of 6 tries: the answer took too long"),
        (halting, "TimeoutError at each of 6 tries: the answer took too long"),
        (compressed, "wanted JSON, found"),
        (cut, "ConnectionError at each of 6 tries: the answer was cut"),
        (elsewhere, "status 307.*redirects are never followed"),
    ],
)
def test_a_hostile_server_is_an_error_and_nothing_is_written(
    run: Path, served: EngineServer, monkeypatch: pytest.MonkeyPatch, raw: Any, wanted: str
) -> None:
    judge = engine_at(server_at(served.address))
    served.raw = raw
    monkeypatch.setattr(
        server.Server,
        "ask",
        lambda self, *given, ask=server.Server.ask, **bounds: ask(self, *given, **bounds, seconds=0.1),
    )
    with pytest.raises(SourceError, match=wanted):
        rescore(open_run(run), judge, EVERYTHING, name="engine_prefill")
    assert not (run / "readings").exists()


def test_sequences_beyond_the_servers_context_are_left_out_and_counted(run: Path, served: EngineServer) -> None:
    served.longest = 21
    done = read(run, served)
    ((reason, number),) = done.left_out.items()
    assert "longer than the 20 positions of the server" in reason and number + done.sequences == 12 and number


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"sampling": {"temperature": 0.7}}, "temperature 0.7, and its log-prob mode is not on record"),
        ({"sampling": {"temperature": 0.7}, "logprobs_mode": "raw_logprobs"}, ""),
        ({}, ""),
    ],
)
def test_a_temperature_whose_log_probs_may_be_of_two_kinds_is_refused(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], wanted: str
) -> None:
    own = scored(weights)
    run = tiny.record(tmp_path / "run", own, own, sampler=weights, config=config, steps=(10,))
    with engine_server("vllm", own) as served:
        code = main(["rescore", str(run), "--engine", served.address])
    said = capsys.readouterr()
    if wanted:
        assert code == 2 and wanted in said.err and not served.asked
    else:
        assert code == 0 and "temperature" in said.out and "agree to rounding" in said.out


def test_the_verb_reads_with_several_servers_and_keeps_the_key_to_itself(
    run: Path, served: EngineServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served.key = served.weight_version = "s3cr3t-of-mine"
    two = ["--engine", served.address, "--engine", f"again={served.address}#tiny"]
    assert main(["rescore", str(run), *two]) == 3
    assert "wanted a key: in the environment as RATIOSCOPE_ENGINE_KEY" in capsys.readouterr().err
    (tmp_path / "key").write_text("s3cr3t-of-mine\n")
    assert main(["rescore", str(run), *two, "--engine-key-file", str(tmp_path / "key"), "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)["readings"]
    assert [each["reading"] for each in found] == ["engine_prefill", "again"]
    assert found[0]["engine_part"]["decided"] == "parts" and "is slowed" in said.err
    monkeypatch.setenv(server.KEY, "s3cr3t-of-mine")
    served.statuses = [400]
    assert main(["rescore", str(run), "--engine", f"third={served.address}"]) == 3
    error = capsys.readouterr().err
    assert "Bearer [key]" in error
    stored = b"".join(file.read_bytes() for file in run.rglob("*") if file.is_file())
    assert b"s3cr3t" not in stored + (error + said.out + said.err).encode() and b"127.0.0.1" not in stored


def test_proxies_are_those_of_the_environment(run: Path, served: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", served.address)
    with pytest.raises(SourceError, match="status 404"):
        engine_at(server_at("http://engine.invalid:8000"))
    assert served.asked[0][0] == "http://engine.invalid:8000/v1/models"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert read(run, served).sequences == 12


@KINDS
def test_an_alternative_of_the_input_is_found_through_a_server_and_proves_the_cause(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    own = scored(weights)
    cut = lambda prompt, response: own(prompt[:-2], response)  # noqa: E731
    run = tiny.record(tmp_path / "run", cut, own, sampler=weights, config=SETTINGS)
    with engine_server(kind, own) as served:
        assert main(["rescore", str(run), "--engine", served.address, "--try"]) == 0
        assert served.most_busy <= 2
    said = " ".join(capsys.readouterr().out.split())
    assert "rollout (the engine's) is reproduced to" in said and "by without the last 2 tokens of the prompt" in said
    first, *_ = diagnosis_of(open_run(run)).diagnosis.likely
    assert first.cause.code == "different_prompt" and first.side == "engine" and first.confidence == "high"
    assert main(["diagnose", str(run)]) in (0, 1)
    said = " ".join(capsys.readouterr().out.split())
    assert "those of the server that read 'engine_prefill', without the last 2 tokens of the prompt" in said
    assert "referee" not in said


def test_a_server_that_reproduces_its_own_decode_proves_nothing_about_its_weights(
    weights: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, later = scored(weights), scored(tiny.trained_on(weights, 3, size=0.2))
    run = tiny.record(tmp_path / "run", own, later, sampler=weights, config=SETTINGS, steps=(10,))
    before = diagnosis_of(open_run(run)).diagnosis
    with engine_server("vllm", own) as served:
        assert main(["rescore", str(run), "--engine", served.address, "--try"]) == 0
    said = capsys.readouterr().out
    assert "by the server as it is" in said and "referee as it is" not in said
    assert "0 ± 0 of" in said and diagnosis_of(open_run(run)).diagnosis == before


def test_another_model_is_refused_unless_it_is_named(
    run: Path, served: EngineServer, capsys: pytest.CaptureFixture[str]
) -> None:
    served.served = "other"
    assert main(["rescore", str(run), "--engine", served.address]) == 3
    assert f"the run's model is org/Tiny, the server at {served.address} serves other" in capsys.readouterr().err
    assert main(["rescore", str(run), "--engine", f"{served.address}#wrong"]) == 3
    assert "serves other; wanted wrong" in capsys.readouterr().err
    assert main(["rescore", str(run), "--engine", f"{served.address}#other"]) == 0
    assert "not certain: the run's model is org/Tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "wanted --model PATH, or --engine URL"),
        (["--engine", "http://a", "--model", "m"], "--model and --engine do not go together"),
        (["--engine", "ftp://a"], "wanted an address such as http://host:8000"),
        (["--engine", "http://me:word@a"], "has a login in it"),
        (["--engine", "http://a/ö"], "wanted an address such as http://host:8000"),
        (["--engine", "rollout=http://a"], "is a policy"),
        (["--engine", "referee=http://a"], "the model's that judges both sides"),
        (["--engine", "http://a", "--engine", "http://b"], "two have the name engine_prefill"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: str
) -> None:
    assert main(["rescore", str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert wanted in error and "word" not in error.replace("words", "")


def test_a_server_of_another_kind_is_refused(run: Path) -> None:
    with engine_server("ollama", lambda *_: []) as other, pytest.raises(SourceError, match="names ollama as the owner"):
        engine_at(server_at(other.address))
    with pytest.raises(ConfigError, match="no header can hold"):
        server_at(other.address, f"a{os.linesep}b")
