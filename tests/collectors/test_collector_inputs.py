"""Whatever form the same values come in, the same rows come out: padded, ragged, packed; numpy, torch, lists."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import random
from typing import Any, SupportsIndex

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples
from support.written_run import CollectingSink

from ratioscope import Collector, open_run
from ratioscope.collectors.batch.batch import bytes_offered
from ratioscope.collectors.batch.host_copy import HostCopies, Joined
from ratioscope.collectors.batch.snapshots import snapshots
from ratioscope.errors import SchemaError

LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=6)


def rows_of(*, step: SupportsIndex = 1, **arguments: Any) -> list[dict[str, Any]]:
    """The rows that one call of `log` makes; raises what the call would otherwise only count."""
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink, strict=True) as collector:
        collector.log(step=step, **arguments)
    return sink.written


def ragged(lengths: list[int], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Log-probs of one sequence each, float32."""
    random = np.random.default_rng(seed)
    return [-random.exponential(size=length).astype(np.float32) for length in lengths]


def padded(rows: list[np.ndarray[Any, Any]], width: int, filler: float = -9.0) -> np.ndarray[Any, Any]:
    """The rows with filler behind them."""
    array = np.full((len(rows), width), filler, np.float32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


@given(lengths=LENGTHS, extra=st.integers(0, 3))
@examples(40)
def test_padded_ragged_and_packed_values_make_the_same_rows(lengths: list[int], extra: int) -> None:
    rows = ragged(lengths)
    flat = np.concatenate(rows)
    wanted = [row.tolist() for row in rows]
    width = max(lengths) + extra
    mask = np.arange(width) < np.array(lengths)[:, None]
    cumulative = np.concatenate(([0], np.cumsum(lengths)))
    ids = [str(index) for index in range(len(lengths))]
    forms: list[dict[str, Any]] = [
        {"rollout_logprobs": padded(rows, width), "lengths": lengths},
        {"rollout_logprobs": padded(rows, width), "mask": mask},
        {"rollout_logprobs": rows},
        {"rollout_logprobs": [row.tolist() for row in rows]},
        {"rollout_logprobs": [torch.from_numpy(row) for row in rows]},
        {"rollout_logprobs": np.array([*rows, None], object)[:-1]},
        {"rollout_logprobs": flat, "lengths": np.array(lengths)},
        {"rollout_logprobs": flat.tolist() or flat, "lengths": lengths},
        {"rollout_logprobs": flat, "lengths": cumulative},
        {"rollout_logprobs": torch.from_numpy(flat), "lengths": torch.from_numpy(cumulative)},
    ]
    for form in forms:
        assert [row["rollout_logprobs"] for row in rows_of(sequence_ids=ids, **form)] == wanted, list(form)


@given(lengths=LENGTHS, holes=st.randoms(use_true_random=False))
@examples(30)
def test_padding_is_cut_at_the_last_true_of_the_mask_and_holes_are_kept(lengths: list[int], holes: Any) -> None:
    rows = ragged(lengths)
    mask = np.zeros((len(rows), 9), bool)
    for index, length in enumerate(lengths):
        mask[index, :length] = [holes.random() < 0.5 for _ in range(length)]
        mask[index, length - 1 : length] = True
    found = rows_of(rollout_logprobs=padded(rows, 9), mask=mask.astype(np.int64))
    assert [row["rollout_logprobs"] for row in found] == [row.tolist() for row in rows]
    assert [row["mask"] for row in found] == [mask[index, :length].tolist() for index, length in enumerate(lengths)]


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "float64": lambda x: x.double(),
    "float16": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8 of more digits": lambda x: x.to(torch.float8_e4m3fn),
    "float8 of more range": lambda x: x.to(torch.float8_e5m2),
    "with gradient": lambda x: x.clone().requires_grad_() * 1,
    "a bfloat16 leaf with gradient": lambda x: x.bfloat16().requires_grad_(),
    "transposed": lambda x: x.t().contiguous().t(),
    "strided": lambda x: torch.stack((x, x + 1), -1)[..., 0],
    "expanded": lambda x: x[:1].expand(len(x), -1),
    "strided bfloat16": lambda x: torch.stack((x, x + 1), -1).bfloat16()[..., 0],
    "a parameter": lambda x: torch.nn.Parameter(x),
    "numpy, backwards": lambda x: x.numpy()[::-1, ::-1],
    "numpy, big endian": lambda x: x.numpy().astype(">f4"),
    "numpy float16": lambda x: x.numpy().astype(np.float16),
    "numpy in the order of columns": lambda x: np.asfortranarray(x.numpy()),
    "numpy, read only": lambda x: np.broadcast_to(x.numpy()[0], x.shape),
    "nested": lambda x: torch.nested.nested_tensor([row for row in x], layout=torch.jagged),
}


