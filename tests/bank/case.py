"""A labelled run as its user would have logged it, and its file: one Parquet table and one JSON index for each family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent / "data"
TOKENS: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("rollout_logprobs", "old_logprobs", "current_logprobs", "reference_logprobs"), pa.float32()),
    "entropy": pa.float16(),
    "mask": pa.bool_(),
    **dict.fromkeys(("token_ids", "sampled_ids", "prompt_ids", "rollout_versions", "kv_versions"), pa.int32()),
    "turns": pa.int16(),
    "positions": pa.int32(),
    "router_agreement": pa.float32(),
}
"""Argument of Collector.log with a list for each sequence -> type of its values."""
SEQUENCES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("group_ids", "replica", "finish_reasons", "sequence_ids"), pa.string()),
    **dict.fromkeys(("rewards", "advantages", "queue_seconds", "generation_seconds"), pa.float32()),
    **dict.fromkeys(
        ("cached_tokens", "prompt_tokens", "pack_index", "pack_position", "media", "generation_step"), pa.int32()
    ),
}
"""Argument of Collector.log with a value for each sequence -> its type."""
EACH = ("rollout_versions",)
"""Arguments that may have one value for a sequence or one for each token: the first is kept as a list of one."""
FLOATS = ("rollout_logprobs", "old_logprobs", "current_logprobs", "reference_logprobs")


@dataclass(frozen=True)
class Case:
    """One labelled run."""

    name: str
    """<family>.<fault>.<strength>.<number>; no two cases share it."""
    family: str
    """The generator; healthy runs of odd shapes are the family `odd`."""
    fault: str
    """The mechanism, a key of ACCEPTED; "none" if all is well."""
    side: str
    """The side at fault: engine, trainer or neither."""
    strength: str
    """weak, middle, strong or none."""
    injected: str
    """The fault with its parameters, in words."""
    decided: bool
    """True if the record can decide the cause. It follows from the mechanism; see accepted.py."""
    config: dict[str, Any] = field(default_factory=dict)
    """Collector(config=...): the settings that a trainer of this kind logs."""
    logs: list[dict[str, Any]] = field(default_factory=list)
    """Arguments of Collector.log, one call each. `rank` is that of the Collector, 0 if absent."""
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    """(index of the log after which it happens; -1 before the first, "sync" or "event", arguments)."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of Collector, such as computed_apart."""

    @property
    def tokens(self) -> int:
        return sum(len(sequence) for log in self.logs for sequence in log["rollout_logprobs"])


def write(family: str, cases: Sequence[Case], folder: Path = DATA) -> None:
    """Writes family.parquet, one row for each sequence, and family.json, one line for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    assert len({case.name for case in cases}) == len(cases), "two cases share a name"
    rows: dict[str, list[Any]] = {"case": [], "log": []}
    used = {name for case in cases for log in case.logs for name in log} & {*TOKENS, *SEQUENCES}
    rows |= {name: [] for name in sorted(used)}
    for number, case in enumerate(cases):
        for at, log in enumerate(case.logs):
            count = len(log["rollout_logprobs"])
            rows["case"] += [number] * count
            rows["log"] += [at] * count
            for name in used:
                rows[name] += [None] * count if log.get(name) is None else [_kept(name, v) for v in log[name]]
    types = {"case": pa.int32(), "log": pa.int32()} | {
        name: pa.list_(TOKENS[name]) if name in TOKENS else SEQUENCES[name] for name in sorted(used)
    }
    table = pa.table({name: pa.array(values, types[name]) for name, values in rows.items()})
    streams = [f"{name}.list.element" for name in FLOATS if name in used]
    words = [name for name in table.column_names if name not in FLOATS and name != "entropy"]
    columns = [f"{name}.list.element" if name in TOKENS else name for name in words]
    pq.write_table(
        table, folder / f"{family}.parquet", compression="zstd", compression_level=12,
        use_dictionary=columns, use_byte_stream_split=streams, write_statistics=False,  # type: ignore[arg-type]  # lists are taken
    )  # fmt: skip
    index = [json.dumps(_entry(case)) for case in cases]
    (folder / f"{family}.json").write_text("[\n" + ",\n".join(index) + "\n]\n")


def read(family: str, folder: Path = DATA, every: int = 1) -> list[Case]:
    """The cases of a family; with `every` one in so many, the first included."""
    index = json.loads((folder / f"{family}.json").read_text())
    table = pq.read_table(folder / f"{family}.parquet")
    number, log = table["case"].to_numpy(), table["log"].to_numpy()
    found = []
    for at in range(0, len(index), every):
        start, stop = np.searchsorted(number, [at, at + 1])
        entry, own, of_log = dict(index[at]), table.slice(start, stop - start), log[start:stop]
        logs = []
        for place, kept in enumerate(entry.pop("logs")):
            low, high = np.searchsorted(of_log, [place, place + 1])
            logs.append(kept | _read_log(own.slice(low, high - low)))
        entry["events"] = [(after, kind, arguments) for after, kind, arguments in entry["events"]]
        found.append(Case(logs=logs, **entry))
    return found


def families(folder: Path = DATA) -> list[str]:
    """The families with a file in this folder."""
    return sorted(path.stem for path in folder.glob("*.parquet"))


def _entry(case: Case) -> dict[str, Any]:
    scalars = [{k: v for k, v in log.items() if k not in TOKENS and k not in SEQUENCES} for log in case.logs]
    return {name: value for name, value in vars(case).items() if name != "logs"} | {"logs": scalars}


def _kept(name: str, value: Any) -> Any:
    if name in SEQUENCES:
        return value if isinstance(value, str) or value is None else np.asarray(value).item()
    if name in EACH and np.ndim(value) == 0:
        return [int(value)]
    if TOKENS[name] == pa.float16():
        return np.asarray(value, np.float16)
    return np.asarray(value)


def _read_log(rows: pa.Table) -> dict[str, Any]:
    log: dict[str, Any] = {}
    for name in rows.column_names[2:]:
        column = rows[name]
        if column.null_count == len(column):
            continue
        if name in SEQUENCES:
            log[name] = column.to_pylist()
            continue
        lists = [None if v.values is None else v.values.to_numpy(zero_copy_only=False) for v in column]
        lists = [v.astype(np.float32) if v is not None and v.dtype == np.float16 else v for v in lists]
        single = [int(v[0]) for v in lists if v is not None and len(v) == 1] if name in EACH else []
        log[name] = single if single and len(single) == len(lists) else lists
    return log
