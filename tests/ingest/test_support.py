"""Top-k: what a trainer logs beside the sampled tokens comes back as the support of these tokens, in files of their own."""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope import Collector, open_run
from ratioscope.app.upkeep.maintenance import compact, prune, repair
from ratioscope.errors import SchemaError, SourceError
from ratioscope.ingest.analysis import support
from ratioscope.ingest.analysis.support import Support, support_of, support_pieces
from ratioscope.ingest.maintenance.pruning import Old
from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.remote import opening
from ratioscope.ingest.rows.topk_rows import demand_lists
from ratioscope.layout import encode_line
from ratioscope.topk import topk_schema

Lists = list[list[dict[int, tuple[float, float]]]]
"""For each sequence and token: id -> the log-probs of both sides."""
LOGPROB = st.floats(-20, 0, width=32)
ALTERNATIVES = st.dictionaries(st.integers(0, 2**31 - 1), st.tuples(LOGPROB, LOGPROB), max_size=5)
SEQUENCES = st.lists(st.lists(ALTERNATIVES, min_size=1, max_size=4), min_size=1, max_size=4)


def columns(lists: Lists) -> dict[str, Any]:
    """The arguments of `log` as lists."""
    sides = {
        name: [[[pair[n] for pair in token.values()] for token in own] for own in lists] for n, name in enumerate("ab")
    }
    return {
        "topk_ids": [[list(token) for token in own] for own in lists],
        "rollout_topk_logprobs": sides["a"],
        "old_topk_logprobs": sides["b"],
    }


def padded(ragged: Any, fill: float, kind: Any) -> Any:
    """(B, T, k) of lists."""
    shape = len(ragged), max(map(len, ragged)), max((len(token) for own in ragged for token in own), default=0)
    array = np.full(shape, fill, kind)
    for row, own in enumerate(ragged):
        for place, token in enumerate(own):
            array[row, place, : len(token)] = token
    return array


def logged(folder: Path, lists: Lists, **given: Any) -> Support:
    logprobs = [np.full(len(own), -1.0, np.float32) for own in lists]
    with Collector(folder, writer="thread", strict=True) as collector:
        collector.log(step=1, rollout_logprobs=logprobs, old_logprobs=logprobs, **given)
    return support_of(open_run(folder), 1)


def held(found: Support) -> list[dict[int, tuple[float, float]]]:
    """For each token: id -> the log-probs of both sides."""
    rows = zip(found.ids, found.rollout, found.train, strict=True)
    return [{int(i): (a, b) for i, a, b in zip(*row, strict=True) if i >= 0} for row in rows]


def flat(lists: Lists) -> list[dict[int, tuple[float, float]]]:
    return [token for own in lists for token in own]


@examples(100)
@given(lists=SEQUENCES, form=st.sampled_from(["lists", "padded", "packed", "per sequence"]))
def test_top_k_comes_back_as_it_was_logged_in_every_form(lists: Lists, form: str) -> None:
    given = columns(lists)
    if form != "lists":
        fills = {name: (-1, np.int64) if name == "topk_ids" else (np.nan, np.float32) for name in given}
        given = {name: padded(value, *fills[name]) for name, value in given.items()}
    if form in ("packed", "per sequence"):
        cut = {name: [row[: len(own)] for row, own in zip(value, lists, strict=True)] for name, value in given.items()}
        given = {name: np.concatenate(value) if form == "packed" else value for name, value in cut.items()}
    with TemporaryDirectory() as folder:
        found = logged(Path(folder) / "run", lists, **given)
    some = any(map(len, flat(lists)))
    assert held(found) == flat(lists) if some or len(found) else not some
    assert found.ids.shape == found.rollout.shape == found.train.shape
    assert (np.isnan(found.rollout) == (found.ids < 0)).all() and found.ids.dtype == np.int64


@examples(50)
@given(lists=SEQUENCES, other=SEQUENCES)
def test_sides_of_two_calls_are_the_union_of_their_ids(lists: Lists, other: Lists) -> None:
    """An oracle of dictionaries: engines and trainers each have likeliest tokens of their own."""
    others = [
        [dict(other[row % len(other)][place % len(other[row % len(other)])]) for place in range(len(own))]
        for row, own in enumerate(lists)
    ]
    logprobs = [np.full(len(own), -1.0, np.float32) for own in lists]
    ids = [f"s{row}" for row in range(len(lists))]
    one, two = columns(lists), columns(others)
    with TemporaryDirectory() as folder:
        with Collector(Path(folder) / "run", writer="thread", strict=True) as collector:
            first = {name: one[name] for name in ("topk_ids", "rollout_topk_logprobs")}
            collector.log(step=1, rollout_logprobs=logprobs, sequence_ids=ids, **first)
            second = {name: two[name] for name in ("topk_ids", "old_topk_logprobs")}
            collector.log(step=1, old_logprobs=logprobs, sequence_ids=ids, **second)
        found = support_of(open_run(Path(folder) / "run"), 1)
    wanted = [
        {i: (own.get(i, (np.nan,))[0], their.get(i, (0, np.nan))[1]) for i in {**own, **their}}
        for own, their in zip(flat(lists), flat(others), strict=True)
    ]
    for one_token, wanted_token in zip(held(found), wanted, strict=False):
        assert one_token.keys() == wanted_token.keys()
        for i, pair in wanted_token.items():
            np.testing.assert_array_equal(one_token[i], pair)
    assert len(found) in (len(wanted), 0)


