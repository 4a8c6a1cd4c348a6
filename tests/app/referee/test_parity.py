"""`parity`: two scorers on the same tokens before a run, each also in other arms."""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import tiny_model as tiny
from support.engine_server import EngineServer, cut, elsewhere, endless, engine_server
from support.paths import DATA

from ratioscope import open_run
from ratioscope.app.blocks import Code, Heading, Paragraph
from ratioscope.app.cli import main
from ratioscope.app.documents.material import material
from ratioscope.app.pages.diagnosis import diagnosis
from ratioscope.app.pages.overview import overview
from ratioscope.app.presentation.parity_words import PARITY, parity_sentence
from ratioscope.app.referee import server
from ratioscope.app.referee.inputs import Sequence_
from ratioscope.app.referee.parity import command, model_arms
from ratioscope.app.referee.parity.command import command_of
from ratioscope.app.referee.parity.comparison import columns, compared
from ratioscope.app.referee.parity.limits import PUBLISHED, QUANTITIES, breaches, limits_of
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.comparability import run_facts
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import OF_SCORERS, verdict_of

KINDS = ("vllm", "sglang")
COLUMN = arrays(np.float32, 6, elements=st.floats(-30, 0, width=32))


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


@pytest.fixture(scope="module")
def model(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(weights, tmp_path_factory.mktemp("parity") / "model")


@pytest.fixture(scope="module")
def tokens(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight prompts with responses of 6 to 18 tokens."""
    lines = [
        {"prompt_ids": prompt, "token_ids": tiny.sampled(weights, prompt, 6 + 3 * (k % 5), k)}
        for k, prompt in enumerate(tiny.prompts(8))
    ]
    path = tmp_path_factory.mktemp("parity") / "tokens.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.0)
    monkeypatch.delenv(server.KEY, raising=False)


def scored(weights: Any, off: float = 0.0) -> Callable[..., Any]:
    return lambda prompt, response: tiny.trainer_logprobs(weights, prompt, response) - off


@pytest.fixture(params=KINDS)
def served(request: pytest.FixtureRequest, weights: Any) -> Iterator[EngineServer]:
    def sampler(model: str, prompt: list[int], tokens: int) -> list[int]:
        return tiny.sampled(weights, prompt, tokens, 0)

    with engine_server(request.param, scored(weights), sampler=sampler) as made:
        yield made


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """A function of arguments that gives (exit code, the JSON of `parity`)."""

    def asked(*arguments: Any) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["parity", *map(str, arguments), "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return asked


def rows(found: Any) -> dict[tuple[str, str, str], Any]:
    """(arm, scorer, later reading) -> what was found."""
    return {(row["arm"], row["who"], row["later"]): row["found"] for row in found["comparisons"]}


def mean(found: Any, arm: str, who: str = "A") -> float:
    """The largest mean |x| of an arm."""
    own: list[float] = [
        each["distance"]["mean"] for (name, scorer, _), each in rows(found).items() if (name, scorer) == (arm, who)
    ]
    return max(own)


@given(COLUMN, COLUMN)
def test_a_comparison_is_what_plain_loops_find(a: Any, b: Any) -> None:
    found = compared([a[:2], a[2:]], [b[:2], b[2:]])
    x = [float(second) - float(first) for first, second in zip(a, b, strict=True)]
    apart = [place for place in range(6) if a[place].tobytes() != b[place].tobytes()]
    assert found.distance.mean == pytest.approx(sum(map(abs, x)) / 6) and found.distance.largest == max(map(abs, x))
    assert found.distance.k3 == pytest.approx(sum(math.expm1(each) - each for each in x) / 6, rel=1e-9, abs=1e-12)
    assert found.multiplicative == pytest.approx(sum(math.exp(abs(each)) for each in x) / 6)
    assert found.equal == pytest.approx(1 - len(apart) / 6)
    assert found.first == ((0, apart[0]) if apart and apart[0] < 2 else (1, apart[0] - 2) if apart else None)


@given(COLUMN, COLUMN)
def test_a_distance_is_symmetric_and_zero_to_itself(a: Any, b: Any) -> None:
    there, back, own = compared([a], [b]), compared([b], [a]), compared([a], [a])
    assert (there.distance.mean, there.distance.largest, there.equal, there.first, there.probability) == (
        back.distance.mean,
        back.distance.largest,
        back.equal,
        back.first,
        back.probability,
    )
    assert (own.distance.mean, own.distance.k3, own.equal, own.first) == (0, 0, 1, None)


def test_a_log_prob_that_is_not_finite_is_set_aside_and_equal_to_none() -> None:
    own = [np.array([-1, np.nan, -np.inf], np.float32)]
    found = compared(own, own)
    assert (found.distance.tokens, found.distance.set_aside, found.first) == (1, 2, (0, 1))
    assert found.equal == pytest.approx(1 / 3)


def test_a_model_agrees_with_itself_in_every_arm(model: Path, tokens: Path, answer: Any) -> None:
    code, found = answer(model, "--tokens", tokens, "--device", "cpu")
    assert code == 0 and found["passed"] and not found["not_available"]
    assert "Two readings by A are equal to the last bit at all 87 tokens of 8 sequences." in found["answer"]
    own = rows(found)
    for arm in ("batch", "packed", "prefix", "decode"):
        assert mean(found, arm) < 1e-5
    assert own["adapter", "A", "perturbed"]["distance"]["mean"] > 0.1
    assert own["adapter", "A", "taken back"]["equal"] == 1.0


def test_packed_rows_without_the_mask_would_be_told(
    model: Path, tokens: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmasked(scorer: Any, sequences: Any, how: Any = None) -> Any:
        return columns(scorer, sequences, None if how is not None and how.visible else how)

    monkeypatch.setattr(model_arms, "columns", unmasked)
    code, found = answer(model, "--tokens", tokens, "--arms", "packed", "--limit", "mean=0.01", "--device", "cpu")
    assert code == 1 and mean(found, "packed") > 0.1


def test_a_model_with_a_window_is_not_packed(tokens: Path, tmp_path: Path, answer: Any) -> None:
    transformers: Any = import_module("transformers")  # Any: its types are those of all its models, in 2,800 files
    config: Any = transformers.MistralConfig(
        vocab_size=tiny.VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128, sliding_window=8,
    )  # fmt: skip
    folder = tiny.saved(transformers.MistralForCausalLM(config), tmp_path / "window")
    code, found = answer(folder, "--tokens", tokens, "--arms", "packed", "--device", "cpu")
    assert code == 4 and "layers with a window" in found["not_available"][0]["because"]


def test_an_arm_that_a_model_cannot_do_is_not_available(
    model: Path, tokens: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> Any:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(model_arms, "_packed", out_of_memory)
    code, found = answer(model, "--tokens", tokens, "--arms", "packed", "--device", "cpu")
    because = "the model could not be read so: RuntimeError: out of memory"
    assert code == 4 and found["not_available"] == [{"arm": "packed", "scorer": "A", "because": because}]


def test_two_precisions_of_a_model_differ_before_and_after_the_same_perturbation(
    model: Path, tokens: Path, answer: Any
) -> None:
    code, found = answer(model, f"{model}#bfloat16", "--tokens", tokens, "--arms", "adapter", "--device", "cpu")
    own = rows(found)
    both = own["", "A and B", "B"]["distance"]["mean"]
    assert code == 0 and 1e-3 < both < 0.1
    assert own["adapter", "A and B", "B perturbed"]["distance"]["mean"] < 3 * both
    assert found["scorers"]["B"]["dtype"] == "bfloat16"


def test_a_perturbation_that_does_not_arrive_is_a_fault(
    model: Path, tokens: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_arms, "SIZE", 0.0)
    code, found = answer(model, "--tokens", tokens, "--arms", "adapter", "--device", "cpu")
    assert code == 1 and "moved no log-prob" in found["answer"] and not found["passed"]


def test_an_engine_agrees_with_a_model_and_with_itself(
    served: EngineServer, model: Path, tokens: Path, answer: Any
) -> None:
    code, found = answer(
        f"engine={served.address}", model, "--tokens", tokens, "--device", "cpu", "--limit", "mean=1e-5"
    )
    assert code == 0, found["answer"]
    assert "engine is equal to itself to the last bit in again, batch, prefix, decode" in found["answer"]
    assert ("packed", "engine") in {(row["arm"], row["scorer"]) for row in found["not_available"]}
    assert found["scorers"]["engine"]["engine"].startswith(served.kind) and served.address not in json.dumps(found)


FAULTS: dict[str, Callable[[EngineServer, Any], None]] = {
    "batch": lambda own, weights: setattr(own, "noise", 0.05),
    "prefix": lambda own, weights: setattr(own, "stale", scored(weights, 0.05)),
    "decode": lambda own, weights: setattr(own, "decode", lambda _, *pair: scored(weights, 0.05)(*pair)),
}


@pytest.mark.parametrize("arm", FAULTS)
def test_a_fault_of_an_engine_shows_in_its_own_arm(
    arm: str, served: EngineServer, weights: Any, tokens: Path, answer: Any
) -> None:
    FAULTS[arm](served, weights)
    arms = ("batch", "prefix", "decode")
    code, found = answer(served.address, "--tokens", tokens, "--arms", ",".join(arms), "--limit", "max=0.01")
    assert code == 1 and mean(found, arm) == pytest.approx(0.05, rel=1e-3)
    others = [other for other in arms if other != arm]
    assert f"{arm}, A: max |x|, nats: 0.05, wanted at most 0.01" in found["answer"]
    assert [mean(found, other) for other in others] == [0, 0]


def test_other_weights_are_a_distance_of_both_and_of_no_arm(
    served: EngineServer, weights: Any, model: Path, tokens: Path, answer: Any
) -> None:
    served.logprobs = scored(tiny.trained_on(weights, 3))
    code, found = answer(model, served.address, "--tokens", tokens, "--arms", "again", "--limit", "mean=0.01")
    assert code == 1 and rows(found)["", "A and B", "B"]["distance"]["mean"] > 0.05 and mean(found, "again", "B") == 0
    sequence, place = rows(found)["", "A and B", "B"]["first"]
    assert f"the first difference is at token {place} of sequence {sequence}" in found["answer"]


def test_a_cache_that_is_off_is_not_taken_for_one_that_changes_nothing(
    served: EngineServer, tokens: Path, answer: Any
) -> None:
    served.caches = False
    code, found = answer(served.address, "--tokens", tokens, "--arms", "prefix")
    if served.kind == "sglang":
        assert code == 4 and "no token came from the prefix cache" in found["not_available"][0]["because"]
    else:
        assert "not certain that the cache was read" in found["comparisons"][1]["doubt"]


def test_a_decode_that_goes_on_otherwise_once_cached_is_compared_up_to_there(
    weights: Any, tokens: Path, answer: Any
) -> None:
    asked: list[int] = []

    def sampler(model: str, prompt: list[int], tokens: int) -> list[int]:
        asked.append(tokens)
        own = tiny.sampled(weights, prompt, tokens, 0)
        return own if len(asked) <= 8 else [*own[:3], (own[3] + 1) % tiny.VOCABULARY, *own[4:]]

    with engine_server("vllm", scored(weights), sampler=sampler) as made:
        code, found = answer(made.address, "--tokens", tokens, "--arms", "prefix", "--in-flight", 1)
    (own,) = [row for row in found["comparisons"] if row["arm"] == "prefix"]
    assert code == 0 and own["found"]["distance"]["tokens"] == 24 and "8 sequences went on with other" in own["doubt"]


def test_a_server_gets_two_requests_at_a_time_and_its_key(
    served: EngineServer, tokens: Path, tmp_path: Path, answer: Any
) -> None:
    served.key = "secret"
    (tmp_path / "key").write_text("secret\n")
    code, found = answer(served.address, "--tokens", tokens, "--engine-key-file", tmp_path / "key")
    assert code == 0 and served.most_busy <= 2 and "secret" not in json.dumps(found)
    assert max(len(body.get("prompt") or body["input_ids"]) for _, body in served.asked if body) == 8
    assert all("flush" not in path and "lora" not in path for path, _ in served.asked)
    assert answer(served.address, "--tokens", tokens)[0] == 3


@pytest.mark.parametrize("fault", [cut, elsewhere, endless], ids=lambda fault: str(fault.__name__))
def test_a_hostile_server_is_an_error(fault: Any, served: EngineServer, tokens: Path, answer: Any) -> None:
    served.raw = fault
    assert answer(served.address, "--tokens", tokens, "--arms", "none")[0] == 3


@pytest.mark.parametrize(
    "ids", [[], [1] * 99, ["x"], [-1]], ids=["no token", "more than asked", "no id", "an id below 0"]
)
def test_a_decode_of_another_form_is_an_error(
    ids: list[Any], served: EngineServer, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.sampler, served.decode = lambda *_: ids, lambda _, prompt, response: [-1.0] * len(response)
    assert main(["parity", served.address, "--tokens", str(tokens), "--arms", "decode"]) == 3
    assert served.address in capsys.readouterr().err


@pytest.mark.parametrize("number", [0.5, float("nan"), -1e9, "x", None])
def test_a_decode_without_log_probs_is_an_error(number: Any, served: EngineServer, tokens: Path, answer: Any) -> None:
    def faulty(found: Any) -> Any:
        text = json.dumps(found)
        return json.loads(text.replace("-0.125", json.dumps(number)))

    served.decode, served.fault = lambda _, prompt, response: [-0.125] * len(response), faulty
    assert answer(served.address, "--tokens", tokens, "--arms", "decode")[0] == 3


SCRIPT = """
import json, sys
for line in sys.stdin:
    own = json.loads(line)
    print(json.dumps([-(id % 7) / 8 for id in own["token_ids"]]))
"""


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "score.py"
    path.write_text(text)
    return f"cmd:{sys.executable} {path}"


def test_a_command_scores(tokens: Path, tmp_path: Path, answer: Any) -> None:
    own = program(tmp_path, SCRIPT)
    code, found = answer(f"mine={own}", "--tokens", tokens)
    assert code == 0 and "mine are equal to the last bit at all 87 tokens" in found["answer"]
    assert {row["arm"] for row in found["not_available"]} == {"batch", "packed", "prefix", "decode", "adapter"}
    assert found["scorers"] == {"mine": {"command": os.path.basename(sys.executable)}}
    assert answer(own, "--tokens", tokens, "--arms", "batch")[0] == 4


ASKED = [Sequence_(0, 0, "a", (1, 2), (3, 4)), Sequence_(0, 0, "b", (1,), (5,))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("while True: pass", "had not ended after"),
        ("import sys\nsys.stdout.close()\nwhile True: pass", "had not ended after"),
        ("while True: print('[' * 1000)", "wrote more than"),
        ("print('[-1, -2]')", "wrote 1 lines for 2 sequences"),
        ("print('[-1, -2]\\n[-1, -2]')", "2 values; wanted a list with 1 log-probs"),
        ("print('[-1, -2]\\n{}')", "a dict; wanted a list"),
        ("print('loading\\n[-1]')", "found b'loading'"),
        ("print('[-1, NaN]\\n[-1]')", "nan; wanted a finite log-prob"),
        ("print('[-1, true]\\n[-1]')", "True; wanted a finite log-prob"),
        ("print('[-1, 0.5]\\n[-1]')", "0.5; wanted a finite log-prob of at most 0"),
        ("import sys; sys.exit('out of memory')", "ended with code 1: out of memory"),
        ("import sys; [sys.stderr.write('x' * 100000) for _ in range(99)]; sys.exit(2)", "ended with code 2: xxx"),
    ],
)
def test_a_command_that_does_otherwise_is_an_error(text: str, wanted: str, tmp_path: Path) -> None:
    own = command_of(program(tmp_path, text).removeprefix("cmd:"), 0.7 if "while" in text else 60)
    with pytest.raises(SourceError, match=wanted.replace("(", r"\(")):
        list(own.scores(ASKED))


def test_a_command_gets_no_key_and_no_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server.KEY, "secret")
    own = program(tmp_path, f"import os, sys\nassert {server.KEY!r} not in os.environ and sys.argv[1] == '$HOME'")
    assert command.output_of((*own.removeprefix("cmd:").split(), "$HOME"), "", 10, 60) == b""
    with pytest.raises(SourceError, match="cannot be started"):
        command.output_of(("./nowhere",), "", 10, 60)


def test_the_run_folder_opens_and_has_every_reading(
    served: EngineServer, model: Path, tokens: Path, tmp_path: Path, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    code, found = answer(served.address, f"{model}#bfloat16", "--tokens", tokens, "--device", "cpu", "-o", folder)
    assert code == 0 and found["folder"] == str(folder)
    assert not caplog.records  # no line of a training's end, which names a gap beside the answer
    run = open_run(folder)
    assert {"a_alone", "a_64_together", "b_packed", "b_decode", "b_perturbed"} <= run.readings.keys()
    whole = run.metrics((), gap="mismatch")["mismatch/abs_log_ratio"].item()
    assert whole == pytest.approx(rows(found)["", "A and B", "B"]["distance"]["mean"], rel=1e-6)
    decode = run.metrics((), gap="b_decode:b_alone")["b_decode:b_alone/abs_log_ratio"].item()
    assert decode == pytest.approx(mean(found, "decode", "B"), rel=1e-6)
    given = [json.loads(line) for line in tokens.read_text().splitlines()]
    stored = run.rows(0, ("token_ids", "prompt_ids")).to_pylist()
    assert sorted(own["token_ids"] for own in stored) == sorted(own["token_ids"] for own in given)
    before = sorted(folder.rglob("*"))
    said = [each for each in overview(material(open_run(folder)).scope) if isinstance(each, Paragraph)]
    (who,) = [each.text for each in said if each.head == PARITY]
    assert f"(rollout) is read by A ({served.kind} 0." in who and "the trainer's (old) by B (model, bfloat16)." in who
    assert answer(served.address, "--tokens", tokens, "-o", folder)[0] == 2 and sorted(folder.rglob("*")) == before
    assert (
        main(["metrics", str(folder)])
        == main(["info", str(folder)])
        == main(["report", str(folder), "-o", str(tmp_path / "r.html")])
        == 0
    )


@pytest.mark.parametrize(("seed", "words"), [(0, "have one digest"), (7, "differ")])
def test_the_pages_name_both_checkpoints_and_ask_no_training_for_more(
    seed: int, words: str, model: Path, tokens: Path, tmp_path: Path, answer: Any
) -> None:
    other, folder = tiny.saved(tiny.model(seed), tmp_path / "other"), tmp_path / "run"
    asked = ("--tokens", tokens, "--arms", "none", "--device", "cpu", "-o", folder)
    assert answer(f"hf={model}#bfloat16", f"token={other}", *asked)[0] == 0  # names that make secrets of what they name
    run = open_run(folder)
    facts = run_facts(run.info)
    assert (facts.engine, facts.trainer) == ("bfloat16", "float32")
    for page in (overview, diagnosis):
        said = [each for each in page(material(run).scope) if isinstance(each, Paragraph) and each.head == PARITY]
        assert [each.text.partition(". ")[2] for each in said] == [f"Their files of weights {words}."]
        assert "read by hf (model, bfloat16)" in said[0].text
    drawn = list(diagnosis(material(run).scope))
    assert not [each for each in drawn if isinstance(each, Code) or each == Heading("Beside the gap")]
    assert verdict_of(run).remedy == (OF_SCORERS if seed else "Nothing.")
    follows = diagnosis_of(run).next
    assert (follows.code if follows else None) == ("rescore_try" if seed else None)


def test_a_real_pair_of_other_weights_is_no_pair_of_other_prompts() -> None:
    """Its first 12 tokens have 2.1 times the gap of the others, and both scorers were given the same ids."""
    broken, healthy = (diagnosis_of(open_run(DATA / "parity" / name)).diagnosis for name in ("broken", "healthy"))
    assert [item.cause.code for item in broken.likely] == ["different_weights"] and healthy.is_healthy


def test_digests_that_an_older_run_took_for_secrets_are_not_called_one() -> None:
    redacted = {"model": "smol", "digest": "[redacted]", "dtype": "[redacted]"}
    said = parity_sentence({"config": {"parity": {"hf": redacted, "token": redacted}}})
    assert said == "the engine's side (rollout) is read by hf (smol), the trainer's (old) by token (smol)."


def test_tokens_come_from_a_recorded_run(weights: Any, model: Path, tmp_path: Path, answer: Any) -> None:
    run = tiny.record(tmp_path / "run", scored(weights), scored(weights), sampler=weights)
    code, found = answer(model, "--run", run, "--arms", "none", "--device", "cpu")
    assert code == 0 and found["comparisons"][0]["found"]["sequences"] == 12


def test_the_first_scorer_samples(served: EngineServer, model: Path, tmp_path: Path, answer: Any) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt_ids": own}) + "\n" for own in tiny.prompts(3)))
    options = ("--prompts", path, "--sample", 5, "--arms", "none", "--device", "cpu", "--limit", "mean=1e-5")
    for scorers in ((served.address, model), (model, served.address)):
        code, found = answer(*scorers, *options)
        assert code == 0 and found["comparisons"][0]["found"]["distance"]["tokens"] == 15
    assert answer(program(tmp_path, SCRIPT), *options)[0] == 2
    path.write_text(json.dumps({"prompt_ids": [1] * 125}) + "\n" + json.dumps({"prompt_ids": [1, 2]}) + "\n")
    code, found = answer(model, *options)
    assert code == 0 and found["not_read"] == ["1 sequence is longer than the positions of a scorer"]
    path.write_text(json.dumps({"prompt_ids": [tiny.VOCABULARY]}) + "\n")
    assert answer(model, *options)[0] == 3
    path.write_text('{"prompt": "text"}\n')
    assert answer(served.address, *options)[0] == 3


def test_a_sync_between_two_readings_is_compared(
    weights: Any, model: Path, tokens: Path, tmp_path: Path, answer: Any
) -> None:
    later, flag = tiny.trained_on(weights, 3), tmp_path / "synced"

    def logprobs(prompt: list[int], response: list[int]) -> Any:
        return scored(later if flag.exists() else weights)(prompt, response)

    sync = ("--sync", f'{sys.executable} -c \'open("{flag}", "w")\'', "--arms", "none", "--limit", "mean=0.001")
    with engine_server("vllm", logprobs) as made:
        code, found = answer(made.address, model, "--tokens", tokens, "--device", "cpu", *sync)
        own = rows(found)
        assert code == 1 and own["sync", "A", "after sync"]["distance"]["mean"] > 0.05
        assert own["sync", "A and B", "B after sync"]["distance"]["mean"] > 0.05
        assert own["", "A and B", "B"]["distance"]["mean"] < 1e-5
        assert answer(made.address, "--tokens", tokens, *sync)[0] == 0  # a sync of the same weights changes nothing


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "wanted the tokens from one place"),
        (["--tokens", "a", "--run", "b"], "wanted the tokens from one place"),
        (["--tokens", "a", "--arms", "cold"], "--arms cold: wanted some of again, batch"),
        (["--tokens", "a", "--limit", "median=1"], "--limit median=1: wanted NAME=NUMBER"),
        (["--tokens", "a", "--limit", "mean=nan"], "--limit mean=nan"),
        (["--tokens", "a", "--limit", "mean=-1"], "--limit mean=-1"),
        (["--tokens", "a", "B=cmd:x"], "no such"),
        (["--tokens", "a", "--sync", "'"], "No closing quotation"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["parity", "cmd:x", *arguments])
    assert (code, wanted in capsys.readouterr().err) == ((3, False) if wanted == "no such" else (2, True))


@pytest.mark.parametrize("scorer", ["ftp://a", "http://me:word@a", "cmd:", "cmd:'", "A=cmd:x"])
def test_a_scorer_that_is_none_is_refused(scorer: str, tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = ["A=cmd:y"] if scorer.startswith("A=") else []
    assert main(["parity", scorer, *second, "--tokens", str(tokens)]) == 2
    assert "wanted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "has no line"),
        ("[1]\n", "is no JSON object"),
        ('{"prompt_ids": [1], "token_ids": []}\n', "token_ids is []"),
        ('{"prompt_ids": [1.5], "token_ids": [1]}\n', "prompt_ids is [1.5]"),
        ('{"prompt_ids": [1], "token_ids": [-1]}\n', "token_ids is [-1]"),
        ('{"prompt_ids": [1], "token_ids": [96]}\n', "the tokens have the id 96"),
        ('{"prompt_ids": [1], "token_ids": [' + ", ".join(["1"] * 200) + "]}\n", "no sequence is short enough"),
    ],
)
def test_tokens_that_are_none_are_refused(
    text: str, wanted: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    assert main(["parity", str(model), "--tokens", str(path), "--device", "cpu"]) == 3
    assert wanted in capsys.readouterr().err


def test_limits_give_chance_two_standard_errors() -> None:
    chance = np.random.default_rng(1)
    a = [np.full(20, -1, np.float32) for _ in range(30)]
    found = compared(a, [own - chance.uniform(0, 0.02, 20).astype(np.float32) for own in a])
    value, error = found.distance.mean, found.distance.mean_error
    assert not breaches(found, {"mean": value - 1.9 * error}) and breaches(found, {"mean": value - 2.1 * error})
    assert breaches(found, {"equal": 0.5}) and not breaches(found, {"equal": 0.0})
    assert limits_of("mean=0.01, equal=1") == {"mean": 0.01, "equal": 1.0}
    assert breaches(compared([], []), {"mean": 1.0})  # what was not measured keeps no limit


def test_published_limits_have_sources_and_are_of_quantities_measured_here() -> None:
    assert all(own.quantity in QUANTITIES and own.source and own.limit > 0 for own in PUBLISHED)
    with pytest.raises(ConfigError, match="try: --limit mean=0.01"):
        limits_of("mean")


def test_the_answer_comes_first_in_a_terminal(model: Path, tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", str(model), f"{model}#bfloat16", "--tokens", str(tokens), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    first, second, *_ = said.splitlines()
    assert first.startswith("A and B differ by 0.0") and first.endswith("over 87 tokens of 8 sequences.")
    assert "are equal to the last bit; the first difference is at token" in second
    assert "miles docs/developer/debug.md" in said and "B is the checkpoint model in bfloat16 on cpu" in said
