"""Files of columns with one row or one column that does not fit, and files whose frame declares what is not there."""

import io
import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

Columns = dict[str, Any]
ROWS, TOKENS, BAD = 4, 3, 1
"""Sequences of a file, their tokens, and the row that faults alter."""


def sound() -> Columns:
    """Columns of four sequences, one entry for each, of numbers that float32 holds exactly."""
    tokens = np.arange(ROWS * TOKENS).reshape(ROWS, TOKENS)
    return {
        "sequence_id": list(range(10, 10 + ROWS)), "step": [2] * ROWS, "rewards": [0.5] * ROWS,
        "rollout_logprobs": list(-(tokens + 1) / 64), "old_logprobs": list(-(tokens + 2) / 64),
        "mask": list(tokens % 2), "token_ids": list(tokens + 5), "prompt_ids": list(tokens[:, :2]),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Lists and numbers of Python."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, list) else value


def parquet(path: Path, columns: Columns) -> None:
    pq.write_table(pa.table({name: pa.array(plain(column)) for name, column in columns.items()}), path)


def npz(path: Path, columns: Columns) -> None:
    arrays: dict[str, Any] = {name: np.stack(column) for name, column in columns.items()}
    np.savez(path, **arrays)


def npz_packed(path: Path, columns: Columns) -> None:
    arrays: dict[str, Any] = {name: np.asfortranarray(np.stack(column)) for name, column in columns.items()}
    np.savez_compressed(path, **arrays)


def pickled(path: Path, columns: Columns) -> None:
    path.write_bytes(pickle.dumps(columns))


def pickled_rows(path: Path, columns: Columns) -> None:
    rows = [{name: column[row] for name, column in columns.items()} for row in range(ROWS)]
    path.write_bytes(pickle.dumps(rows))


def torch_columns(path: Path, columns: Columns) -> None:
    torch.save({name: torch.from_numpy(np.stack(column)) for name, column in columns.items()}, path)


def torch_lists(path: Path, columns: Columns) -> None:
    def tensors(value: Any) -> Any:
        return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) and value.dtype != object else value

    torch.save({name: [tensors(each) for each in column] for name, column in columns.items()}, path)


def safetensors(
    path: Path, columns: Columns, alter: Callable[[dict[str, Any]], bytes | None] = lambda header: None
) -> None:
    """alter: changes the header, or gives the bytes that stand in its place."""
    kinds = {"float64": "F64", "float32": "F32", "int64": "I64", "bool": "BOOL", "uint64": "U64", "uint16": "BF16"}
    header, body = dict[str, Any](), b""
    for name, column in columns.items():
        array = np.stack(column)
        place = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape), "data_offsets": place}
        body += array.tobytes()
    head = alter(header) or json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


Write = Callable[[Path, Columns], None]
RECTANGULAR: dict[str, Write] = {
    "a.npz": npz, "packed.npz": npz_packed, "a.safetensors": safetensors, "tensors.pt": torch_columns,
}  # fmt: skip
FREE: dict[str, Write] = {"rows.pkl": pickled_rows, "lists.pt": torch_lists, "columns.pkl": pickled}
RAGGED: dict[str, Write] = {"a.parquet": parquet, **FREE}
ANY = {**RECTANGULAR, **RAGGED}
"""Name of a file -> who writes it. RECTANGULAR files hold no row of another length, FREE ones hold any value anywhere."""


@dataclass(frozen=True)
class Fault:
    """An alteration of one row."""

    name: str
    files: Mapping[str, Write]
    column: str
    value: Any
    field: str | None = None
    """The field that is named; None: no row is rejected."""
    reason: str = ""
    cast: str = ""
    """The type that the whole column gets before, where a file has one type for it."""

    def columns(self) -> Columns:
        """The columns of a file, one row of which is altered."""
        found = sound()
        if self.cast:
            found[self.column] = [np.asarray(each).astype(self.cast)[()] for each in found[self.column]]
        found[self.column][BAD] = self.value
        return found