@pytest.mark.parametrize("form", TENSORS, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (40, 700)], ids=["small", "large enough for the pool"])
def test_any_tensor_is_recorded_as_float32(form: str, shape: tuple[int, int]) -> None:
    value = TENSORS[form](-torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 20)
    plain = value.unbind() if isinstance(value, torch.Tensor) and value.is_nested else value
    wanted = [
        (row.float().detach().numpy() if isinstance(row, torch.Tensor) else np.float32(row)).tolist() for row in plain
    ]
    assert [row["old_logprobs"] for row in rows_of(rollout_logprobs=value, old_logprobs=value)] == wanted


def test_values_are_those_of_the_call_whatever_becomes_of_the_arrays() -> None:
    sink = CollectingSink()
    sink.gate.clear()
    with Collector("unused", sink=lambda: sink) as collector:
        tensor, array, rows = torch.zeros(30, 100), np.zeros((30, 100)), [[0.0] * 100 for _ in range(30)]
        ids = [f"s{index}" for index in range(30)]
        collector.log(step=1, rollout_logprobs=array, old_logprobs=tensor, current_logprobs=rows, sequence_ids=ids)
        tensor += 1
        array += 1
        for index, row in enumerate(rows):
            row[:] = [1.0]
            ids[index] = "changed"
        sink.gate.set()
    assert [row["sequence_id"] for row in sink.written] == [f"s{index}" for index in range(30)]
    for name in ("rollout_logprobs", "old_logprobs", "current_logprobs"):
        assert all(row[name] == [0.0] * 100 for row in sink.written), name


def test_buffers_that_are_used_again_do_not_leak_values_from_call_to_call() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        for step in range(20):
            rows = 1200 - step
            collector.log(
                step=step,
                rollout_logprobs=np.full((rows, 4), -step, np.float32),
                old_logprobs=np.full(4 * rows, -step, np.float32),
                current_logprobs=[np.full(4, -step, np.float32)] * rows,
                lengths=np.full(rows, 4),
                token_ids=np.full((rows, 4), step, np.int32),
                rewards=np.full(rows, step, np.float64),
                trainer_version=np.full(rows, step, np.int64),
            )
            collector.flush()
    for row in sink.written:
        step = row["step"]
        assert all(row[f"{policy}_logprobs"] == [-step] * 4 for policy in ("rollout", "old", "current"))
        assert (row["token_ids"], row["reward"], row["trainer_version"]) == ([step] * 4, step, step)


def test_odd_values_are_recorded_as_they_are() -> None:
    odd = np.array([[np.nan, np.inf, -np.inf, 0.5, -0.0]])
    (row,) = rows_of(rollout_logprobs=odd, old_logprobs=torch.tensor([[65504.0, -70000.0, 0, 0, 0]]).half())
    np.testing.assert_array_equal(np.float32(row["rollout_logprobs"]), np.float32(odd[0]))
    assert row["old_logprobs"][:2] == [65504.0, -np.inf]  # what float16 made of it
    (row,) = rows_of(rollout_logprobs=np.array([[1e300, -1e300]]))
    assert row["rollout_logprobs"] == [np.inf, -np.inf]  # what float32 makes of it
    (row,) = rows_of(rollout_logprobs=[[None, -1.0]])
    np.testing.assert_array_equal(row["rollout_logprobs"], [np.nan, -1.0])


