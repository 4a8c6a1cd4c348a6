"""Bytes on disk per token: ours, other formats of the same numbers, what exact encodings give, and the bound of their entropy."""

import gzip
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.collectors.writing.parquet_file import parquet_bytes

from .measured import Growth, Row, Table
from .packages import bytes_of

RUN = Path(__file__).parents[2] / "sample_data" / "runs" / "trl-vllm-stale"
COLUMNS = ("token_ids", "rollout_logprobs", "old_logprobs")
Words = np.ndarray[Any, np.dtype[np.uint32]]


def parts(quick: bool) -> Iterator[Table | Growth]:
    rows = _rows(6 if quick else 60)
    yield formats(rows)
    yield encodings(rows)


def formats(rows: pa.Table) -> Table:
    """The same columns of the shipped run in other formats."""
    tokens = len(_flat(rows, COLUMNS[0]))
    lists = {name: rows[name].to_pylist() for name in COLUMNS}
    arrays = {name: _flat(rows, name) for name in COLUMNS}
    lines = "".join(
        json.dumps(dict(zip(lists, each, strict=True))) + "\n" for each in zip(*lists.values(), strict=True)
    )
    npz = io.BytesIO()
    np.savez_compressed(npz, **arrays)  # type: ignore[arg-type]
    sizes = {
        "ratioscope": sum(_own_sizes(rows)[name] for name in COLUMNS),
        "ratioscope, with all columns of the Record": len(parquet_bytes(rows, {})),
        "Parquet as pyarrow writes it": len(_parquet(rows.select(COLUMNS), compression="snappy")),
        "np.savez_compressed": len(npz.getvalue()),
        "pickle": len(pickle.dumps(arrays, protocol=5)),
        "JSON lines, gzip": len(gzip.compress(lines.encode(), 6)),
        "JSON lines": len(lines),
    }
    text = (
        f"Token ids and the log-probs of two policies of {tokens:,} sampled tokens of the shipped run trl-vllm-stale "
        "(vLLM in bfloat16, TRL under bfloat16 autocast), one row per sequence; wandb.Table and trackio.Table have a row per "
        "token. Every format gives back every bit."
    )
    rows_ = tuple(Row(name, (size / tokens,)) for name, size in sizes.items())
    packages, missing = bytes_of(rows.select(("step", *COLUMNS)), tokens)
    return Table("size", "Bytes per token on disk", text, "bytes/token", "ratioscope", (*rows_, *packages), missing)


def encodings(rows: pa.Table) -> Table:
    """Exact encodings of one policy's log-probs, and bounds of entropy."""
    old, rollout = (_flat(rows, name).view(np.uint32) for name in ("old_logprobs", "rollout_logprobs"))
    column = pa.table({"values": pa.array(old.view(np.float32))})
    split = {"use_byte_stream_split": True, "use_dictionary": False, "compression": "zstd"}
    sizes: dict[str, float] = {
        "as ratioscope writes it": _own_sizes(rows)["old_logprobs"],
        "plain, zstd 3": len(_parquet(column, use_dictionary=False, compression="zstd", compression_level=3)),
        "dictionary, zstd 3": len(_parquet(column, use_dictionary=True, compression="zstd", compression_level=3)),
        **{
            f"byte-stream split, zstd {level}": len(_parquet(column, **split, compression_level=level))
            for level in (1, 3, 9, 19)
        },
        "bits as a difference to the other policy, split, zstd 3": len(_parquet(_differences(old, rollout), **split)),
    }
    bounds = {
        "entropy bound, byte by byte": sum(_entropy(plane) for plane in _planes(old)) / 8,
        "entropy bound of the differences, byte by byte": sum(
            _entropy(plane) for plane in _planes(_zigzag(old, rollout))
        )
        / 8,
    }
    text = (
        "The trainer's log-probs of the same tokens, as float32. The bounds are the entropies of the four bytes of a value, each "
        "on its own (bits / 8); no coder that codes bytes one by one comes below. Plain pyarrow, polars and DuckDB read every "
        "one of these files, but for the differences, which they read as integers."
    )
    rows_ = tuple(Row(name, (size / len(old),)) for name, size in sizes.items())
    return Table(
        "encodings",
        "Encodings of one policy's log-probs",
        text,
        "bytes/token",
        "as ratioscope writes it",
        (*rows_, *(Row(name, (size,)) for name, size in bounds.items())),
    )


def _rows(steps: int) -> pa.Table:
    files = sorted((RUN / "tokens").rglob("*.parquet"))[:steps]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def _flat(rows: pa.Table, name: str) -> Any:
    column: Any = rows[name].combine_chunks()
    return column.flatten().to_numpy(zero_copy_only=False)


def _own_sizes(rows: pa.Table) -> dict[str, int]:
    """Column of the Record -> its bytes in a token file of ratioscope, offsets of the lists included."""
    written = pq.ParquetFile(io.BytesIO(parquet_bytes(rows, {}))).metadata
    groups = [written.row_group(group) for group in range(written.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    sizes: dict[str, int] = {}
    for column in columns:
        name = column.path_in_schema.partition(".")[0]
        sizes[name] = sizes.get(name, 0) + column.total_compressed_size
    return sizes


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def _zigzag(values: Words, other: Words) -> Words:
    """Differences of the bits as signed integers, with the sign in the lowest bit."""
    apart = (values - other).view(np.int32)
    return ((apart << 1) ^ (apart >> 31)).view(np.uint32)


def _differences(values: Words, other: Words) -> pa.Table:
    return pa.table({"values": pa.array(_zigzag(values, other).view(np.int32))})


def _planes(values: Words) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    octets = values.view(np.uint8).reshape(-1, 4)
    return (octets[:, place] for place in range(4))


def _entropy(plane: np.ndarray[Any, np.dtype[np.uint8]]) -> float:
    """Bits per byte."""
    counts = np.bincount(plane, minlength=256)
    shares = counts[counts > 0] / len(plane)
    return float(-(shares * np.log2(shares)).sum())