NAN, INF = float("nan"), float("inf")
DEEP: Any = [-0.5]
for _ in range(50):
    DEEP = [DEEP]
ROW_FAULTS = (
    Fault("an id too many", RAGGED, "token_ids", np.arange(4), "token_ids", "it has 4 tokens, and rollout_logprobs has 3"),
    Fault("an id too few", RAGGED, "token_ids", np.arange(2), "token_ids", "it has 2 tokens, and rollout_logprobs has 3"),
    Fault("a log-prob too few", RAGGED, "old_logprobs", np.zeros(2), "old_logprobs", "it has 2 tokens"),
    Fault("no log-prob", RAGGED, "rollout_logprobs", np.zeros(0), "old_logprobs", "it has 3 tokens"),
    Fault("a mask too long", RAGGED, "mask", np.ones(4, int), "mask", "it has 4 tokens"),
    Fault("an id that is no whole number", ANY, "token_ids", np.array([1.5, 2, 3]), "token_ids", "no whole one", "float64"),
    Fault("an id that is NaN", ANY, "token_ids", np.array([NAN, 2, 3]), "token_ids", "no whole one", "float64"),
    Fault("an id beyond int32", ANY, "token_ids", np.array([1, 2, 2**40]), "token_ids", "no whole one"),
    Fault("an id of 64 bits", RECTANGULAR, "token_ids", np.full(3, 2**64 - 1, np.uint64), "token_ids", "no whole one", "uint64"),
    Fault("a mask that is NaN", ANY, "mask", np.array([NAN, 1, 0]), "mask", "no number", "float64"),
    Fault("a mask that is infinite", ANY, "mask", np.array([1, INF, 0]), "mask", "no number", "float64"),
    Fault("a step below 0", ANY, "step", -1, "step", "it is -1"),
    Fault("a step of 1.5", ANY, "step", 1.5, "step", "it is 1.5", "float64"),
    Fault("a step of NaN", ANY, "step", NAN, "step", "it is nan", "float64"),
    Fault("a step without end", ANY, "step", 10**15, "step", "wanted a whole number from 0"),
    Fault("a sequence id twice", ANY, "sequence_id", 10, "sequence_ids", "already, as row 0"),
    Fault("a sequence id of NaN", ANY, "sequence_id", NAN, "sequence_ids", "it is nan", "float64"),
    Fault("truths", FREE, "rollout_logprobs", np.array([True, False, True]), "rollout_logprobs", "true and false"),
    Fault("a truth among numbers", FREE, "old_logprobs", [True, -0.5, -0.5], "old_logprobs", "true or false"),
    Fault("a text", FREE, "rollout_logprobs", "[-1, -2, -3]", "rollout_logprobs", "it is a str"),
    Fault("texts", FREE, "old_logprobs", ["a", "b", "c"], "old_logprobs", "holds a str"),
    Fault("lists in a list", FREE, "rollout_logprobs", [[-1.0], [-2.0], [-3.0]], "rollout_logprobs", "holds a list"),
    Fault("a deep list", FREE, "rollout_logprobs", DEEP, "rollout_logprobs", "holds a list"),
    Fault("two dimensions", FREE, "rollout_logprobs", np.zeros((3, 1)), "rollout_logprobs", "the shape (3, 1)"),
    Fault("one number", FREE, "rollout_logprobs", -1.0, "rollout_logprobs", "it is a float"),
    Fault("a mapping", FREE, "old_logprobs", {"a": 1}, "old_logprobs", "it is a dict"),
    Fault("a number without end", FREE, "old_logprobs", [10**30, -1, -1], "old_logprobs", "wanted one number per token"),
    Fault("a reward in words", FREE, "rewards", "good", "rewards", "no number"),
    Fault("a list of ids", FREE, "sequence_id", np.array([1, 2]), "sequence_ids", "the shape (2,)"),
    Fault("log-probs of NaN", ANY, "rollout_logprobs", np.array([NAN, -0.5, NAN])),
    Fault("infinite log-probs", ANY, "old_logprobs", np.array([-INF, INF, -0.5])),
    Fault("log-probs above 0", ANY, "rollout_logprobs", np.array([5.0, 0.0, 1e30])),
    Fault("a reward of NaN", ANY, "rewards", NAN),
    Fault("no reward", RAGGED, "rewards", None),
    Fault("one side alone", RAGGED, "old_logprobs", None),
)  # fmt: skip


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _declared(shape: str, kind: str = "<f8", body: bytes = b"", form: bytes = b"\x01\x00") -> bytes:
    """An .npy file that declares a shape, whatever it holds."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (64 - (len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + form + struct.pack("<H", len(head)) + head + body


def members(**more: bytes) -> Callable[[Path], None]:
    """An npz file whose old_logprobs is replaced, or that has one member more."""

    def write(path: Path) -> None:
        own = [
            (name, _npy(np.stack(column))) for name, column in sound().items() if name not in more or name == "rewards"
        ]
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            warnings.simplefilter("ignore")  # zipfile warns of a name that comes twice, and writes it
            for name, data in (*own, *more.items()):
                archive.writestr(f"{name}.npy", data)

    return write


def header(alter: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A safetensors file with another header: changed in place, or replaced by bytes."""

    def changed(found: dict[str, Any]) -> bytes | None:
        made = alter(found)
        return made if isinstance(made, bytes) else None

    return lambda path: safetensors(path, sound(), changed)