def test_empty_responses_empty_masks_and_empty_batches_are_rows_without_tokens_or_no_rows() -> None:
    assert [row["rollout_logprobs"] for row in rows_of(rollout_logprobs=[[], [-1.0]])] == [[], [-1.0]]
    found = rows_of(rollout_logprobs=np.zeros((2, 3)), mask=[[0, 0, 0], [0, 1, 0]])
    assert [row["mask"] for row in found] == [[False] * 3, [False, True, False]]
    found = rows_of(rollout_logprobs=np.zeros((2, 3)), mask=np.array([[0, 0, 0], [0, 1, 0]]))
    assert [row["mask"] for row in found] == [[], [False, True]]
    assert rows_of(rollout_logprobs=np.zeros((0, 4))) == []
    assert rows_of(rollout_logprobs=np.zeros((2, 0)))[0]["rollout_logprobs"] == []


def test_advantages_and_versions_may_be_per_sequence_or_per_token() -> None:
    logprobs, mask = np.zeros((2, 3)), np.array([[1, 1, 1], [1, 0, 1]])
    first, second = rows_of(
        rollout_logprobs=logprobs, mask=mask, advantages=torch.tensor([1.0, 2.0]), rollout_versions=4
    )
    assert (first["advantages"], second["advantages"]) == ([1.0], [2.0])
    assert (first["rollout_version_min"], first["rollout_version_max"], first["rollout_versions"]) == (4, 4, None)
    versions = np.array([[3, 4, 5], [2, 99, 3]])  # 99: nothing was sampled there
    first, second = rows_of(rollout_logprobs=logprobs, mask=mask, advantages=mask * 0.5, rollout_versions=versions)
    assert second["advantages"] == [0.5, 0.0, 0.5]
    assert (first["rollout_version_min"], first["rollout_version_max"]) == (3, 5)
    assert (second["rollout_version_min"], second["rollout_version_max"], second["rollout_versions"]) == (
        2,
        3,
        [2, 99, 3],
    )
    (row,) = rows_of(rollout_logprobs=[[0.0, 0.0]], advantages=[[0.5, 1.0]], rollout_versions=[[7, 8]])
    assert (row["advantages"], row["rollout_version_max"]) == ([0.5, 1.0], 8)
    packed = rows_of(
        rollout_logprobs=np.zeros(3), lengths=[1, 2], advantages=[1.0, 2.0, 3.0], rollout_versions=[5, None]
    )
    assert [row["advantages"] for row in packed] == [[1.0], [2.0, 3.0]]
    assert [row["rollout_version_min"] for row in packed] == [5, None]
    assert rows_of(rollout_logprobs=[[0.0], []], rollout_versions=[[3], []])[1]["rollout_version_min"] is None


def test_every_other_argument_has_its_column() -> None:
    first, second = rows_of(
        step=np.int64(5), minibatch=2, rollout_logprobs=[[0.0, 0.0], [0.0]], loss_mask=[[True, False], [True]],
        token_ids=[torch.tensor([5, 6]), torch.tensor([7])], token_texts=[["a", "\ud800"], ["c"]], group_ids=np.array([3, 3]),
        rewards=[torch.tensor(0.5), torch.tensor(1.5)], entropy=[[0.1, 0.2], [0.3]], trainer_version=6, replica="engine-0",
        turns=[[0, 1], [0]], finish_reasons=["stop", None], reference_logprobs=[[-1.0, -2.0], [-3.0]],
        prompt_texts=["p", "q"], generation_step=4, extra=[{"a": 1}, None],
    )  # fmt: skip
    wanted = {
        "attempt": 0, "step": 5, "minibatch": 2, "sequence_id": "5-0-0", "generation_step": 4, "group_id": "3", "rank": 0,
        "replica": "engine-0", "token_ids": [5, 6], "loss_mask": [True, False], "trainer_version": 6, "turn": [0, 1],
        "reward": 0.5, "finish_reason": "stop", "prompt_text": "p", "token_texts": ["a", "\\ud800"], "extra": '{"a": 1}',
        "reference_logprobs": [-1.0, -2.0], "mask": None, "inclusion_probability": None,
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == wanted
    assert (second["finish_reason"], second["extra"], second["reward"]) == (None, None, 1.5)


def test_sequences_without_ids_get_the_same_one_in_every_minibatch() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink, rank=3) as collector:
        for minibatch in (None, None, 0, 0):
            collector.log(step=2, minibatch=minibatch, rollout_logprobs=[[0.0], [0.0]])
    assert [row["sequence_id"] for row in sink.written] == ["2-3-0", "2-3-1", "2-3-2", "2-3-3"] * 2


