"""`rescore`: a third reading of the same tokens, and which side it says is off."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import tiny_model as tiny

from ratioscope import open_run, record_readings
from ratioscope.app.cli import main
from ratioscope.app.referee.answer import answer
from ratioscope.app.referee.choice import Wanted, chosen
from ratioscope.app.referee.distance import distance
from ratioscope.app.referee.model import referee
from ratioscope.app.referee.rescoring import rescore
from ratioscope.app.referee.scoring import Scoring
from ratioscope.errors import SourceError

Logprobs = NDArray[np.float32]
EVERYTHING = Wanted(everything=True)


@pytest.fixture(scope="module")
def weights() -> Any:
    return tiny.model()


@pytest.fixture(scope="module")
def folder(weights: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(weights, tmp_path_factory.mktemp("model") / "tiny")


def trainer(weights: Any) -> Any:
    return lambda prompt, response: tiny.trainer_logprobs(weights, prompt, response)


def noisy(weights: Any, size: float, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    return lambda *pair: np.minimum(tiny.trainer_logprobs(weights, *pair) + chance.normal(0, size, len(pair[1])), 0)


@pytest.fixture
def run(weights: Any, tmp_path: Path) -> Path:
    """The engine is off by about 0.05 nats a token, the trainer not at all."""
    config = {"rollout": {"dtype": "float32"}, "model_dtype": "float32"}
    return tiny.record(tmp_path / "run", noisy(weights, 0.05), trainer(weights), sampler=weights, config=config)


def test_the_reading_is_the_trainers_own_log_probs(run: Path, folder: Path) -> None:
    opened = open_run(run)
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    assert (done.sequences, done.before, done.left_out, done.steps) == (12, 0, {}, list(tiny.STEPS))
    frame = opened.metrics((), gap="old:referee")
    assert frame["old:referee/max_abs_log_ratio"].item() < 1e-5
    assert frame["old:referee/tokens"].item() == opened.size.tokens == done.tokens
    (made,) = opened.readings["referee"].made_of
    assert made["model"] == str(folder) and len(made["digest"]) == 64 and made["dtype"] == "float32"


@pytest.mark.parametrize("how", [Scoring(batch_tokens=1), Scoring(batch_tokens=10_000)])
def test_batches_of_any_size_give_the_same_log_probs(run: Path, folder: Path, how: Scoring) -> None:
    opened = open_run(run)
    rescore(opened, referee(folder, device="cpu"), EVERYTHING, how)
    assert opened.metrics((), gap="old:referee")["old:referee/max_abs_log_ratio"].item() < 1e-5


def test_logits_are_made_in_pieces_of_bounded_size(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ratioscope.app.referee import scoring

    widths: list[int] = []
    logits = scoring._logits

    def seen(head: Any, hidden: Any, how: Scoring) -> Any:
        widths.append(len(hidden))
        return logits(head, hidden, how)

    monkeypatch.setattr(scoring, "LOGITS_BYTES", 4 * 3 * tiny.VOCABULARY)
    monkeypatch.setattr(scoring, "_logits", seen)
    opened = open_run(run)
    rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    assert max(widths[1:]) == 3  # the first is the look at the model's own head
    assert opened.metrics((), gap="old:referee")["old:referee/max_abs_log_ratio"].item() < 1e-5


def test_the_answer_names_the_engine(run: Path, folder: Path) -> None:
    opened = open_run(run)
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    found = answer(opened, "referee", done.steps)
    assert found.off == "rollout" and found.sentence.endswith("the difference is the engine's")
    assert found.distances["old"].mean < 1e-5 < 0.02 < found.distances["rollout"].mean
    assert found.between is not None and found.between.k3 == pytest.approx(found.distances["rollout"].k3, rel=1e-3)


@pytest.mark.parametrize(
    ("engine", "trained", "off"), [(0.0, 0.05, "old"), (0.05, 0.05, "both"), (0.0, 0.0, "neither")]
)  # fmt: skip
def test_the_answer_names_the_trainer_both_or_neither(
    weights: Any, folder: Path, tmp_path: Path, engine: float, trained: float, off: str
) -> None:
    sides = noisy(weights, engine, 1), noisy(weights, trained, 2)
    opened = open_run(tiny.record(tmp_path / "run", *sides, sampler=weights))
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    assert answer(opened, "referee", done.steps).off == off


def test_of_two_sides_that_differ_the_farther_one_is_named(weights: Any, folder: Path, tmp_path: Path) -> None:
    opened = open_run(tiny.record(tmp_path / "run", noisy(weights, 0.05, 1), noisy(weights, 0.025, 2), sampler=weights))
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    found = answer(opened, "referee", done.steps)
    assert (
        found.off == "both" and "The engine is" in found.sentence and "times as far: look there first" in found.sentence
    )


def test_a_wrong_checkpoint_is_told_from_a_wrong_side(run: Path, tmp_path: Path) -> None:
    other = tiny.saved(tiny.model(seed=5), tmp_path / "other")
    opened = open_run(run)
    done = rescore(opened, referee(other, device="cpu"), EVERYTHING)
    found = answer(opened, "referee", done.steps)
    assert found.off == "referee" and "other weights" in found.sentence


def test_a_checkpoint_of_one_step_answers_for_that_step_alone(weights: Any, folder: Path, tmp_path: Path) -> None:
    later = tiny.trained_on(weights, 3)
    for step, own in zip(tiny.STEPS, (later, weights, later), strict=True):
        tiny.record(tmp_path / "run", noisy(own, 0.05), trainer(own), sampler=own, steps=(step,))
    opened = open_run(tmp_path / "run")
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    found = answer(opened, "referee", done.steps)
    assert found.steps == (20,) and found.off == "rollout" and "of step 20, of 3 that were read" in found.sentence


def test_a_second_call_reads_nothing_and_another_temperature_reads_all(run: Path, folder: Path) -> None:
    opened, judge = open_run(run), referee(folder, device="cpu")
    first = rescore(opened, judge, Wanted(range(0, 25), everything=True))
    again = rescore(opened, judge, EVERYTHING)
    assert (first.sequences, again.sequences, again.before) == (8, 4, 8)
    assert rescore(opened, judge, EVERYTHING).files == []
    hot = rescore(opened, judge, EVERYTHING, Scoring(temperature=2.0))
    assert hot.sequences == 12 and len(opened.readings["referee"].made_of) == 2
    assert opened.metrics((), gap="old:referee")["old:referee/abs_log_ratio"].item() > 0.1  # the newest counts


def test_a_call_that_is_killed_goes_on_where_it_was(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ratioscope.app.referee import rescoring

    written = rescoring._written
    calls: list[int] = []

    def killed(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return written(*arguments)

    monkeypatch.setattr(rescoring, "_written", killed)
    with pytest.raises(KeyboardInterrupt):
        rescore(open_run(run), referee(folder, device="cpu"), EVERYTHING)
    done = rescore(open_run(run), referee(folder, device="cpu"), EVERYTHING)
    assert (done.before, done.sequences) == (4, 8)


def test_worst_sequences_are_read_for_certain_and_others_by_chance(weights: Any, tmp_path: Path) -> None:
    run = tiny.record(
        tmp_path / "run", noisy(weights, 0.05), trainer(weights), sampler=weights, steps=(10,), sequences=24
    )
    opened = open_run(run)
    (own,) = chosen(opened, Wanted(sequences=8)).values()
    assert own == next(iter(chosen(opened, Wanted(sequences=8)).values())) and len(own) == 8
    worst = opened.sequences(10).sort("mismatch/max_abs_log_ratio", descending=True)["sequence_id"].to_list()[:4]
    assert {key for key, probability in own.items() if probability == 1} == set(worst)
    assert [probability for probability in own.values() if probability < 1] == [4 / 20] * 4


def test_estimates_from_chosen_sequences_are_of_all(weights: Any, tmp_path: Path, folder: Path) -> None:
    sizes = iter([0.01, 0.3] * 20)
    engine = lambda *pair: noisy(weights, next(sizes), len(pair[1]))(*pair)  # noqa: E731
    run = tiny.record(tmp_path / "run", engine, trainer(weights), sampler=weights, steps=(10,), sequences=40)
    opened, judge = open_run(run), referee(folder, device="cpu")
    done = rescore(opened, judge, Wanted(sequences=20))
    some = answer(opened, "referee", done.steps).distances["rollout"]
    rescore(opened, judge, EVERYTHING, name="whole")
    whole = answer(opened, "whole", done.steps).distances["rollout"]
    read = opened.tokens([10], ["rollout:referee"]).collect()["rollout:referee"].drop_nulls().abs().mean()
    assert isinstance(read, float) and abs(some.mean - whole.mean) < 3 * some.mean_error
    assert abs(some.mean - whole.mean) < abs(read - whole.mean)  # the worst count more in the plain mean


def test_the_errors_are_those_of_a_ratio_over_sequences() -> None:
    chance = np.random.default_rng(0)
    means = []
    for _ in range(300):
        rows = np.repeat(np.arange(50), chance.integers(1, 20, 50))
        x = chance.normal(0, 0.1, 50)[rows] + chance.normal(0, 0.1, len(rows))
        means.append(distance(x, rows))
    spread = np.std([each.mean for each in means])
    assert np.mean([each.mean_error for each in means]) == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"without": ("prompt_ids",)}, "their prompt ids are not on record: log prompt_ids"),
        ({"without": ("token_ids",)}, "token ids are not on record: record with text='ids'"),
        ({"without": ("prompt_ids",), "prompt_texts": ["a"] * 4}, "give the run's tokenizer"),
    ],
)
def test_a_run_that_lacks_something_is_refused_with_what_to_do(
    weights: Any, folder: Path, tmp_path: Path, options: dict[str, Any], wanted: str
) -> None:
    run = tiny.record(tmp_path / "run", trainer(weights), trainer(weights), sampler=weights, **options)
    with pytest.raises(SourceError, match=wanted):
        rescore(open_run(run), referee(folder, device="cpu"))
    assert not (run / "readings").exists()


def test_a_model_with_too_few_tokens_is_refused(run: Path, tmp_path: Path) -> None:
    small = tiny.saved(tiny.model(vocab_size=20), tmp_path / "small")
    with pytest.raises(SourceError, match=r"has token id \d+, the model small has ids below 20: it is another model"):
        rescore(open_run(run), referee(small, device="cpu"))


def test_sequences_beyond_the_models_positions_are_left_out_and_counted(run: Path, tmp_path: Path) -> None:
    short = tiny.saved(tiny.model(max_position_embeddings=20), tmp_path / "short")
    done = rescore(open_run(run), referee(short, device="cpu"), EVERYTHING)
    ((reason, number),) = done.left_out.items()
    assert "longer than the 20 positions" in reason and number + done.sequences == 12 and number and done.sequences


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "has no config.json"),
        (lambda path: (path.mkdir(), (path / "config.json").write_text("{}")), "holds no weights"),
        (
            lambda path: (
                path.mkdir(),
                (path / "config.json").write_text("{"),
                (path / "model.safetensors").write_bytes(b"x"),
            ),
            "cannot be loaded",
        ),
    ],
)
def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, make: Any, wanted: str) -> None:
    make(tmp_path / "model")
    with pytest.raises(SourceError, match=wanted):
        referee(tmp_path / "model", device="cpu")


class Characters:
    """A tokenizer of one token per character; `broken` encodes pairs of letters otherwise than it decodes them."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        ids = [ord(letter) - 31 for letter in text]
        return {"input_ids": ids[::2] if self._broken else ids}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(chr(31 + one) for one in ids)


