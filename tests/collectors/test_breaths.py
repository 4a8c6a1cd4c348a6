"""The writer's thread lets the trainer have the interpreter between pieces of its work."""

from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.collectors.batch import breaths
from ratioscope.collectors.batch.records import SCHEMA
from ratioscope.collectors.batch.token_columns import strings
from ratioscope.collectors.writing import measured_steps, parquet_file
from ratioscope.collectors.writing.sampling import chosen


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The breaths that were taken, on a clock that goes on by 0.1 ms at each look."""
    found: list[float] = []
    clock = count()
    monkeypatch.setattr(breaths, "sleep", found.append)
    monkeypatch.setattr(breaths, "perf_counter", lambda: next(clock) / 10_000)
    return found


def test_a_loop_breathes_each_third_of_a_millisecond(taken: list[float]) -> None:
    assert list(breaths.breathing(range(100))) == list(range(100))
    assert len(taken) >= 20


def test_texts_are_converted_in_pieces_with_a_breath_after_each(taken: list[float]) -> None:
    texts = [str(number) for number in range(2 * breaths.PIECE + 5)]
    assert strings(texts).to_pylist() == texts
    assert len(taken) == 2


def test_lists_are_freed_in_pieces_with_breaths(taken: list[float]) -> None:
    freed: list[int] = []

    class Number:
        def __del__(self) -> None:
            freed.append(len(taken))

    items: list[Any] = [[Number() for _ in range(20 * breaths.PIECE)], None, [Number()], "a text"]
    breaths.let_go(items)
    assert items == [] and len(freed) == 20 * breaths.PIECE + 1
    assert (
        max(freed.count(breath) for breath in set(freed)) <= 4 * breaths.PIECE
    )  # the clock goes on by a piece at a time


class Column:
    """Values of an Arrow column, which notes how many are asked for at once."""

    def __init__(self, values: list[str], asked: list[int]) -> None:
        self.values, self.asked = values, asked

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, first: int, length: int) -> "Column":
        return Column(self.values[first : first + length], self.asked)

    def to_pylist(self) -> list[str]:
        self.asked.append(len(self.values))
        return self.values


def test_ids_leave_arrow_in_pieces() -> None:
    asked: list[int] = []
    ids: Any = Column([str(number) for number in range(2 * breaths.PIECE + 5)], asked)
    assert list(breaths.listed(ids)) == ids.values
    assert measured_steps.MeasuredSequences().may_measure(0, ids, alone=True)
    assert asked == [breaths.PIECE, breaths.PIECE, 5] * 2


def test_a_choice_of_rows_breathes(taken: list[float]) -> None:
    rows = pa.Table.from_pylist([{"sequence_id": str(number)} for number in range(200)], schema=SCHEMA)
    assert 0 < len(chosen(rows, 0.5, worst=1, seed=0)) < 200
    assert len(taken) >= 20


def test_pages_go_to_a_stream_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of Python would take the interpreter's lock for each page."""
    targets: list[object] = []
    writer = pq.ParquetWriter

    def noted(target: Any, *given: Any, **more: Any) -> object:
        targets.append(target)
        return writer(target, *given, **more)

    monkeypatch.setattr(pq, "ParquetWriter", noted)
    assert len(parquet_file.parquet_bytes(pa.table({"step": [1, 2]}), {}))
    assert all(isinstance(target, pa.NativeFile) for target in targets)
    assert targets