def test_text_is_left_out_as_asked() -> None:
    arguments: dict[str, Any] = dict(
        rollout_logprobs=[[0.0]], token_ids=[[4]], token_texts=[["secret"]], prompt_texts=["secret"]
    )
    kept = {}
    for text in ("full", "ids", "none"):
        sink = CollectingSink()
        with Collector("unused", sink=lambda sink=sink: sink, text=text, decode=lambda ids: ["secret"]) as collector:  # type: ignore[misc]
            collector.log(step=1, **arguments)
        kept[text] = [sink.written[0][name] for name in ("token_ids", "token_texts", "prompt_text")]
    assert kept == {"full": [[4], ["secret"], "secret"], "ids": [[4], None, None], "none": [None, None, None]}


def test_token_texts_are_decoded_from_ids_once_each() -> None:
    asked: list[int] = []

    def decode(ids: Any) -> list[str]:
        asked.extend(ids)
        return [f"<{token}>" for token in ids]

    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink, decode=decode) as collector:
        collector.log(step=1, rollout_logprobs=[[0.0, 0.0], [0.0]], token_ids=[[7, 3], [7]])
        collector.log(step=2, rollout_logprobs=[[0.0, 0.0, 0.0]], token_ids=[[3, 9, -100]])
    assert [row["token_texts"] for row in sink.written] == [["<7>", "<3>"], ["<7>"], ["<3>", "<9>", None]]
    assert sorted(asked) == [3, 7, 9]


def test_lists_that_describe_tokens_shorten_no_sequence_of_a_mask(caplog: pytest.LogCaptureFixture) -> None:
    """A decoder that skips special tokens returns one text too few; the end token is in the loss all the same."""
    sides = padded(ragged([4, 3]), 5)
    mask = np.arange(5) < np.array([[4], [3]])
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, rollout_logprobs=sides, mask=mask, token_texts=[["a", "b", "c"], ["d", "e", "f"]])
        collector.log(step=2, rollout_logprobs=sides, mask=mask, token_ids=[[7, 8], [1, 2, 3]], entropy=np.ones((2, 3)))
    assert [row["rollout_logprobs"] for row in sink.written] == [sides[0, :4].tolist(), sides[1, :3].tolist()] * 2
    assert [row["token_texts"] for row in sink.written[:2]] == [None, ["d", "e", "f"]]
    assert [row["token_ids"] for row in sink.written[2:]] == [None, [1, 2, 3]]
    assert [row["entropy"] for row in sink.written[2:]] == [None, [1.0] * 3]
    assert not collector.counts.sequences.dropped and collector.counts.failures == {"columns": 3}
    assert any("token_texts of sequence 0 has 3 tokens, 4 were expected" in record.message for record in caplog.records)


