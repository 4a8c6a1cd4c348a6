"""Data sets that Hugging Face `datasets` saved: folders of one table, dictionaries of them, and rows of a whole group."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.imported import imported, rejected

datasets: Any = pytest.importorskip("datasets", reason="datasets is not installed")

LENGTHS = (3, 2)
GROUPS: dict[str, Any] = {
    "step": [4, 5],
    "prompt": ["what is 2 + 2?", "and 3 + 3?"],
    "prompt_ids": [[1, 2], [3]],
    "completions": [["a", "b"], ["c", "d"]],
    "token_ids": [[[5, 6, 7], [8, 9]], [[4, 4, 4], [2, 1]]],
    "rollout_logprobs": [[[-0.5, -1.0, -0.25], [-2.0, -0.125]], [[-0.5] * 3, [-1.5] * 2]],
    "old_logprobs": [[[-0.75, -1.0, -0.5], [-2.0, -0.25]], [[-0.25] * 3, [-1.0] * 2]],
    "mask": [[[1, 0, 1], [1, 1]], [[1, 1, 1], [1, 1]]],
    "rewards": [[1.0, 0.0], [0.5, 0.25]],
    "advantages": [[0.5, -0.5], [0.125, -0.125]],
    "trainer_version": [3, 4],
    "rollout_versions": [[3, 2], [4, 3]],
}
"""Two prompts, each with two completions of three and two tokens."""


def _demand_whole(rows: list[dict[str, Any]]) -> None:
    """Each completion is a row with its own values and those of its group."""
    assert len(rows) == 4 and [row["step"] for row in rows] == [4, 4, 5, 5]
    by_ids = {tuple(row["token_ids"]): row for row in rows}
    for group in range(2):
        members = [by_ids[tuple(ids)] for ids in GROUPS["token_ids"][group]]
        assert len({row["group_id"] for row in members}) == 1, "completions of one prompt are one group"
        for place, row in enumerate(members):
            for name in ("rollout_logprobs", "old_logprobs"):
                assert np.array_equal(row[name], GROUPS[name][group][place]), name
            assert row["mask"] == [bool(each) for each in GROUPS["mask"][group][place]]
            assert (
                row["reward"] == GROUPS["rewards"][group][place]
                and row["trainer_version"] == GROUPS["trainer_version"][group]
            )
            assert (
                row["advantages"] == [GROUPS["advantages"][group][place]]
                and row["prompt_ids"] == GROUPS["prompt_ids"][group]
            )
            assert row["rollout_version_min"] == GROUPS["rollout_versions"][group][place]
    assert len({row["group_id"] for row in rows}) == 2 and len({row["sequence_id"] for row in rows}) == 4


def _saved(folder: Path) -> None:
    datasets.Dataset.from_dict(GROUPS).save_to_disk(folder)


def _dictionary(folder: Path) -> None:
    whole = datasets.Dataset.from_dict(GROUPS)
    datasets.DatasetDict({"train": whole.select([0]), "more": whole.select([1])}).save_to_disk(folder)


def _parts(folder: Path) -> None:
    datasets.Dataset.from_dict(GROUPS).save_to_disk(folder, num_shards=2)


def _fixed(folder: Path) -> None:
    """Features that say how long a list of completions is."""
    numbers = datasets.List(datasets.Value("float32"))
    made = datasets.Dataset.from_dict(GROUPS)
    made.cast_column("rollout_logprobs", datasets.List(numbers, length=2)).save_to_disk(folder)


def _parquet(folder: Path) -> None:
    folder.mkdir()
    datasets.Dataset.from_dict(GROUPS).to_parquet(folder / "train-00000-of-00001.parquet")


def _lines(folder: Path) -> None:
    folder.mkdir()
    datasets.Dataset.from_dict(GROUPS).to_json(folder / "rows.jsonl")


@pytest.mark.parametrize("write", [_saved, _dictionary, _parts, _fixed, _parquet, _lines])
def test_each_completion_of_a_group_is_a_row(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "dataset")
    capsys.readouterr()  # bars of progress
    code, rows = imported(tmp_path / "dataset", tmp_path / "run", "--json")
    assert code == 0 and not json.loads(capsys.readouterr().out)["passed_over"]
    _demand_whole(rows)


def test_ids_that_all_completions_share_name_their_group(tmp_path: Path) -> None:
    pq.write_table(pa.table({**GROUPS, "sequence_id": ["x", "y"]}), tmp_path / "rows.parquet")
    _, rows = imported(tmp_path / "rows.parquet", tmp_path / "run")
    assert [(row["group_id"], row["sequence_id"]) for row in rows] == [
        ("x", "x-0"),
        ("x", "x-1"),
        ("y", "y-0"),
        ("y", "y-1"),
    ]
    ids: dict[str, Any] = {"sequence_id": [["a", "b"], ["c", "d"]], "group_id": ["g", "h"]}
    pq.write_table(pa.table({**GROUPS, **ids}), tmp_path / "named.parquet")
    _, rows = imported(tmp_path / "named.parquet", tmp_path / "named")
    assert [(row["group_id"], row["sequence_id"]) for row in rows] == [("g", "a"), ("g", "b"), ("h", "c"), ("h", "d")]


def test_fields_of_a_group_may_be_named_and_cut_with_map(tmp_path: Path) -> None:
    columns = {
        "engine": {"lp": [[-9.0, -0.5, -1.0], [-9.0, -2.0]]}, "trainer": [[-9.0, -0.25, -1.5], [-9.0, -2.5]],
        "response": [[0, 1, 1], [0, 1]], "length": [2, 1],
    }  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps({"step": 3, **columns}) + "\n")
    lines = ("rollout_logprobs=engine.lp|where(response)", "old_logprobs=trainer|last(length)")
    options = [option for line in lines for option in ("--map", line)]
    code, rows = imported(tmp_path / "rows.jsonl", tmp_path / "run", *options)
    assert code == 0 and [row["rollout_logprobs"] for row in rows] == [[-0.5, -1.0], [-2.0]]
    assert [row["old_logprobs"] for row in rows] == [[-0.25, -1.5], [-2.5]]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one list for all": (
        {"old_logprobs": [-0.5, -1.0]},
        "it holds a list; wanted one number per token, or a list for each",
    ),
    "a completion too few": ({"old_logprobs": [[-0.5]]}, "old_logprobs has 1 entries; wanted one for each completion"),
    "rewards too few": ({"rewards": [1.0]}, "rewards has 1 entries; wanted one for each completion"),
    "numbers beside lists": ({"rollout_logprobs": [[-0.5], -0.5]}, "rollout_logprobs holds a float beside lists"),
    "another length inside": ({"old_logprobs": [[-0.5], [-0.5] * 2]}, "it has 1 tokens, and rollout_logprobs has 3"),
    "a level too many": ({"rollout_logprobs": [[[-0.5]], [[-0.5]]]}, "wanted one number per token"),
    "lists beside numbers": (
        {"rollout_logprobs": [-0.5, [-0.5]]},
        "it holds a list; wanted one number per token, or a list for each",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_nesting_is_listed_with_what_was_found_and_wanted(name: str, tmp_path: Path) -> None:
    change, reason = WRONG[name]
    sound = {column: values[0] for column, values in GROUPS.items()}
    (tmp_path / "rows.jsonl").write_text(json.dumps({**sound, **change}) + "\n" + json.dumps(sound) + "\n")
    code, rows = imported(tmp_path / "rows.jsonl", tmp_path / "run")
    assert code == 1 and len(rows) in (2, 3)
    first = rejected(tmp_path / "run")[0]
    assert first["row"] == 0 and reason in f"{first['field']} {first['reason']}"
    if "one for each completion" in reason:
        assert "has 2 completions; mend the column, or write one row for each completion" in first["reason"]


def test_a_completion_without_log_probs_costs_no_other_one(tmp_path: Path) -> None:
    sound = {column: values[0] for column, values in GROUPS.items()}
    sound |= {name: [None, sound[name][1]] for name in ("rollout_logprobs", "old_logprobs")}
    (tmp_path / "rows.jsonl").write_text(json.dumps(sound) + "\n")
    code, rows = imported(tmp_path / "rows.jsonl", tmp_path / "run")
    assert code == 1 and [row["token_ids"] for row in rows] == [[8, 9]]
    assert "holds none of" in rejected(tmp_path / "run")[0]["reason"]


def test_groups_under_names_of_their_own_are_told_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"engine_logps": [[-0.5, -1.0], [-0.25]]}) + "\n")
    assert imported(tmp_path / "rows.jsonl", tmp_path / "run")[0] == 3
    assert "--map rollout_logprobs=engine_logps" in " ".join(capsys.readouterr().err.split())
