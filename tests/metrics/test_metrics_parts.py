"""Parts of a row, from whichever process, make the row that one process would have written."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.parts import gathered
from ratioscope.record import arrow_schema


def table(rows: list[dict[str, Any]]) -> pa.Table:
    keyed = [{"attempt": 0, "step": 1, **row} for row in rows]
    return pa.Table.from_pylist(keyed, schema=arrow_schema())


def row(name: str, tokens: int, minibatch: int | None, random: np.random.Generator) -> dict[str, Any]:
    draw = random.normal(-1, 0.5, (3, tokens)).astype(np.float32)
    return {
        "sequence_id": name,
        "minibatch": minibatch,
        "token_ids": random.integers(0, 9, tokens).tolist(),
        "mask": (random.random(tokens) < 0.8).tolist(),
        "rollout_logprobs": draw[0].tolist(),
        "old_logprobs": draw[1].tolist(),
        "current_logprobs": draw[2].tolist(),
        "token_texts": [f"t{place}" for place in range(tokens)],
        "advantages": [0.5],
        "reward": 1.0,
        "rollout_version_min": 3,
        "rollout_version_max": 3,
    }


def cut(whole: dict[str, Any], ranks: Any, rank: int) -> dict[str, Any]:
    places = np.flatnonzero(ranks == rank)
    token_columns = ("token_ids", "mask", "rollout_logprobs", "old_logprobs", "current_logprobs", "token_texts")
    lists = {name: [whole[name][place] for place in places] for name in token_columns}
    return {**whole, **lists, "positions": places.tolist(), "rank": rank}


@examples(60)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_slices_in_any_order_make_the_whole_sequences(seed: int, lengths: list[int], ranks: int) -> None:
    random = np.random.default_rng(seed)
    wholes = [row(f"s{index}", tokens, None, random) for index, tokens in enumerate(lengths)]
    owners = [random.integers(0, ranks, tokens) for tokens in lengths]
    parts = [cut(whole, owner, rank) for whole, owner in zip(wholes, owners, strict=True) for rank in range(ranks)]
    random.shuffle(parts)
    left_out = ["rank", "advantages"]
    expected = table(wholes).drop_columns(left_out).sort_by("sequence_id").to_pylist()
    assert gathered(table(parts)).drop_columns(left_out).sort_by("sequence_id").to_pylist() == expected


def test_a_value_of_the_whole_sequence_stays_one_value() -> None:
    random = np.random.default_rng(3)
    whole = row("a", 4, 0, random)
    parts = [cut(whole, np.array([0, 1, 1, 1]), rank) for rank in (0, 1)]
    assert gathered(table(parts))["advantages"].to_pylist() == [[0.5]]


def test_tokens_that_no_rank_recorded_are_set_aside_and_counted() -> None:
    random = np.random.default_rng(0)
    whole = row("a", 8, 0, random)
    owners = np.array([0, 1, 2, 2, 1, 0, 0, 0])
    parts = [cut(whole, owners, rank) for rank in (0, 2)]  # rank 1 recorded nothing
    (found,) = gathered(table(parts)).to_pylist()
    assert np.isnan(found["old_logprobs"]).tolist() == (owners == 1).tolist()
    assert [found["mask"][place] for place in np.flatnonzero(owners == 1)] == [True, True]
    measured = statistics(table([found])).filter(pc.field("slice") == "all").to_pylist()
    assert {entry["non_finite"] for entry in measured} == {2.0}


def test_a_row_that_nobody_shares_stays_what_it_was() -> None:
    random = np.random.default_rng(1)
    records = table([row("a", 3, 0, random), row("a", 3, 1, random), row("b", 2, 0, random)])
    assert gathered(records) is records
    sliced = cut(row("c", 4, 0, random), np.zeros(4, int), 0)
    mixed = gathered(pa.concat_tables([records, table([sliced])])).to_pylist()
    assert mixed[:3] == records.to_pylist()


def test_columns_of_one_row_may_come_from_several_processes() -> None:
    sampled = {"sequence_id": "a", "rollout_logprobs": [-1.0, -2.0], "replica": "engine-1", "rollout_version_min": 4}
    trained = {"sequence_id": "a", "old_logprobs": [-1.5, -2.5], "reward": 1.0, "rollout_version_min": 6}
    update = {"sequence_id": "a", "minibatch": 0, "current_logprobs": [-1.25, -2.0]}
    facts, updated = joined(table([update, sampled, trained])).sort_by("minibatch").to_pylist()[::-1]
    assert (facts["rollout_logprobs"], facts["old_logprobs"], facts["reward"]) == ([-1.0, -2.0], [-1.5, -2.5], 1.0)
    assert (facts["rollout_version_min"], facts["replica"]) == (4, "engine-1")
    assert updated["current_logprobs"] == [-1.25, -2.0]
    assert (updated["rollout_logprobs"], updated["old_logprobs"]) == ([-1.0, -2.0], [-1.5, -2.5])


def test_slices_of_minibatches_take_what_they_lack_from_the_whole_row() -> None:
    random = np.random.default_rng(2)
    whole = row("a", 5, None, random)
    facts = {name: value for name, value in whole.items() if name != "current_logprobs"}
    owners = np.array([0, 1, 1, 0, 1])
    currents = [
        {"sequence_id": "a", "minibatch": 0, "positions": np.flatnonzero(owners == rank).tolist(),
         "current_logprobs": [whole["current_logprobs"][place] for place in np.flatnonzero(owners == rank)]}
        for rank in (1, 0)
    ]  # fmt: skip
    found = joined(table([*currents, facts])).filter(pc.field("minibatch") == 0).to_pylist()[0]
    for name in ("rollout_logprobs", "old_logprobs", "current_logprobs", "token_ids"):
        assert found[name] == pytest.approx(whole[name])
