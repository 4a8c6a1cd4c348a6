"""The prompts of every adapter: in front of the recorded tokens, as the trainer held them, and once per sequence and step."""

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.slime_rows import held

from ratioscope import open_run
from ratioscope.collectors.adapters.nemo_rl.rows import prompts as nemo_prompts
from ratioscope.collectors.adapters.sampled_spans import SampledFirst
from ratioscope.collectors.adapters.skyrl.rows import Rows
from ratioscope.collectors.adapters.tinker_cookbook.rows import prompt_of
from ratioscope.collectors.adapters.trl.asynchronous import sample_of
from ratioscope.collectors.adapters.trl.columns import prompts as trl_prompts
from ratioscope.collectors.adapters.verl.rows import Known, prompts
from ratioscope.collectors.adapters.visits import FirstVisits
from ratioscope.metrics.engines.join import joined

STANDINS: Mapping[str, Mapping[str, Any]] = {
    "slime": {}, "nemo_rl": {}, "fireworks": {}, "prime_rl": {}, "open_instruct": {}, "roll": {},
}  # fmt: skip


def whole_sequences(name: str, trace: dict[str, Any]) -> Iterator[list[int]]:
    """Prompt and response of all sequences that the trainer held, read from its own batches."""
    if name == "slime":
        yield from (one["tokens"].tolist() for one in held(trace).values())
    if name == "nemo_rl":
        for batch in trace["sent"]:
            pairs = zip(batch["input_ids"], batch["input_lengths"], strict=True)
            yield from (row[:length].tolist() for row, length in pairs)
    if name == "fireworks":
        for datum in (datum for part in trace["data"] for datum in part):
            yield [*datum.model_input, datum.loss_fn_inputs["target_tokens"].data[-1]]
    if name == "prime_rl":
        for sent in (batch["sent"] for batch in trace["held"]):
            start = 0
            for length in sent["sequence_lengths"]:
                yield sent["input_ids"][start : start + length]
                start += length
    if name == "open_instruct":
        for batch in trace["batch"]:
            for ids, documents in zip(batch["query_responses"], batch["attention_masks"], strict=True):
                for document in set(documents[0]) - {0}:
                    yield [token for token, own in zip(ids[0], documents[0], strict=True) if own == document]
    if name == "roll":
        yield from (row for batch in trace["held"] for row in batch["input_ids"])


@pytest.mark.parametrize("name", STANDINS)
def test_prompt_and_response_together_are_what_the_trainer_held(name: str, tmp_path: Path) -> None:
    trace = importlib.import_module(f"standins.{name}").drive(tmp_path / "run", **STANDINS[name])
    run = open_run(tmp_path / "run")
    rows = [row for step in run.steps for row in joined(run.rows(step)).to_pylist() if row["prompt_ids"] is not None]
    wholes = list(whole_sequences(name, trace))
    assert rows and wholes
    for row in rows:
        own = row["prompt_ids"] + row["token_ids"]
        assert row["prompt_ids"] and any(whole[: len(own)] == own for whole in wholes), row["sequence_id"]
    if name in ("prime_rl", "open_instruct"):  # an id ends with the place in the packed row
        assert all(row["pack_position"] == int(row["sequence_id"].rpartition("-")[2]) for row in rows)
    known = run.records().collect().drop_nulls("prompt_ids")
    times = Counter(zip(known["step"], known["sequence_id"], strict=True))
    every = run.records().collect()
    assert set(times) == set(zip(every["step"], every["sequence_id"], strict=True)) and set(times.values()) == {1}


def test_verls_prompts_come_padded_or_nested_and_without_padding_rows() -> None:
    ids = torch.tensor([[0, 5, 6], [7, 8, 9], [0, 0, 4]])
    attention = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]])
    known = Known(["a", "b"], None, [1, 1], [None] * 2, [None] * 2, kept=[0, 2])
    padded = prompts({"prompts": ids, "attention_mask": attention}, known)
    assert [row[own != 0].tolist() for row, own in zip(*padded.values(), strict=True)] == [[5, 6], [4]]
    nested = torch.nested.nested_tensor([torch.tensor(row) for row in ([5, 6], [7, 8, 9], [4])], layout=torch.jagged)
    assert [row.tolist() for row in prompts({"prompts": nested}, known)["prompt_ids"]] == [[5, 6], [4]]
    assert prompts({"prompts": ids}, known) == prompts({}, known) == {}  # which of them are padding?