def test_a_mask_beyond_the_log_probs_costs_its_sequence() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0, -2.0], [-3.0]], mask=np.array([[1, 1, 1], [1, 0, 0]]))
    assert [row["rollout_logprobs"] for row in sink.written] == [[-3.0]]
    assert sink.gaps[0]["reason"] == "malformed: mask of sequence 0 has 3 tokens, 2 were expected"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "none of rollout_logprobs"),
    "three axes": ({"rollout_logprobs": np.zeros((2, 3, 4))}, "shape (2, 3, 4)"),
    "text": ({"rollout_logprobs": "text"}, "shape ()"),
    "one token short": ({"rollout_logprobs": np.zeros((2, 5)), "old_logprobs": np.zeros((2, 4))}, "different widths"),
    "one sequence short": ({"rollout_logprobs": np.zeros((2, 5)), "old_logprobs": np.zeros((1, 5))}, "numbers of sequences"),
    "lists of other lengths": ({"rollout_logprobs": [[0.0]], "old_logprobs": [[0.0, 0.0]]}, "has 2 tokens, 1 were expected"),
    "longer than the padding": ({"rollout_logprobs": np.zeros((1, 3)), "lengths": [4]}, "has 3 tokens, 4 were expected"),
    "packed short": ({"rollout_logprobs": np.zeros(5), "lengths": [2, 2]}, "packs 5 tokens"),
    "lengths below zero": ({"rollout_logprobs": np.zeros((1, 3)), "lengths": [-1]}, "at least 0"),
    "lengths of other sequences": ({"rollout_logprobs": np.zeros((2, 3)), "lengths": [1, 1, 1]}, "3 values for 2 sequences"),
    "fractions of lengths": ({"rollout_logprobs": np.zeros((1, 3)), "lengths": [1.5]}, "one integer per sequence"),
    "words for log-probs": ({"rollout_logprobs": [["a"]]}, ""),
    "complex log-probs": ({"rollout_logprobs": np.zeros((1, 2), complex)}, "complex128"),
    "a tensor without memory": ({"rollout_logprobs": torch.zeros(1, 2, device="meta")}, ""),
    "sparse": ({"rollout_logprobs": torch.zeros(1, 2).to_sparse()}, ""),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_input_is_named_when_strict_and_counted_when_not(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    arguments, message = WRONG[wrong]
    with pytest.raises((SchemaError, ValueError, TypeError, RuntimeError, NotImplementedError)) as error:
        rows_of(**arguments)
    assert message in str(error.value)
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=4, **arguments)
        collector.log(step=4, **arguments)
        collector.log(step=5, rollout_logprobs=[[-1.0]])
    tally = collector.counts.sequences
    assert (tally.written, tally.pending) == (1, 0)
    assert tally.dropped == tally.offered - 1 >= 2
    assert sum(gap["sequences"] for gap in sink.gaps) == tally.dropped
    assert all(gap["step"] == 4 and message in gap["reason"] for gap in sink.gaps)
    assert sum("malformed" in record.message and "step 4" in record.message for record in caplog.records) == 1


def test_only_the_sequences_at_fault_are_left_out() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0], [-1.0, -2.0], [-3.0]], old_logprobs=[[-1.0], [-1.0], [-3.0]])
    assert [row["sequence_id"] for row in sink.written] == ["1-0-0", "1-0-2"]
    assert (collector.counts.sequences.written, collector.counts.sequences.dropped) == (2, 1)
    assert sink.gaps[0]["reason"] == "malformed: old_logprobs of sequence 1 has 1 tokens, 2 were expected"


@pytest.mark.parametrize(("long", "is_told"), [("stop", True), ("abort", False)])
def test_dropped_sequences_that_are_all_those_of_one_finish_reason_are_told_as_such(long: str, is_told: bool) -> None:
    """One log-prob too many where a stop word was cut; a single aborted sequence among 17 may be chance."""
    sink, ends = CollectingSink(), [*["stop", "length", "length", "length"] * 4, "abort"]
    with Collector("unused", sink=lambda: sink) as collector:
        old = [[-1.0, -2.0, -3.0]] * len(ends)
        rollout = [[*own, -0.5] if end == long else own for own, end in zip(old, ends, strict=True)]
        collector.log(step=1, rollout_logprobs=rollout, old_logprobs=old, finish_reasons=ends)
    said = f"malformed: old_logprobs of sequence {ends.index(long)} has 3 tokens, 4 were expected"
    which = "; all 4 sequences that ended by stop are dropped, and none of the other 13"
    assert sink.gaps[0]["reason"] == said + (which if is_told else "") and len(sink.written) == len(ends) - ends.count(
        long
    )


def test_two_samples_under_one_id_are_told_and_not_lost_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0], [-2.0], [-3.0]], sequence_ids=["prompt", "prompt", "next"])
    assert [row["rollout_logprobs"] for row in sink.written] == [[-1.0], [-3.0]]
    assert (collector.counts.sequences.written, collector.counts.sequences.dropped) == (2, 1)
    assert "sequence 1 has the id of an earlier one, and other log-probs; wanted an id for each sample" in caplog.text


