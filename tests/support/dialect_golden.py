"""Golden runs of the trainers' own code, as the dialect tests read them: one GoldenRun per call that was recorded.

Data lie in data/golden/<trainer>/: index.json (or .json.gz) and the files it names. Three index forms are in use; the
differences end here. Names of inputs become ours; metric names stay the trainer's.
"""

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from support.paths import TESTS

GOLDEN = TESTS / "data" / "golden"
OUR_NAMES = {
    "rollout_log_probs": "rollout_logprobs",
    "old_log_probs": "old_logprobs",
    "current_log_probs": "current_logprobs",
    "response_mask": "mask",
}
"""A file that has a `mask` already keeps its `response_mask` under that name."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class GoldenRun:
    """One recorded call: what went in, and the file entry (`expected`) and arrays that came out.

    `version`: verl's variant, or the part of the run's name before the slash. `expected`: the entry as its file has it.
    """

    trainer: str
    case: str
    run: str
    version: str
    kind: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Array]
    expected: Mapping[str, Any]
    arrays: Mapping[str, Array]

    def __str__(self) -> str:
        return f"{self.case}-{self.run}"


def golden_runs(trainer: str) -> tuple[GoldenRun, ...]:
    """Every public run of one trainer, in the order of its index."""
    index = read_json(trainer, "index.json")
    return tuple(run for entry in index["cases"] if entry["public"] for run in _runs(trainer, index, entry))


@cache
def read_json(trainer: str, name: str) -> Any:
    """A JSON file of the trainer's folder, stored plain or gzipped."""
    path = GOLDEN / trainer / name
    if path.exists():
        return json.loads(path.read_text())
    return json.loads(gzip.decompress(path.with_name(path.name + ".gz").read_bytes()))


@cache
def arrays(trainer: str, name: str) -> Mapping[str, Array]:
    """All arrays of an npz file; none if the file was not kept."""
    path = GOLDEN / trainer / name
    if not path.exists():
        return {}
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def inputs(trainer: str, name: str) -> Mapping[str, Array]:
    """The inputs of a case under our names."""
    stored = arrays(trainer, name)
    has_mask = "mask" in stored
    return {
        key if has_mask and key == "response_mask" else OUR_NAMES.get(key, key): value for key, value in stored.items()
    }


def number(value: Any) -> float:
    """A metric of a golden file: non-finite ones are written as words."""
    return float(value)


def differences(
    found: Mapping[str, float], wanted: Mapping[str, Any], *, rtol: float, atol: float | Mapping[str, float] = 0.0
) -> list[str]:
    """One line for each wanted metric that is absent or further off than atol + rtol * |wanted|; nan equals nan.

    `atol` may be a mapping from name endings, "" for all others.
    """
    lines = []
    for name, raw in wanted.items():
        value = number(raw)
        if name not in found:
            lines.append(f"{name}: absent, wanted {value}")
        elif not _close(found[name], value, rtol, _atol(atol, name)):
            lines.append(f"{name}: {found[name]!r}, wanted {value!r}")
    return lines


def _atol(atol: float | Mapping[str, float], name: str) -> float:
    if not isinstance(atol, Mapping):
        return atol
    return next((value for ending, value in atol.items() if ending and name.endswith(ending)), atol.get("", 0.0))


def _close(found: float, wanted: float, rtol: float, atol: float) -> bool:
    if math.isnan(found) or math.isnan(wanted) or math.isinf(found) or math.isinf(wanted):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return abs(found - wanted) <= atol + rtol * abs(wanted)


def _runs(trainer: str, index: Mapping[str, Any], entry: Mapping[str, Any]) -> list[GoldenRun]:
    if "run_configs" in index:
        return [_run_of_case(trainer, index, entry, run) for run in entry["runs"]]
    return [_verl_run(trainer, entry) if "variant" in entry else _whole_case(trainer, entry)]


def _verl_run(trainer: str, entry: Mapping[str, Any]) -> GoldenRun:
    """One run an index entry; its arrays share a file with the case's other runs."""
    stored = arrays(trainer, entry["arrays_file"]) if entry.get("arrays_file") else {}
    return GoldenRun(
        trainer,
        f"case_{entry['case']:03d}",
        entry["run"],
        entry["variant"],
        entry["kind"],
        entry["config"] or {},
        inputs(trainer, entry["inputs"]),
        read_json(trainer, entry["expected"])["runs"][entry["run"]],
        {name: stored[key] for name, key in entry.get("arrays", {}).items()},
    )


def _whole_case(trainer: str, entry: Mapping[str, Any]) -> GoldenRun:
    """One run a case (slime, skyrl)."""
    files = entry["expected"]
    return GoldenRun(
        trainer,
        entry["case"],
        entry["case"],
        "",
        entry.get("kind", ""),
        entry["config"],
        inputs(trainer, entry["inputs"]),
        read_json(trainer, files["metrics"]),
        arrays(trainer, files["arrays"]),
    )


def _run_of_case(trainer: str, index: Mapping[str, Any], entry: Mapping[str, Any], run: str) -> GoldenRun:
    """Many runs a case, their configurations beside the cases (nemo_rl, fireworks, areal)."""
    files = entry["expected"]
    prefix = run + "/"
    return GoldenRun(
        trainer,
        entry["case"],
        run,
        run.split("/")[0],
        "",
        index["run_configs"][run],
        inputs(trainer, entry["inputs"]),
        read_json(trainer, files["metrics"])[run],
        {k.removeprefix(prefix): v for k, v in arrays(trainer, files["arrays"]).items() if k.startswith(prefix)},
    )