def test_skyrls_prompts_stand_between_the_padding_and_the_response() -> None:
    class Batch(dict[str, Any]):
        metadata: Mapping[str, Any] = {}

    data = Batch(
        response_mask=torch.tensor([[0, 1, 1], [1, 1, 1]]),
        sequences=torch.tensor([[0, 0, 5, 6, 7], [3, 4, 5, 6, 7]]),
        attention_mask=torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]),
    )
    assert [ids.tolist() for ids in Rows(data, None).prompts(0, 2)["prompt_ids"]] == [[5], [3, 4]]
    del data["attention_mask"]
    assert Rows(data, None).prompts(0, 2) == {}


@pytest.mark.parametrize("offset", [0, 1])
def test_the_tokens_before_the_first_sampled_one_are_found_on_a_device_without_reading_it(offset: int) -> None:
    mask = torch.tensor([[0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    tokens = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]])[:, 1 - offset :]
    found = SampledFirst(mask).before(tokens)
    firsts = (2, 0, 5)
    wanted = [[bool(tokens[r, t]) and t < firsts[r] + offset for t in range(tokens.shape[1])] for r in range(3)]
    assert found.tolist() == wanted


def test_nemos_prompts_end_where_sampling_begins_and_a_row_without_samples_is_all_prompt() -> None:
    data = {"input_ids": torch.tensor([[4, 5, 6, 7], [4, 5, 0, 0]]), "input_lengths": torch.tensor([4, 2])}
    mask = torch.tensor([[False, True, True], [False, False, False]])
    assert [row.tolist() for row in nemo_prompts(data, mask)["prompt_ids"]] == [[4, 5], [4, 5]]


def test_a_tinker_datum_is_cut_across_its_chunks_and_an_image_has_no_tokens() -> None:
    def datum(*chunks: list[int] | None) -> Any:
        pieces = [SimpleNamespace(tokens=chunk) if chunk is not None else SimpleNamespace() for chunk in chunks]
        return SimpleNamespace(model_input=SimpleNamespace(chunks=pieces))

    assert [prompt_of(datum([1, 2], [3, 4]), start) for start in (0, 1, 2, 9)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert prompt_of(datum([1], None, [3]), 2) is None
    assert prompt_of(datum([1, 2], None), 1) == [1, 2]  # the image comes later than the first sampled token


def test_a_later_epoch_is_told_from_the_first() -> None:
    visits = FirstVisits()
    seen = [visits.is_one(1, ["a"]), visits.is_one(1, ["b"]), visits.is_one(1, ["a"]), visits.is_one(2, ["a"])]
    assert seen == [True, True, False, True] and visits.is_one(2, None)


def test_trls_prompts_come_with_their_mask_at_the_first_pass_only() -> None:
    inputs = {"prompt_ids": torch.tensor([[0, 5]]), "prompt_mask": torch.tensor([[0, 1]])}
    assert trl_prompts(inputs, 0) == inputs and trl_prompts(inputs, 1) == {}
    assert trl_prompts({"prompt_ids": inputs["prompt_ids"]}, 0) == {}


@pytest.mark.parametrize(
    ("trained", "wanted"), [([0, 0, 1, 1], [4, 5]), ([1, 1, 1, 0], [4]), ([0, 0, 0, 0], [4, 5, 6, 7])]
)
def test_an_asynchronous_sample_of_trl_begins_with_its_prompt(trained: list[int], wanted: list[int]) -> None:
    sample = SimpleNamespace(
        completion_mask=trained, input_ids=[4, 5, 6, 7], group_id=0, model_version=1, metrics={}, advantage=0.5, prompt="p",
    )  # fmt: skip
    assert sample_of(sample, 3, 1, ends=(9,)).prompt_ids.tolist() == wanted