def test_two_calls_that_give_their_samples_one_id_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Collector(tmp_path, writer="thread") as collector:
        for step in range(2):
            for minibatch in (None, None, 0):
                collector.log(step=step, minibatch=minibatch, rollout_logprobs=[[-random()]], sequence_ids=["prompt"])
    assert collector.counts.failures == {"sequence_ids": 2}
    words = "1 sequences have the id of another one, and other log-probs: readers show one of each; wanted an id for each sample"
    assert caplog.text.count("have the id of another one") == 1 and words in caplog.text
    assert words in open_run(tmp_path).events["note"].to_list()


def test_copies_halves_and_slices_of_a_sequence_may_share_its_id() -> None:
    nan = float("nan")
    assert len(rows_of(rollout_logprobs=[[-1.0, nan], [-1.0, nan]], sequence_ids=["a", "a"])) == 2
    assert len(rows_of(rollout_logprobs=[[-1.0], None], old_logprobs=[None, [-2.0]], sequence_ids=["a", "a"])) == 2
    assert len(rows_of(rollout_logprobs=[[-1.0], [-2.0]], positions=[[0], [1]], sequence_ids=["a", "a"])) == 2


def test_a_sequence_without_an_id_beside_others_gets_one() -> None:
    rows = rows_of(rollout_logprobs=[[-1.0], [-2.0]], sequence_ids=["a", None])
    assert [row["sequence_id"] for row in rows] == ["a", "1-0-1"]


def test_a_sequence_may_lack_a_column() -> None:
    first, second = rows_of(rollout_logprobs=[[-1.0], None], old_logprobs=[[-1.0], [-2.0, -3.0]])
    assert (first["rollout_logprobs"], second["rollout_logprobs"]) == ([-1.0], None)
    assert second["old_logprobs"] == [-2.0, -3.0]


def test_a_masked_array_hides_its_values_and_never_gives_what_lies_under_the_mask() -> None:
    hidden = np.ma.masked_array([[-1.0, -2.0], [-3.0, -4.0]], mask=[[False, True], [False, False]])
    rows = rows_of(
        rollout_logprobs=hidden, old_logprobs=[np.ma.masked_array([-1.0, -2.0], mask=[True, False]), -np.arange(3.0, 5)]
    )
    np.testing.assert_array_equal([row["rollout_logprobs"] for row in rows], [[-1, np.nan], [-3, -4]])
    np.testing.assert_array_equal([row["old_logprobs"] for row in rows], [[np.nan, -2], [-3, -4]])
    plain = np.ma.masked_array([[-1.0, -2.0]], mask=False)
    assert rows_of(rollout_logprobs=plain)[0]["rollout_logprobs"] == [-1, -2]
    ids = np.ma.masked_array([[1, 2]], mask=[[False, True]])
    with pytest.raises(SchemaError, match="a masked array of int64 hides values"):
        rows_of(rollout_logprobs=[[-1.0, -2.0]], token_ids=ids)


def test_a_mask_of_nan_is_no_mask_that_counts() -> None:
    with pytest.raises(SchemaError, match="mask holds NaN; wanted 1 where a token counts"):
        rows_of(rollout_logprobs=[[-1.0, -2.0]], mask=[[1.0, float("nan")]])


def test_an_extra_that_holds_itself_or_is_deep_costs_no_row() -> None:
    itself: dict[str, Any] = {"reward": 1.0}
    itself["self"] = itself
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    shared: Any = {}
    for _ in range(40):
        shared = {"a": shared, "b": shared}
    assert bytes_offered({"extra": [shared]}) < 1 << 20, "2 ** 40 texts are never looked at"
    rows = rows_of(rollout_logprobs=[[-1.0]] * 3, extra=[itself, {"deep": deep}, {(1, 2): 3}])
    assert rows[0]["extra"].startswith('{"reward": 1.0, "self": {"reward": 1.0') and '"..."' in rows[0]["extra"]
    assert rows[1]["extra"].startswith('{"deep": [[[') and rows[2]["extra"]


