"""The matrix of ../test_adapter_matrix.py for the trainers whose own packages are driven."""

from pathlib import Path
from typing import Any

import pytest
from support.adapter_properties import (
    BOTH_MASKS,
    FACTS,
    Driven,
    differences,
    holds_what_it_should,
    left_behind,
    masks_nest,
    traced,
)

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="the trainers run on torch")

TWO = ("rollout", "current")
DRIVEN = {
    "areal": Driven("areal", "areal_drive", {}, lags=(0, 1)),  # first: others patch what it builds on
    "verl": Driven("verl", "verl_drive", {"trainer": "sync", "epochs": 2, "mini_batch_size": 1}, lags=(0, 1)),
    "verl, bypass and async": Driven(
        "verl", "verl_drive", {"trainer": "separate_async", "bypass": True}, TWO, lags=(0, 1)
    ),
    "skyrl": Driven("skyrl", "skyrl_drive", {}),
    "skyrl, fully async": Driven("skyrl", "skyrl_drive", {"is_async": True}, TWO, lags=(0, 1, 2)),
    "openrlhf": Driven("openrlhf", "openrlhf_drive", {}, columns=("mask", *FACTS)),
    "molt": Driven("molt", "molt_drive", {}, columns=("mask", *FACTS), lags=None),
    "tinker_cookbook": Driven(
        "tinker_cookbook", "tinker_cookbook_drive", {}, TWO, columns=(*BOTH_MASKS, *FACTS), lags=(0, 1)
    ),
    "slime": Driven("slime", "slime_drive", {}),
    "ms_swift": Driven("ms_swift", "ms_swift_drive", {}),
    "ms_swift, async": Driven("ms_swift", "ms_swift_drive", {"async_generate": True}, lags=(0, 1)),
    "torchtitan_rl": Driven(
        "torchtitan_rl",
        "torchtitan_rl_drive",
        {"steps": 3},
        TWO,
        columns=(*BOTH_MASKS, "group_id", "advantages", "prompt_ids"),
        lags=(0, 1),
    ),
    "xtuner": Driven("xtuner", "xtuner_drive", {}, columns=(*BOTH_MASKS, "advantages", "prompt_ids"), lags=None),
    "ms_swift, Megatron": Driven("ms_swift", "ms_swift_megatron_drive", {}),
}


@pytest.fixture(params=DRIVEN, scope="module")
def driven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(the row of the table, the run folder, the trace with a collector, the trace without)."""
    row = DRIVEN[request.param]
    drive = pytest.importorskip(f"upstream.{row.module}", reason=f"{row.adapter} is not importable here").drive
    run = tmp_path_factory.mktemp(row.adapter) / "run"
    return row, run, traced(drive, row, run), traced(drive, row, None)


def test_training_is_the_same_to_the_last_bit(driven: Any) -> None:
    _, _, recorded, plain = driven
    own = ("timeperf", "config.path")  # how long it took, and the temporary folder
    assert [where for where in differences(recorded, plain) if not any(name in where for name in own)] == []


def test_the_records_hold_what_the_trainer_knows(driven: Any) -> None:
    row, run, *_ = driven
    assert masks_nest(holds_what_it_should(Path(run), row))


def test_nothing_of_ours_is_left_on_the_trainer(driven: Any) -> None:
    assert left_behind(driven[0].adapter) == []
