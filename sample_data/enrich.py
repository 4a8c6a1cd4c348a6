"""Adds prompt ids and readings to a shipped run, from what `replay.py` has found. Every other column stays as it was recorded.

    python sample_data/enrich.py RUN_FOLDER REPLAYED.parquet [AGAIN.parquet]

REPLAYED gives the ids of each prompt's text, and log-probs in float32 under the weights of each step: the reading `referee`.
AGAIN is of a replay whose log-probs are the trainer's own in another batch shape: the reading `trainer_again`. A step is
given readings only if all its tokens and old log-probs are those of the replay, bit by bit, and the replay found the same.
"""

import hashlib
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.collectors.writing.durable_file import write_whole
from ratioscope.collectors.writing.offline import record_readings
from ratioscope.collectors.writing.parquet_file import parquet_bytes
from ratioscope.record import arrow_schema

PROMPT_IDS = arrow_schema().field("prompt_ids")
BY_REPLAY = {"made by": "sample_data/replay.py", "torch": version("torch"), "transformers": version("transformers")}
REFEREE = {"model": "SmolLM2-135M-Instruct with the trainer's weights of each step", "dtype": "float32", **BY_REPLAY}
AGAIN = {"model": "the trainer's own, with bfloat16 autocast, one sequence at a time", "dtype": "float32", **BY_REPLAY}
Row = dict[str, Any]


def main(run: Path, replayed: Path, again: Path | None = None) -> None:
    """Enrich one run. A run that has prompt ids keeps them."""
    rows = pq.read_table(replayed).to_pylist()
    others = [] if again is None else pq.read_table(again).to_pylist()
    add_prompt_ids(run, {row["prompt_text"]: row["prompt_ids"] for row in (*rows, *others)})
    readings = [("referee", rows, REFEREE)]
    readings += [("trainer_again", others, AGAIN)] if others else []
    recorded = {
        _key(row): row for file in token_files(run) for row in pq.read_table(file, partitioning=None).to_pylist()
    }
    for name, found, made_of in readings:
        other = {row["step"] for row in found if not is_same(recorded.get(_key(row)), row)}
        own = [row for row in found if row["step"] not in other]
        same = [row for row in own if row["referee"] is not None]
        of_step, read = (Counter(row["step"] for row in part) for part in (own, same))
        table = {
            "attempt": [recorded[_key(row)]["attempt"] for row in same],
            "step": [row["step"] for row in same],
            "sequence_id": [row["sequence_id"] for row in same],
            "logprobs": [row["referee"] for row in same],
            "inclusion_probability": [read[row["step"]] / of_step[row["step"]] for row in same],
        }
        record_readings(run, name, pa.table(table), made_of)
        print(f"{run.name}: {name} of {len(same)} sequences")


def is_same(recorded: Row | None, replayed: Row) -> bool:
    """Whether the replay has computed the recorded old log-probs of the recorded tokens, with the same weights."""
    if recorded is None:
        return False
    own = [recorded[name] for name in ("token_ids", "old_logprobs")]
    return own == [replayed[name] for name in ("token_ids", "old_logprobs")] and replayed["replayed"] == own[1]


def token_files(run: Path) -> list[Path]:
    return sorted((run / layout.TOKENS).glob("*/*.parquet"))


def add_prompt_ids(run: Path, ids_of: dict[str, list[int]]) -> None:
    """Write the token files anew with one column more, and the lines that commit them."""
    (log,) = (log for log in (run / layout.COMMITS).glob("*.jsonl") if not log.name.startswith("offline"))
    entries = [entry for line in log.read_bytes().splitlines() if (entry := layout.decode_line(line)) is not None]
    lines = {entry["file"]: entry for entry in entries if str(entry.get("file", "")).startswith(layout.TOKENS)}
    for path in token_files(run):
        table = pq.read_table(path, partitioning=None)
        if "prompt_ids" in table.column_names:
            continue
        texts: list[Any] = table["prompt_text"].to_pylist()
        ids: pa.Array[Any] = pa.array([ids_of[text] for text in texts], PROMPT_IDS.type)
        place = table.column_names.index("prompt_text")
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        data = parquet_bytes(table.add_column(place, PROMPT_IDS, ids), metadata)
        read = pq.read_table(pa.BufferReader(data))
        assert bits(read.drop_columns(["prompt_ids"])) == bits(table), path
        file = path.relative_to(run)
        write_whole(run, file, data)
        lines[file.as_posix()] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_whole(run, log.relative_to(run), b"".join(map(layout.encode_line, entries)))


def bits(table: pa.Table) -> bytes:
    """The values of a table, bit by bit."""
    sink = pa.BufferOutputStream()
    whole = table.replace_schema_metadata(None).combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(sink.getvalue())


def _key(row: Row) -> tuple[int, str]:
    return row["step"], row["sequence_id"]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
