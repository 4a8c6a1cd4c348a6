"""The engine's loops in machine code: numpy's numbers, bit for bit. Importing this file imports llvmlite."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import llvmlite.binding  # pyright: ignore[reportMissingImports]
import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Floats, Integers, Matrix, Singles

from ..distribution import BUCKETS, PLAIN, UPPER, lowest_buckets
from ..exponential import shares
from ..reduction import Cells
from .bucket_code import TERMS, bucket_code, edge_code
from .lanes import LANES, Kind
from .loops import NUMPY_LOOPS, Buckets, EdgeCounts, LogWeights, Loops, Runs
from .numpy_program import Columns, MatrixColumns, Scattered, with_logarithms
from .program import Program, token_program
from .program_code import Layout, layout, program_code

_BLOCKS = 8
"""Blocks at once: behind a loop, Python finds none of its own code in the processor's caches, so that a call takes 40 us."""
_LINE = 8
"""Numbers of a line of the cache."""
_KINDS: dict[Any, Kind] = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def machine_loops() -> Loops:
    """The loops. Exponentials and logarithms are numpy's own."""
    return Loops(f"LLVM {VERSION}", _sums, _buckets, _edge_counts, blocks_at_once=_BLOCKS)


def is_exact() -> bool:
    """True if cells of all kinds of lengths have numpy's bits here: another numpy may add up in another order."""
    program = token_program("drift", whole=False, entropy=False, sound=True)
    random, starts = np.random.default_rng(0), np.cumsum(np.arange(60) ** 2 // 2 + 1) - 1
    tokens = int(starts[-1]) + 5000
    columns = {name: random.normal(size=tokens).astype(np.float32) for name in program.columns}
    found, wanted = (sums(program, columns, starts, ())[0] for sums in (_sums, NUMPY_LOOPS.sums))
    return bool((found == wanted).all())


def _sums(
    program: Program, columns: Columns, starts: Integers, scattered: Sequence[Scattered]
) -> tuple[Matrix, list[Cells]]:
    first = columns[program.columns[0]]
    wide = first.dtype == np.float64
    given = _given(columns, program.columns, np.dtype(np.float64 if wide else np.float32))
    own, bounds = layout(program), np.append(starts, len(first))
    found = np.empty((len(starts), own.width))
    tables = [_table(own, each.cells) for each in scattered]
    kinds = [8 * each.codes.itemsize for each in scattered]
    partitions = [
        part
        for each, table in zip(scattered, tables, strict=True)
        for part in (np.ascontiguousarray(each.codes), np.ascontiguousarray(each.first), table)
    ]
    text = program_code(program, "double" if wide else "float", tuple(kinds))
    named = functions(text)
    named("sums")(len(starts), bounds, found, shares(), given, partitions)
    adjacent = Scattered(np.zeros(1, np.int8), np.arange(len(starts)), len(starts))
    results = list[Cells]()
    for each, table in zip((adjacent, *scattered), (found, *tables), strict=True):
        occupied = adjacent.first if table is found else np.flatnonzero(table[:, own.place[None]])
        matrix = np.empty((len(program.rows), len(occupied)))
        named("statistics")(len(occupied), occupied, table, matrix)
        results.append(with_logarithms(program, columns, each, np.diff(bounds), Cells(occupied, matrix)))
    return results[0].matrix, results[1:]


def _given(columns: Columns, names: tuple[str, ...], kind: npt.DTypeLike) -> list[Any]:
    """The columns of these names, or their addresses."""
    if isinstance(columns, MatrixColumns) and columns.names == names and columns.matrix.flags.c_contiguous:
        first, distance = address(columns.matrix), columns.matrix.strides[0]
        return [first + distance * row for row in range(len(names))]
    return [np.ascontiguousarray(columns[name], kind) for name in names]


def _table(own: Layout, cells: int) -> Floats:
    """A row for each cell, to which nothing was added. No vector lies across two lines of the processor's cache."""
    room = np.empty(cells * own.width + _LINE)
    first = -address(room) // room.itemsize % _LINE
    table = room[first : first + cells * own.width].reshape(cells, own.width)
    table[:] = own.nothing
    return table


def _buckets(runs: Runs, weights: LogWeights, groups: int) -> Buckets:
    if len(weights) < LANES:
        return NUMPY_LOOPS.buckets(runs, weights, groups)
    lowest, nearby = _lowest_buckets()
    sums, largest = np.zeros((groups * BUCKETS + 1, len(TERMS))), np.zeros(LANES)
    sides = [np.ascontiguousarray(side) for side in weights.sides]
    call = functions(bucket_code(nearby, _KINDS[sides[0].dtype]))("buckets")
    upper, ends = np.append(UPPER, [np.inf] * nearby), np.cumsum(runs.lengths)
    call(len(ends), groups * BUCKETS, ends, runs.groups * BUCKETS, sides, shares(), lowest, upper, sums, largest)
    if largest.max() > PLAIN:
        return NUMPY_LOOPS.buckets(runs, weights, groups)
    occupied = np.flatnonzero(sums[:-1, 0])
    found = sums[occupied]
    return occupied, found[:, 0].astype(np.int64), np.log(found[:, 1]), np.log(found[:, 2])


def _edge_counts(numbers: Singles, edges: Singles) -> EdgeCounts:
    count = len(numbers)
    if count < LANES:
        return NUMPY_LOOPS.edge_counts(numbers, edges)
    counts = np.empty(count, np.int8)
    functions(edge_code(len(edges)))("edge_counts")(count, np.ascontiguousarray(numbers), edges, counts)
    return counts


@cache
def _lowest_buckets() -> tuple[npt.NDArray[np.uint8], int]:
    """As `lowest_buckets`, in bytes: the part of the table that is read stays in the first cache."""
    lowest, nearby = lowest_buckets()
    return lowest.astype(np.uint8), nearby


llvm: Any = llvmlite.binding
"""`Any`: llvmlite has no types."""
VERSION = ".".join(map(str, llvm.llvm_version_info))
Function = Callable[..., None]
"""It receives whole numbers, addresses, arrays (None: a null pointer) and lists of them. Other threads run meanwhile."""

_MAKING = Lock()
_IN_USE: list[Any] = []
"""The owners of machine code that functions point to."""


@cache
def functions(text: str) -> Callable[[str], Function]:
    """name -> a function of this module, ready to run. Texts that are equal are compiled once."""
    with _MAKING:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), target)
        engine.finalize_object()
        _IN_USE.append(engine)

    @cache
    def named(name: str) -> Function:
        address, kinds = engine.get_function_address(name), dict[int, Any]()

        def call(*given: Any) -> None:
            words = [*map(_word, [one for each in given for one in (each if isinstance(each, list) else [each])])]
            if len(words) not in kinds:
                kinds[len(words)] = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(words))(address)
            kinds[len(words)](*words)

        return call

    return named


def _word(given: Any) -> int:
    return given if isinstance(given, int) else 0 if given is None else address(given)


def address(array: Array) -> int:
    """The address of the numbers of an array."""
    if array.flags.carray and array.size:  # contiguous and writeable: it takes a fifth of the time
        buffer: Any = array  # the stubs do not call it one
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    place: int = array.__array_interface__["data"][0]  # `ctypes.data` takes three times as long
    return place
