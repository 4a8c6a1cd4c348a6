"""The trainer changes whatever it gave to `log`, after the call and before the writer looks at it: what was given is recorded.

Every argument of `log` takes every form that it accepts: lists, buffers, views, tensors, columns of data frames, objects.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from array import array
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator, KeysView, Mapping, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ratioscope.collectors.batch.batch_rows import BatchRows
from ratioscope.collectors.collector import Collector
from ratioscope.metrics.engines.arrow_columns import pc

from .figures import Figures
from .processes import PATIENCE


@dataclass
class Told:
    """An object of the trainer's with a text, which it may change."""

    word: str

    def __str__(self) -> str:
        return self.word


@dataclass
class Holder:
    """An object of the trainer's that gives its own array away."""

    values: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


class Shaped(Holder):
    """The same, with the attributes of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape  # type: ignore[no-any-return]


def _objects(items: Any) -> Any:
    made = np.empty(len(items), object)
    made[:] = [*items]
    return made


def _typed(values: Any) -> Any:
    return array("d" if values.dtype.kind == "f" else "q", values.tolist())


def _ctypes(values: Any) -> Any:
    return ((ctypes.c_double if values.dtype.kind == "f" else ctypes.c_longlong) * len(values))(*values.tolist())


def _by_row(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda rows: [form(row) for row in rows]


def _view(values: Any) -> Any:
    return np.repeat(values, 2, axis=-1)[..., ::2]


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda a: a.tolist(), "tuple": lambda a: tuple(a.tolist()), "deque": lambda a: deque(a.tolist()),
    "UserList": lambda a: UserList(a.tolist()), "array.array": _typed, "memoryview": lambda a: memoryview(_typed(a)),
    "ctypes": _ctypes, "array": lambda a: a.copy(), "view": _view, "0-d arrays": lambda a: [np.array(x) for x in a],
    "0-d views": lambda a: [row[0, ...] for row in a.copy().reshape(-1, 1)], "scalars": lambda a: [*a],
    "objects": lambda a: _objects(a.tolist()), "tensor": lambda a: torch.tensor(a),
    "0-d tensors": lambda a: [*torch.tensor(a)], "grad": lambda a: torch.tensor(a, dtype=torch.float64, requires_grad=True),
    "pandas": lambda a: pd.Series(a.copy()), "polars": lambda a: pl.Series(a), "arrow": lambda a: pa.array(a),
    "__array__": lambda a: Holder(a.copy()), "with a shape": lambda a: Shaped(a.copy()),
    "dict values": lambda a: dict(enumerate(a.tolist())).values(),
}  # fmt: skip
"""One number per sequence, in every form. Made of an array (B,)."""
TOKENS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda a: a.tolist(), "tuple of lists": lambda a: tuple(a.tolist()),
    "array": lambda a: a.copy(), "view": _view, "stride 0": lambda a: np.broadcast_to(a[0].copy(), a.shape),
    "rows of one array": lambda a: [*a.copy()], "memoryview": lambda a: memoryview(a.copy()),
    "transposed": lambda a: torch.tensor(a.T.copy()).T, "expanded": lambda a: torch.tensor(a[0]).expand(a.shape),
    "jagged": lambda a: torch.nested.nested_tensor([*torch.tensor(a)], layout=torch.jagged),
    "nested": lambda a: torch.nested.nested_tensor([*torch.tensor(a)]),
    "lists of arrays of 0-d": lambda a: _objects([[np.array(x) for x in row] for row in a]),
    "pandas of lists": lambda a: pd.Series(a.tolist()), "polars of lists": lambda a: pl.Series(a.tolist()),
    "arrow of lists": lambda a: pa.array(a.tolist()), "__array__": lambda a: Holder(a.copy()),
    "deque of deques": lambda a: deque(deque(row) for row in a.tolist()),
    **{f"rows: {name}": _by_row(form) for name, form in NUMBERS.items()},
}  # fmt: skip
"""Values of each token, in every form. Made of an array (B, T) of equal rows."""
TEXTS: dict[str, Callable[[list[str]], Any]] = {
    "list": list, "tuple": tuple, "deque": deque, "objects": _objects, "numpy": np.array, "pandas": pd.Series,
    "polars": pl.Series, "arrow": pa.array, "told": lambda texts: [Told(text) for text in texts],
    "told objects": lambda texts: _objects([Told(text) for text in texts]),
    "dict keys": lambda texts: dict.fromkeys(texts).keys(),
}  # fmt: skip
TOGETHER = ("array", "view", "stride 0", "memoryview", "transposed", "expanded", "__array__")
WHOLE_NUMBERS = {name: form for name, form in NUMBERS.items() if name != "grad"}
WHOLE_TOKENS = {name: form for name, form in TOKENS.items() if name != "rows: grad"}
EXTRAS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list, "tuple": tuple, "deque": deque, "objects": _objects, "pandas": pd.Series,
    "mappings": lambda rows: [UserDict(row) for row in rows],
}  # fmt: skip
POLICIES = ("rollout_logprobs", "old_logprobs", "current_logprobs", "reference_logprobs")
FLAGS = ("mask", "loss_mask")
WHOLE = (
    "mask_reasons",
    "token_ids",
    "sampled_ids",
    "turns",
    "positions",
    "rollout_versions",
    "kv_versions",
)
OTHER = ("entropy", "router_agreement")
OF_SEQUENCES = (
    "rewards", "advantages", "generation_step", "trainer_version", "replayed", "prompt_tokens", "cached_tokens", "media",
    "pack_index", "pack_position", "queue_seconds", "generation_seconds",
)  # fmt: skip
WORDS = ("sequence_ids", "group_ids", "finish_reasons", "prompt_texts", "replica")


def aliased(folder: Path, *, calls: int, seed: int) -> Figures:
    """As many calls for each kind of writer, each with lists, with other forms, and with these forms changed afterwards."""
    figures = Figures("Arguments that are changed after the call")
    figures.add(calls=0, columns=0, altered=0, refused=0)
    for writer in ("thread", "process"):
        with Collector(folder / writer, writer=writer) as collector, held():
            for step in range(3 * calls):
                call, form = divmod(step, 3)
                place = call * len(TOKENS) // calls if form else None
                given = arguments(place, np.random.default_rng((seed, call)))
                collector.log(step=step, **given)
                if form == 2:
                    change([*given.values()])
        figures.add(calls=calls, refused=collector.counts.sequences.dropped + sum(collector.counts.failures.values()))
        figures.demand(not figures.counts["refused"], f"{writer}: {collector.counts}")
        _examine(figures, folder / writer, calls)
    return figures


@contextmanager
def held() -> Iterator[None]:
    """The writer looks at nothing until the end."""
    gate, real = threading.Event(), BatchRows.of

    def of(self: BatchRows, batch: Any) -> Any:
        gate.wait(PATIENCE)
        return real(self, batch)

    with patch.object(BatchRows, "of", of):
        try:
            yield
        finally:
            gate.set()


def _examine(figures: Figures, root: Path, calls: int) -> None:
    for kind in ("tokens", "readings"):
        tables = [pq.ParquetFile(file).read() for file in sorted((root / kind).rglob("*.parquet"))]
        rows = pa.concat_tables(tables).sort_by([("step", "ascending"), ("sequence_id", "ascending")])
        steps = [rows.filter(pc.equal(rows["step"], step)).drop_columns("step") for step in range(3 * calls)]
        for call in range(calls):
            plain, untouched, changed = steps[3 * call : 3 * call + 3]
            for name in plain.column_names:
                are_equal = untouched[name].equals(plain[name]) and changed[name].equals(plain[name])
                figures.add(columns=1, altered=int(not are_equal))
                found = [column[name].slice(0, 1).to_pylist() for column in (plain, untouched, changed)]
                figures.demand(are_equal, f"call {call}: {name}: {found}")


def arguments(place: int | None, draws: np.random.Generator) -> dict[str, Any]:
    """All arguments of a call of `log`, each in another of its forms, which `place` chooses; None: all of them as lists."""
    rows, tokens = (int(number) for number in draws.integers(2, 6, 2))
    whole, given = np.tile(np.arange(1, tokens + 1), (rows, 1)), dict[str, Any]()
    places = count(place) if place is not None else repeat(None)
    for name in (*POLICIES, *OTHER):
        given[name] = _form(TOKENS, next(places))(np.tile(-draws.exponential(size=tokens), (rows, 1)))
    for name in (*FLAGS, *WHOLE):
        given[name] = _form(WHOLE_TOKENS, next(places))(whole if name in WHOLE[1:] else np.minimum(whole, 1))
    one_by_one = {name: form for name, form in WHOLE_TOKENS.items() if name not in TOGETHER}
    given["prompt_ids"] = _form(one_by_one, next(places))(whole)
    for name in OF_SEQUENCES:
        given[name] = _form(WHOLE_NUMBERS, next(places))(np.arange(1, rows + 1))
    for name in WORDS:
        given[name] = _form(TEXTS, next(places))([f"{name}-{row}" for row in range(rows)])
    texts = _form(TEXTS, next(places))
    given["token_texts"] = [texts([f"t{token}" for token in range(tokens)]) for _ in range(rows)]
    given["readings"] = {"again": _form(TOKENS, next(places))(np.tile(-draws.exponential(size=tokens), (rows, 1)))}
    told = [{"row": row, "in": {"lists": [[1], {"x": [2, 3]}], "a": [1.5, None]}} for row in range(rows)]
    given["extra"] = _form(EXTRAS, next(places))(told)
    return given


def _form(forms: Mapping[str, Callable[[Any], Any]], place: int | None) -> Callable[[Any], Any]:
    return [*forms.values()][0 if place is None else place % len(forms)]


def change(value: Any) -> None:
    """Changes everything in the value that can be changed."""
    if isinstance(value, np.ndarray):
        _change_array(value)
    elif isinstance(value, torch.Tensor):
        with torch.no_grad():
            for part in value.unbind() if value.is_nested else [value]:
                storage: Any = part.untyped_storage()
                storage.fill_(0)
    elif isinstance(value, (array, ctypes.Array)):
        for place in range(len(value)):
            value[place] = 0
    elif isinstance(value, memoryview):
        change(value.obj)
    elif isinstance(value, (Told, Holder)):
        change(value.values) if isinstance(value, Holder) else setattr(value, "word", "changed")
    elif isinstance(value, (dict, UserDict)):
        change([*value.values()])
        value |= {key: "changed" for key in value} | {"new": 1}
    elif isinstance(value, KeysView | ValuesView):
        change(*gc.get_referents(value))
    elif isinstance(value, (list, tuple, deque, UserList, pd.Series)):
        _change_items(value)


def _change_array(value: Any) -> None:
    while isinstance(value.base, np.ndarray):
        value = value.base
    if value.dtype.kind == "O":
        change([*value])
        value[:] = "changed"
    elif value.flags.writeable:
        value[...] = "changed" if value.dtype.kind == "U" else 0


def _change_items(value: Any) -> None:
    for item in value:
        change(item)
    if isinstance(value, pd.Series):
        value[:] = 0 if value.dtype.kind in "iuf" else "changed"
    elif not isinstance(value, tuple):
        value.clear()
        value.append("changed")