@pytest.mark.parametrize(("given", "recorded"), [(3.0, 3), (np.float32(4), 4), (np.int16(5), 5), (-1.0, -1)])
def test_a_step_that_is_a_whole_float_is_that_step(given: Any, recorded: int) -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=given, rollout_logprobs=[[-1.0]])
        collector.log(step=given + 0.5, rollout_logprobs=[[-1.0]])
    assert [row["step"] for row in sink.written] == [recorded]
    assert "the step is a float" in sink.gaps[0]["reason"]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 0, 2, 3], [2, 3, 1, 0]])
def test_arrays_lists_and_nothing_may_stand_beside_each_other(make: Callable[..., Any], order: list[int]) -> None:
    given = [make([-1.0, -2.0]), [-3.0], [], None]
    wanted = [[-1.0, -2.0], [-3.0], [], None]
    own = [given[place] for place in order]
    rows = rows_of(rollout_logprobs=own, old_logprobs=own)
    assert [row["rollout_logprobs"] for row in rows] == [wanted[place] for place in order]


def test_columns_of_data_frames_are_lists_of_sequences() -> None:
    rows = [[-1.0, -2.0], [], [-0.5]]
    for column in (pd.Series, pl.Series, pa.array, lambda values: pa.chunked_array([values])):
        written = rows_of(
            rollout_logprobs=column(rows), sequence_ids=column(["a", "b", "c"]), rewards=column([0.0, 1.0, 0.5])
        )
        assert [row["rollout_logprobs"] for row in written] == rows
        assert [row["sequence_id"] for row in written] == ["a", "b", "c"]
        assert [row["reward"] for row in written] == [0.0, 1.0, 0.5]
        flat = rows_of(rollout_logprobs=column([-1.0, -2.0, -0.5]), lengths=column([2, 1]))
        assert [row["rollout_logprobs"] for row in flat] == [[-1.0, -2.0], [-0.5]]


@pytest.mark.parametrize("name", ["rollout_logprobs", "token_ids", "prompt_ids", "token_texts", "mask", "readings"])
def test_lists_without_end_never_raise_into_the_trainer(name: str) -> None:
    deep: Any = 0.0
    for _ in range(5000):
        deep = [deep]
    given: Any = {
        "rollout_logprobs": [[-1.0]],
        "old_logprobs": [[-1.0]],
        name: {"again": deep} if name == "readings" else [deep],
    }
    with Collector("unused", sink=CollectingSink) as collector:
        collector.log(step=1, **given)
    assert collector.counts.sequences.offered == 1


def test_a_call_with_hardly_a_frame_left_never_raises_into_the_trainer() -> None:
    def after(frames: int, call: Callable[[], None]) -> None:
        after(frames - 1, call) if frames else call()

    here = next(number for number in range(10_000) if sys._getframe(number).f_back is None) + 1
    with Collector("unused", sink=CollectingSink) as collector:
        calls: list[Callable[[], None]] = [
            lambda: collector.log(step=1, rollout_logprobs=[[-1.0]], unknown=1),  # type: ignore[call-arg]
            lambda: collector.log(step=1, rollout_logprobs=[object()]),
            lambda: collector.event("end", 1),
        ]
        for call in calls:
            for room in range(12, 80):
                after(sys.getrecursionlimit() - here - room, call)
    assert collector.counts.failures


def test_lists_of_numbers_are_copied_as_one_list_and_read_as_they_were() -> None:
    rows: Any = [[-1.0, -2], None, (), (-3.0,)]
    (taken,) = snapshots({"rollout_logprobs": rows}, HostCopies(0))[0].values()
    rows[0][0] = 9.0
    assert isinstance(taken, Joined) and taken.values == [-1.0, -2, -3.0]
    assert (taken.lengths, taken.present) == ([2, 0, 0, 1], [True, False, True, True])
    per_sequence = snapshots({"rewards": [[1.0], [2.0]], "token_ids": [[1], [None]]}, HostCopies(0))[0]
    assert per_sequence == {"rewards": [[1.0], [2.0]], "token_ids": [[1], [None]]}