def test_prompts_are_rebuilt_from_texts_and_it_is_said_how_sure_that_is(
    weights: Any, folder: Path, tmp_path: Path
) -> None:
    texts = [Characters().decode(prompt) for prompt in tiny.prompts(4, 10)]
    options = {"without": ("prompt_ids",), "prompt_texts": texts, "steps": (10,)}
    opened = open_run(tiny.record(tmp_path / "run", trainer(weights), trainer(weights), sampler=weights, **options))
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING, tokenizer=Characters())
    assert "4 prompts were rebuilt" in done.certainty and "of 4 of 4 responses" in done.certainty
    assert opened.metrics((), gap="old:referee")["old:referee/max_abs_log_ratio"].item() < 1e-5
    with pytest.raises(SourceError, match="of only 0 of 4 responses: it is another tokenizer"):
        rescore(opened, referee(folder, device="cpu"), EVERYTHING, name="again", tokenizer=Characters(broken=True))


def test_tokens_outside_the_mask_are_context_and_no_part_of_the_distance(
    weights: Any, folder: Path, tmp_path: Path
) -> None:
    def engine(prompt: list[int], response: list[int]) -> Logprobs:
        found = tiny.trainer_logprobs(weights, prompt, response)
        found[2:4] = 0.0  # an engine reports nothing of a tool's tokens
        return found

    mask = [[not 2 <= place < 4 for place in range(6 + 3 * (k % 5))] for k in range(4)]
    opened = open_run(tiny.record(tmp_path / "run", engine, trainer(weights), sampler=weights, mask=mask))
    done = rescore(opened, referee(folder, device="cpu"), EVERYTHING)
    found = answer(opened, "referee", done.steps)
    assert found.off == "neither" and found.distances["rollout"].tokens == sum(map(sum, mask)) * 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_noise_floor_is_that_of_the_dtype(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    arguments = ["rescore", str(run), "--model", str(folder), "--device", "cpu", "--floor", "--dtype", dtype]
    assert main([*arguments, "--json"]) == 0
    floor = json.loads(capsys.readouterr().out)["floor"]
    assert floor["tokens"] == open_run(run).size.tokens
    assert floor["mean"] < (1e-5 if dtype == "float32" else 0.2)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"the model in {dtype} differs from itself by" in said
    assert set(open_run(run).readings) == {"referee", "referee_again"}


def test_the_answer_tells_how_far_the_trainer_is_from_itself(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_run(run)
    rows = [row for step in tiny.STEPS for row in opened.rows(step, ["old_logprobs"]).to_pylist()]
    again = {name: [row[name] for row in rows] for name in ("attempt", "step", "sequence_id")}
    again["logprobs"] = [[value - 0.001 for value in row["old_logprobs"]] for row in rows]
    record_readings(run, "trainer_again", again, {"made by": "self_noise"})
    arguments = ["rescore", str(run), "--model", str(folder), "--device", "cpu"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trainer_again"]["mean"] == pytest.approx(0.001, rel=1e-3)
    assert main(arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the trainer differs from itself by" in said and "the recorded sides differ by" in said


def test_the_verb_says_who_is_off(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rescore", str(run), "--model", str(folder), "--device", "cpu"]
    assert main([*arguments, "--steps", "0:25", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answer"]["off"] == "rollout" and found["steps"] == [10, 20] and found["sequences"] == 8
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "the difference is the engine's" in said and "8 more were read before" in said
    assert main(["metrics", str(run), "--gap", "rollout:referee", "--csv"]) == 0
    assert main([*arguments, "--steps", "a"]) == 2 and "wanted A:B" in capsys.readouterr().err
    assert main([*arguments, "--checkpoints", str(folder)]) == 2 and "belongs to --try" in capsys.readouterr().err
    assert main([*arguments, "--name", "rollout"]) == 2 and "is a policy" in capsys.readouterr().err
    assert (
        main(["rescore", str(run), "--model", str(run / "nowhere")]) == 3
        and "does not exist" in capsys.readouterr().err
    )