def example(folder: Path, **more: Any) -> tuple[Path, dict[str, Any]]:
    """Two steps of three sequences of 4, 2 and 3 tokens, each with three alternatives, and what was logged at step 2."""
    chance = np.random.default_rng(1)
    with Collector(folder, writer="thread", strict=True) as collector:
        for step in (1, 2):
            ids = np.stack([chance.permutation(50)[:3] for _ in range(12)]).reshape(3, 4, 3)
            sides = {f"{side}_topk_logprobs": -chance.random(ids.shape) for side in ("rollout", "old")}
            given: dict[str, Any] = {
                "rollout_logprobs": -chance.random((3, 4)), "old_logprobs": -chance.random((3, 4)), "lengths": [4, 2, 3],
                "token_ids": chance.integers(0, 50, (3, 4)), "loss_mask": chance.random((3, 4)) < 0.5,
                "advantages": [1.0, -1.0, 0.5], "sequence_ids": [f"{step}-{row}" for row in range(3)],
                "topk_ids": ids, **sides,
            }  # fmt: skip
            collector.log(step=step, **given, **more)
    return folder, given


def test_the_sampled_tokens_stand_beside_their_support(tmp_path: Path) -> None:
    run, given = example(tmp_path / "run")
    found = support_of(open_run(run), 2)
    inside = np.arange(4) < np.array([4, 2, 3])[:, None]
    assert (found.sampled_ids == given["token_ids"][inside]).all() and (
        found.loss_mask == given["loss_mask"][inside]
    ).all()
    assert np.allclose(found.sampled_rollout, given["rollout_logprobs"][inside])
    assert np.allclose(found.sampled_train, given["old_logprobs"][inside]) and found.mask.all()
    assert found.advantages.tolist() == [1, 1, 1, 1, -1, -1, 0.5, 0.5, 0.5]
    assert found.sequence.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2] and (found.stands_for == 1).all()
    assert (found.ids == given["topk_ids"][inside]).all()


def test_pieces_are_the_whole_support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = example(tmp_path / "run")
    whole = support_of(open_run(run), 2)
    monkeypatch.setattr(support, "MOST_PLACES", 18)
    parts = list(support_pieces(open_run(run), 2))
    assert len(parts) > 1 and sum(map(len, parts)) == len(whole)
    assert (np.concatenate([part.ids for part in parts]) == whole.ids).all()


def test_each_minibatch_has_its_own_side_of_current(tmp_path: Path) -> None:
    logprobs = np.full((1, 2), -1.0)
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        ids = [[[3, 4], [5, 6]]]
        at = [[[-1.0, -2.0], [-1.0, -2.0]]]
        collector.log(
            step=1, rollout_logprobs=logprobs, old_logprobs=logprobs, sequence_ids=["a"], topk_ids=ids,
            rollout_topk_logprobs=at, old_topk_logprobs=at,
        )  # fmt: skip
        for minibatch in (0, 1):
            now = [[[-3.0 - minibatch, -4.0]] * 2]
            collector.log(
                step=1,
                current_logprobs=logprobs,
                sequence_ids=["a"],
                minibatch=minibatch,
                topk_ids=ids,
                current_topk_logprobs=now,
            )
    run = open_run(tmp_path / "run")
    assert len(support_of(run, 1)) == 2
    found = support_of(run, 1, "total")
    assert found.ids.tolist() == [[3, 4], [5, 6]] * 2
    assert found.train.tolist() == [[-3, -4]] * 2 + [[-4, -4]] * 2 and found.rollout.tolist() == [[-1, -2]] * 4


