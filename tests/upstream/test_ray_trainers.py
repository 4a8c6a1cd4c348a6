"""NeMo-RL, AReaL and verl in a driver and worker processes of a real local Ray, recorded by `ratioscope run` alone.

Their own groups of workers, two data-parallel ranks over Gloo, and their losses run there; one of verl's workers is killed in the
middle of a step. Needs ray 2.60 on PYTHONPATH, and areal 1.0.4 or verl 0.9.1 there or a checkout of NVIDIA-NeMo/RL in a folder of
SOURCES; skipped otherwise.
"""

from pathlib import Path
from typing import Any

import pytest
from support.adapter_properties import differences
from support.launched import launch
from support.sources import root
from support.written_run import commit_lines

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the trainers run on torch")
pytest.importorskip("ray", reason="the ray package is not importable here")


def test_what_nemo_rls_workers_hold_is_recorded_where_they_run(tmp_path: Path) -> None:
    checks: Any = pytest.importorskip("upstream.nemo_rl_checks")
    root("nemo_rl")
    traces = []
    for name in ("on", "off"):
        recorded = tmp_path / "run" if name == "on" else None
        launch("upstream.nemo_rl_ray", str(tmp_path / name), "{}", recorded=recorded)
        traces.append(torch.load(tmp_path / name / "trace.pt", weights_only=False))
    checks.assert_held(traces[0], tmp_path / "run")
    ranks = {line["rank"] for line in commit_lines(tmp_path / "run") if "rank" in line}
    assert ranks >= {0, 1}
    for trace in traces:
        trace["losses"].sort(key=lambda call: call["data"]["input_ids"].tolist())  # workers' ids of processes differ
    checks.assert_same(*traces)


def test_what_areals_workers_hold_is_recorded_in_single_controller_mode(tmp_path: Path) -> None:
    checks: Any = pytest.importorskip("upstream.areal_checks", reason="areal is not importable here")
    held = dict[str, list[Any]]()
    for name in ("on", "off"):
        launch("upstream.areal_ray", str(tmp_path / name), recorded=tmp_path / "run" if name == "on" else None)
        files = [tmp_path / name / f"{file}.pt" for file in ("rank-0", "rank-1", "trace")]
        held[name] = [torch.load(file, weights_only=False) for file in files]
    *ranks, driver = held["on"]
    wanted = [checks.expected({**driver, **rank}) for rank in ranks]
    rows = ratioscope.open_run(tmp_path / "run").records().collect().to_dicts()
    assert len(rows) == sum(map(len, wanted)) == 14 and all(wanted)
    for row in rows:
        of_row = wanted[row["rank"]][row["step"], tuple(row["token_ids"])]
        assert {name: row[name] for name in of_row.columns} == of_row.columns and row["minibatch"] == of_row.minibatch
    for on, off in zip(*held.values(), strict=True):
        assert differences(_plain(on), _plain(off)) == []


def _plain(held: dict[str, Any]) -> dict[str, Any]:
    """The values that a process of AReaL held, in lists and dicts."""
    visits = [{"data": visit.data, "loss": visit.loss, **visit.arguments} for visit in held.get("visits", ())]
    return {**held, "visits": visits}


@pytest.fixture(scope="module")
def of_verl(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name -> (run folder, what the processes held): recorded, not recorded, and recorded with a worker that is killed."""
    pytest.importorskip("upstream.verl_drive", reason="verl is not importable here")
    folder, made = tmp_path_factory.mktemp("verl"), dict[str, tuple[Path, Any]]()
    for name, killed in (("on", []), ("off", []), ("killed", ["4"])):
        recorded = None if name == "off" else folder / name / "run"
        launch("upstream.verl_ray", str(folder / name), *killed, recorded=recorded)
        made[name] = folder / name / "run", torch.load(folder / name / "trace.pt", weights_only=False)
    return made


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Rows as a reader has them, in an order of their own: verl draws other names in each process."""
    rows = ratioscope.open_run(run).records().collect().to_dicts()
    return sorted(
        rows, key=lambda row: (row["step"], row["minibatch"] is not None, row["minibatch"] or 0, _values(row))
    )


def _values(row: dict[str, Any]) -> list[float]:
    return [value for name in ("old_logprobs", "current_logprobs", "entropy") for value in row[name] or []]


def test_what_verls_workers_hold_is_recorded_and_its_training_is_bit_identical(of_verl: Any) -> None:
    driving: Any = pytest.importorskip("upstream.verl_drive")
    (run, trace), (_, plain) = of_verl["on"], of_verl["off"]
    assert differences(trace["tables"], plain["tables"]) == [] and trace["deaths"] == 0
    assert differences(trace["logged"], plain["logged"]) == []
    held = {
        (key, rank): values["current_logprobs"] + values["entropy"]
        for rank, seen in enumerate(trace["seen"][-1])
        for key, values in driving.held(trace["batches"], seen).items()
        if key[1] is not None
    }
    told = {
        ((row["step"], row["minibatch"], row["sequence_id"]), row["rank"]): row["current_logprobs"] + row["entropy"]
        for row in rows_of(run)
        if row["minibatch"] is not None
    }
    assert told == held and {rank for _, rank in told} == {0, 1} and len(told) == 3 * 2 * 6


def test_a_worker_that_is_killed_and_its_successor_double_no_row_and_lose_none(of_verl: Any) -> None:
    (run, trace), (undisturbed, untouched) = of_verl["killed"], of_verl["on"]
    assert trace["deaths"] == 1 and differences(trace["tables"], untouched["tables"]) == []
    wanted, found = rows_of(undisturbed), rows_of(run)
    assert [_values(row) for row in found] == [_values(row) for row in wanted]
    assert len({(row["step"], row["minibatch"], row["sequence_id"]) for row in found}) == len(found)
    read = ratioscope.open_run(run)
    logged = sum(line.get("rows", 0) for line in commit_lines(run) if line["kind"] == "commit")
    assert read.conservation.hidden == logged - len(found)  # what the dead wrote of the step is there, and told apart
    assert read.conservation.gone >= 1  # and writers that ended without closing are counted
    told = launch("ratioscope", "info", str(run), recorded=None)
    assert "ended without closing" in told and "written again by this rank, which was started again by itself" in told