def old(**said: Any) -> Callable[[Path], None]:
    return header(lambda found: found["old_logprobs"].update(said))


def _two_columns(path: Path) -> None:
    columns = {name: pa.array(plain(column)) for name, column in sound().items()}
    twice = [*columns.values(), columns["old_logprobs"]]
    pq.write_table(pa.Table.from_arrays(twice, [*columns, "old_logprobs"]), path)


def _two_of_a_text(path: Path) -> None:
    path.write_text('rollout_logprobs,old_logprobs,old_logprobs\n"[-1]","[-1]","[-2]"\n')


def _deep_parquet(path: Path) -> None:
    kind: Any = pa.float64()
    for _ in range(90):
        kind = pa.list_(kind)
    pq.write_table(pa.table({"rollout_logprobs": pa.nulls(2, kind)}), path)


def _bomb(path: Path) -> None:
    """Made when it is wanted: else each worker of the tests holds half a gigabyte to its end."""
    members(more=_npy(np.zeros(1 << 26)))(path)


def _self(path: Path) -> None:
    held: Columns = sound()
    held["self"] = held
    torch.save(held, path)


def _tensor(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        tensors = {name: torch.from_numpy(np.stack(column)) for name, column in sound().items()}
        torch.save({**tensors, "old_logprobs": make(tensors["old_logprobs"])}, path)

    return write


def _named_twice(found: dict[str, Any]) -> bytes:
    return (json.dumps(found)[:-1] + ', "old_logprobs": ' + json.dumps(found["rollout_logprobs"]) + "}").encode()


FILE_FAULTS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "npz: a name twice": ("a.npz", members(rewards=_npy(np.zeros(4))), "two arrays of the name"),
    "npz: a shape without end": ("a.npz", members(old_logprobs=_declared("(1000000000000, 3)")), "declares the shape"),
    "npz: a shape below 0": ("a.npz", members(old_logprobs=_declared("(-4, 3)", body=bytes(96))), "declares the shape"),
    "npz: fewer bytes": ("a.npz", members(old_logprobs=_declared("(4, 3)", body=bytes(40))), "and has 40 bytes"),
    "npz: more bytes": ("a.npz", members(old_logprobs=_declared("(4, 3)", body=bytes(200))), "and has 200 bytes"),
    "npz: elements of no size": ("a.npz", members(old_logprobs=_declared("(1000000000,)", "|S0")), "declares the shape"),
    "npz: objects": ("a.npz", members(old_logprobs=_declared("(4,)", "|O", pickle.dumps([1]))), "a pickle, which is not run"),
    "npz: no array": ("a.npz", members(old_logprobs=b"hello"), "no npz file"),
    "npz: a form of tomorrow": ("a.npz", members(old_logprobs=_declared("(4,)", form=b"\x09\x00")), "the form (9, 0)"),
    "npz: a bomb": ("a.npz", _bomb, "it decodes to more than"),
    "safetensors: a name twice": ("a.safetensors", header(_named_twice), "two values of"),
    "safetensors: a shape below 0": ("a.safetensors", old(shape=[-4, 3]), "no shape or place"),
    "safetensors: a shape without end": ("a.safetensors", old(shape=[10**15, 3]), "declares the shape"),
    "safetensors: a shape of words": ("a.safetensors", old(shape="43"), "no shape or place"),
    "safetensors: a shape of truths": ("a.safetensors", old(shape=[True, 12]), "no shape or place"),
    "safetensors: many dimensions": ("a.safetensors", old(shape=[1] * 70), "no shape or place"),
    "safetensors: another type's bytes": ("a.safetensors", old(dtype="F32"), "declares the shape"),
    "safetensors: no type": ("a.safetensors", old(dtype=None), "which is not read"),
    "safetensors: a type of 8 bits": ("a.safetensors", old(dtype="F8_E4M3", shape=[4, 24]), "F8_E4M3"),
    "safetensors: one over another": ("a.safetensors", old(data_offsets=[0, 96]), "does not begin where"),
    "safetensors: moved by a byte": ("a.safetensors", old(data_offsets=[193, 289]), "does not begin where"),
    "safetensors: a list for a header": ("a.safetensors", header(lambda found: b"[1]"), "no object of JSON"),
    "safetensors: a deep header": ("a.safetensors", header(lambda found: b"[" * 10_000 + b"]" * 10_000), "nested too deeply"),
    "parquet: a name twice": ("a.parquet", _two_columns, "two columns of the name"),
    "csv: a name twice": ("a.csv", _two_of_a_text, "two columns of the name"),
    "parquet: a deep type": ("a.parquet", _deep_parquet, "too deeply nested"),
    "pt: a value in itself": ("a.pt", _self, "contains itself"),
    "pt: a negated view": ("a.pt", _tensor(lambda t: torch.complex(t, t).conj().imag), "a tensor with neg"),
    "pt: a stride of 0 without end": ("a.pt", _tensor(lambda t: t[0, 0].expand(10**9, 10**6)), "it decodes to more than"),
    "pt: complex numbers": ("a.pt", _tensor(lambda t: t + 0j), "ComplexDoubleStorage"),
    "pt: a sparse tensor": ("a.pt", _tensor(lambda t: t.to_sparse()), "_rebuild_sparse_tensor"),
    "pt: a tensor without storage": ("a.pt", _tensor(lambda t: t.to("meta")), "meta_tensor"),
    "pt: 8 bits": ("a.pt", _tensor(lambda t: t.to(torch.float8_e4m3fn)), "float8_e4m3fn"),
}  # fmt: skip
"""What is wrong with the file -> its name, who writes it, and words of the reason for which all of it is refused."""
COLUMN_FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "one row less": ("old_logprobs", lambda column: column[:-1], "old_logprobs", "3 entries, and the file has 4 rows"),
    "one row more": ("token_ids", lambda column: [*column, column[0]], "token_ids", "5 entries, and the file has 4 rows"),
    "ids of fewer rows": ("sequence_id", lambda column: column[:-1], "sequence_ids", "3 entries, and the file has 4 rows"),
    "one row of a mask": ("mask", lambda column: [1, 0, 1], "mask", "3 entries, and the file has 4 rows"),
    "one number a row": ("rollout_logprobs", lambda column: [-0.5] * ROWS, "rollout_logprobs", "wanted one number per token"),
    "three dimensions": ("old_logprobs", lambda column: [each[:, None] for each in column], "old_logprobs", "the shape (3, 1)"),
    "truths": ("rollout_logprobs", lambda column: [np.ones(3, bool)] * ROWS, "rollout_logprobs", "true and false"),
}  # fmt: skip
"""What is wrong with a column of a file of arrays -> the column, what becomes of it, the field that is named, and why."""