def test_slices_of_two_ranks_are_put_at_their_places(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        for places in ([0, 3], [1, 2]):
            side = np.full((1, 2), -1.0)
            collector.log(
                step=1, rollout_logprobs=side, old_logprobs=side, sequence_ids=["a"], positions=[places],
                topk_ids=[[[10 + place] for place in places]], rollout_topk_logprobs=[[[-1.0 - place] for place in places]],
            )  # fmt: skip
    found = support_of(open_run(tmp_path / "run"), 1)
    assert found.ids.tolist() == [[10], [11], [12], [13]] and found.rollout.tolist() == [[-1], [-2], [-3], [-4]]
    assert np.isnan(found.train).all()


def test_a_run_without_top_k_has_no_file_no_line_and_no_support(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    run = open_run(tmp_path / "run")
    assert not (tmp_path / "run/topk").exists() and run.topk_steps == [] and len(support_of(run, 1)) == 0
    assert "topk" not in (tmp_path / "run/commits").glob("*.jsonl").__next__().read_text()
    assert not any("topk" in name for name in run.rows(1).column_names)


def test_a_sequence_that_is_logged_again_and_again_fills_no_memory(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        side = np.full((1, 2), -1.0)
        collector.log(step=1, rollout_logprobs=side, old_logprobs=side, sequence_ids=["a"])
        for call in range(9):
            ids = np.arange(200).reshape(1, 1, 200) + 200 * call
            collector.log(
                step=1, rollout_logprobs=side, old_logprobs=side, sequence_ids=["a"],
                topk_ids=np.repeat(ids, 2, 1), old_topk_logprobs=np.full((1, 2, 200), -9.0),
            )  # fmt: skip
    found = support_of(open_run(tmp_path / "run"), 1)
    assert found.ids.shape == (2, 512) and (found.ids >= 0).all() and (found.train == -9).all()


def test_a_gap_without_the_sampler_is_refused(tmp_path: Path) -> None:
    run, _ = example(tmp_path / "run")
    with pytest.raises(SchemaError, match="drift has no sampler's side"):
        next(support_pieces(open_run(run), 2, "drift"))


def test_verify_repair_compact_and_prune_know_files_of_top_k(tmp_path: Path) -> None:
    run, _ = example(tmp_path / "run")
    before = support_of(open_run(run), 2)
    assert verify(run, deep=True).troubles == []
    compact(run)
    assert held(support_of(open_run(run), 2)) == held(before) and verify(run, deep=True).troubles == []
    damaged, lost = sorted((run / "topk").rglob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert [trouble.file for trouble in verify(run).troubles] == [damaged.relative_to(run).as_posix()]
    assert len(support_of(open_run(run), 1)) == 0 and len(open_run(run).tokens([1]).collect()) == 9
    repair(run, dry_run=False)
    assert not damaged.exists() and verify(run).troubles == []
    prune(run, Old(keep_steps=0), yes=True)
    assert not lost.exists() and open_run(run).topk_steps == []


def test_repair_commits_a_file_of_top_k_whose_line_was_lost(tmp_path: Path) -> None:
    run, _ = example(tmp_path / "run")
    (log,) = (run / "commits").glob("*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if json.loads(line)["kind"] != "topk"))
    assert open_run(run).topk_steps == []
    repair(run, dry_run=False)
    assert open_run(run).topk_steps == [1, 2] and len(support_of(open_run(run), 2)) == 9


def test_a_run_on_a_store_has_the_top_k_that_was_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "_MIRRORS", {})
    run, _ = example(tmp_path / "run")
    push(run, "memory://bucket/runs/topk")
    there = open_run("memory://bucket/runs/topk")
    assert there.topk_steps == [1, 2] and held(support_of(there, 2)) == held(support_of(open_run(run), 2))
    assert verify(there.path).troubles == []


@pytest.mark.parametrize(
    "counts, ids, said",
    [
        ([2, 1], [1, 2], "another number of values"),
        ([2, -1], [1], "-1 to 2 alternatives"),
        ([300, 0], list(range(300)), "0 to 300 alternatives; wanted 0 to 256"),
    ],
)
def test_lists_that_do_not_fit_each_other_are_no_top_k(counts: list[int], ids: list[int], said: str) -> None:
    row = {"attempt": 0, "step": 1, "sequence_id": "a", "topk_counts": counts, "topk_ids": ids}
    with pytest.raises(SourceError, match=said):
        demand_lists(pa.Table.from_pylist([row], topk_schema()))


def test_top_k_of_another_length_than_its_sequence_or_of_none_is_used_by_nobody(tmp_path: Path) -> None:
    run, _ = example(tmp_path / "run")
    file = next((run / "topk" / "step=000000002").glob("*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    names = rows["sequence_id"].to_pylist()
    moved = rows.set_column(
        rows.column_names.index("sequence_id"), "sequence_id", pa.array([names[1], "nobody", names[2]])
    )
    pq.write_table(moved, file)
    log = next((run / "commits").glob("*.jsonl"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line.get("file") == file.relative_to(run).as_posix():
            line |= {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    plain = ({name: value for name, value in line.items() if name not in ("crc32", "chain", "line")} for line in lines)
    log.write_bytes(b"".join(encode_line(line) for line in plain))
    found = support_of(open_run(run), 2)
    assert len(found) == 3 and set(found.sequence.tolist()) == {2}
