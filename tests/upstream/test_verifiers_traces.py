"""Nodes that verifiers' own code annotates and writes are imported to what they hold, rounded as verifiers rounds them.

Needs verifiers 0.4 and what its graph module imports: pip install --no-deps verifiers prime-pydantic-config renderers openai
pydantic-settings. Skipped where it is not importable. Its traces import servers and sandboxes, so the frame around the nodes is
by its schema. Where verifiers is installed with all that it asks for, its own classes write the frame, too.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.imported import DUMPS, imported, rejected

traces: Any = import_module("upstream.prime_rl_traces")
pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = find_spec("verifiers")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("verifiers is not installed")
    package = ModuleType("verifiers.v1")  # its own file imports every environment
    package.__path__ = [f"{spec.submodule_search_locations[0]}/v1"]
    monkeypatch.setitem(sys.modules, "verifiers.v1", package)
    try:
        yield import_module("verifiers.v1.graph")
    except ImportError as error:
        pytest.skip(f"verifiers' graph is not importable: {error}")


EXACT = [-0.123456789, -1.5, -0.00004]
ASKED = {"role": "user", "content": "q"}


def _nodes(graph: Any) -> list[Any]:
    """A question, an answer of which the first token is scaffold, what a tool said, a second answer, and another first answer."""
    answer = {"role": "assistant", "content": "a"}
    node = graph.MessageNode
    return [
        node(message=ASKED, token_ids=[1, 2], mask=[False, False]),
        node(parent=0, message=answer, sampled=True, token_ids=[3, 4, 5], mask=[False, True, True], logprobs=EXACT[:2],
             trainer_logprobs=[-0.2, -1.25], entropies=[0.5, 0.75], advantages=[1.0, 1.0], reference_logprobs=[-0.3, -0.4]),
        node(parent=1, message={"role": "tool", "tool_call_id": "c", "content": "t"}, token_ids=[6], mask=[False]),
        node(parent=2, message=answer, sampled=True, token_ids=[7, 8], mask=[False, True], logprobs=EXACT[2:],
             trainer_logprobs=[-0.6], entropies=[1.0], advantages=[1.0], reference_logprobs=[-0.5]),
        node(parent=0, message=answer, sampled=True, token_ids=[9], mask=[True], logprobs=[-0.7]),
    ]  # fmt: skip


@pytest.mark.parametrize("digits", [4, None])
def test_nodes_that_a_trainer_annotated(graph: Any, tmp_path: Path, digits: int | None) -> None:
    written = [
        node.model_dump(mode="json", exclude_none=True, context={"float_decimals": digits}) for node in _nodes(graph)
    ]
    folder = tmp_path / "rollouts" / "step_4" / "train" / "math"
    folder.mkdir(parents=True)
    trace = {"id": "t", "nodes": written, "reward": 1.0, "stop_condition": "done"}
    (folder / "traces.jsonl").write_text(json.dumps({"id": "e", "traces": [trace]}) + "\n")
    code, rows = imported(tmp_path / "rollouts", tmp_path / "run")
    assert code == 0 and not rejected(tmp_path / "run") and [row["step"] for row in rows] == [4, 4]
    long, short = rows
    assert long["prompt_ids"] == [1, 2, 3] and long["token_ids"] == [4, 5, 6, 7, 8]
    assert long["mask"] == [True, True, False, False, True] and short["token_ids"] == [9]
    held = [value if digits is None else round(value, digits) for value in EXACT]
    for column, wanted in (
        ("rollout_logprobs", held), ("current_logprobs", [-0.2, -1.25, -0.6]), ("reference_logprobs", [-0.3, -0.4, -0.5]),
        ("entropy", [0.5, 0.75, 1.0]), ("advantages", [1.0] * 3),
    ):  # fmt: skip
        spread = np.asarray([*wanted[:2], np.nan, np.nan, wanted[2]], np.float32)
        assert np.array_equal(np.float32(long[column]), spread, equal_nan=True), column
    assert short["current_logprobs"] is None, "an answer that no trainer has annotated"
    stated = json.loads((tmp_path / "run" / "run.json").read_text())["resolution"]
    assert stated["rollout"] == 5e-5


def test_the_kept_run_folder_of_prime_rl_is_what_verifiers_writes(graph: Any, tmp_path: Path) -> None:
    try:
        classes = traces.classes()
    except ImportError as error:
        pytest.skip(f"verifiers' episodes are not importable: {error}")
    traces.write(tmp_path / "made", classes)
    _, made = imported(tmp_path / "made", tmp_path / "run")
    _, kept = imported(DUMPS / "prime_rl", tmp_path / "kept")
    assert str(made) == str(kept) and len(made) == 10
