"""The engine's loops in machine code: numpy's numbers, bit for bit. Importing this file imports llvmlite."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..distribution import BUCKETS, PLAIN, REST, UPPER, lowest_buckets
from ..reduction import LARGE, SMALL, Integers, Matrix
from .loops import NUMPY_LOOPS, Buckets, Floats, Loops, Order, Partition
from .machine_code import VERSION, address, functions
from .numpy_program import Column, Columns, cell_sums
from .program import Program, neighbour_programs
from .program_code import LANES, exponents, program_code

_ORDER = """
define void @order(i64 %count, ptr %cells, ptr %places, ptr %order) {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %own = getelementptr i64, ptr %cells, i64 %i
  %cell = load i64, ptr %own
  %counter = getelementptr i64, ptr %places, i64 %cell
  %place = load i64, ptr %counter
  %to = getelementptr i64, ptr %order, i64 %place
  store i64 %i, ptr %to
  %further = add i64 %place, 1
  store i64 %further, ptr %counter
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
"""The next place of each cell receives the next element of the cell."""
_CHUNK = 1 << 15
"""Tokens whose exponentials are in memory at once, about."""


def machine_loops() -> Loops:
    """The loops. Exponentials and logarithms are numpy's own."""
    return Loops(f"LLVM {VERSION}", _sums, _order, _buckets)


def is_exact() -> bool:
    """True if cells of all kinds of lengths have numpy's bits here: another numpy may add up in another order."""
    program, _ = neighbour_programs("mismatch")[1]
    random, starts = np.random.default_rng(0), np.cumsum(np.arange(60) ** 2 // 2 + 1) - 1
    tokens = int(starts[-1]) + 5000
    columns = {name: random.normal(size=tokens).astype(np.float32) for name in program.columns}
    (found,), (wanted,) = (sums(program, columns, starts, [(starts, None)]) for sums in (_sums, NUMPY_LOOPS.sums))
    return bool((found == wanted).all())


def _sums(program: Program, columns: Columns, begins: Integers, partitions: Sequence[Partition]) -> list[Matrix]:
    wide = columns[program.columns[0]].dtype == np.float64
    given: list[Column] = [
        np.ascontiguousarray(columns[name], np.float64 if wide else np.float32) for name in program.columns
    ]
    if len(given[0]) < LANES:
        return NUMPY_LOOPS.sums(program, columns, begins, partitions)
    bounds = [np.append(starts, len(given[0] if places is None else places)) for starts, places in partitions]
    found = [np.empty((len(program.rows), len(starts))) for starts, _ in partitions]
    _add_up(program, given, begins, partitions, bounds, found)
    for (_, places), own, matrix in zip(partitions, bounds, found, strict=True):
        _take_logarithms(program, columns, places, own, matrix)
    return found


def _add_up(
    program: Program,
    columns: Sequence[Column],
    begins: Integers,
    partitions: Sequence[Partition],
    bounds: list[Integers],
    found: list[Matrix],
) -> None:
    """Fills the matrices chunk by chunk, so that exponentials stay in the processor's cache until all have read them."""
    named = functions(program_code(program, "double" if columns[0].itemsize == 8 else "float"))
    powers, tokens = len(exponents(program)), len(columns[0])
    if not powers:
        for (_, places), own, matrix in zip(partitions, bounds, found, strict=True):
            named("sums")(matrix.shape[1], own, matrix.shape[1], matrix, places, list(columns))
        return
    whole = begins[np.searchsorted(begins, range(0, tokens, _CHUNK), side="right") - 1]
    edges = [*np.unique(whole).tolist(), tokens]
    addresses = [address(column) for column in columns]
    cells = [
        np.searchsorted(
            np.searchsorted(edges, starts if places is None else places[starts], side="right"), range(1, len(edges) + 1)
        )
        for starts, places in partitions
    ]
    # a lane that is left out may hold what lies before the first exponential
    room = np.zeros(LANES + powers * (int(np.diff(edges).max()) + LANES))[LANES:]
    for chunk, (first, last) in enumerate(pairwise(edges)):
        first, last = min(first, tokens - LANES), max(last, min(first, tokens - LANES) + LANES)
        length, values = last - first, room[: powers * (last - first)]
        named("exponents")(length, values, [each + columns[0].itemsize * first for each in addresses])
        np.exp(values, out=values)
        exponentials = [address(values) + 8 * (row * length - first) for row in range(powers)]
        for (_, places), own, ranges, matrix in zip(partitions, bounds, cells, found, strict=True):
            begin, count = int(ranges[chunk]), int(ranges[chunk + 1] - ranges[chunk])
            to = address(matrix) + 8 * begin
            named("sums")(count, address(own) + 8 * begin, matrix.shape[1], to, places, exponentials, addresses)


def _take_logarithms(
    program: Program, columns: Columns, places: Integers | None, bounds: Integers, found: Matrix
) -> None:
    logs = [place for place, row in enumerate(program.rows) if program.combines[row] == "logsumexp"]
    sums = found[logs]
    beyond = np.flatnonzero(~((sums > SMALL) & (sums < LARGE)).all(axis=0))
    found[logs] = np.log(sums)
    if len(beyond):
        # A sum of exponentials overflowed or vanished, which numpy's loops know how to avoid.
        _without_overflow(program, columns, bounds, places, beyond, found)


def _without_overflow(
    program: Program, columns: Columns, bounds: Integers, places: Integers | None, cells: Integers, found: Matrix
) -> None:
    lengths = np.diff(bounds)[cells]
    ends = np.cumsum(lengths)
    chosen = np.arange(ends[-1]) + np.repeat(bounds[cells] - (ends - lengths), lengths)
    found[:, cells] = cell_sums(program, columns, ends - lengths, chosen if places is None else places[chosen])


def _order(cells: Integers, count: int) -> Order:
    if count > 4 * len(cells):  # most of them are empty, such as those of a slice by token id
        return NUMPY_LOOPS.order(cells, count)
    counts = np.bincount(cells, minlength=count)
    places = np.cumsum(counts) - counts
    occupied = np.flatnonzero(counts)
    starts, order = places[occupied], np.empty(len(cells), np.int64)
    functions(_ORDER)("order")(len(cells), np.ascontiguousarray(cells), places, order)
    return order, occupied, starts


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    if max(log_weight.max(initial=0.0), -log_weight.min(initial=0.0)) > PLAIN:
        return NUMPY_LOOPS.buckets(group, log_weight, groups)
    lowest, nearby = lowest_buckets()
    sums = np.zeros((groups * BUCKETS, 3))
    step, log_weight = group.strides[0] // group.itemsize, np.ascontiguousarray(log_weight)
    given = [log_weight, np.exp(log_weight), lowest, UPPER, sums]
    functions(_bucket_code(nearby))("buckets")(len(log_weight), step, group, given)
    occupied = np.flatnonzero(sums[:, 0])
    found = sums[occupied]
    return occupied, found[:, 0].astype(np.int64), np.log(found[:, 1]), np.log(found[:, 2])


def _bucket_code(nearby: int) -> str:
    """`buckets(count, step, groups, log-weights, weights, lowest, upper, sums)`: adds 1, w and w^2 to (group, bucket).

    step: between the groups of two log-weights; 0 if they have the same one. lowest, upper: of `lowest_buckets`, and UPPER.
    """
    lines = [
        "define void @buckets(i64 %count, i64 %step, ptr %group, ptr %x, ptr %w, ptr %lowest, ptr %upper, ptr %sums) {",
        "entry:\n  %any = icmp sgt i64 %count, 0\n  br i1 %any, label %loop, label %end",
        "loop:\n  %i = phi i64 [0, %entry], [%next, %loop]",
        "  %px = getelementptr double, ptr %x, i64 %i\n  %log = load double, ptr %px",
        "  %bits = bitcast double %log to i64",
        f"  %first = lshr i64 %bits, {REST}",
        "  %pl = getelementptr i64, ptr %lowest, i64 %first\n  %b0 = load i64, ptr %pl",
    ]
    for k in range(nearby):
        lines += [
            f"  %pu{k} = getelementptr double, ptr %upper, i64 %b{k}\n  %u{k} = load double, ptr %pu{k}",
            f"  %above{k} = fcmp oge double %log, %u{k}\n  %one{k} = zext i1 %above{k} to i64",
            f"  %b{k + 1} = add i64 %b{k}, %one{k}",
        ]
    lines += [
        "  %gi = mul i64 %i, %step\n  %pg = getelementptr i64, ptr %group, i64 %gi\n  %g = load i64, ptr %pg",
        f"  %start = mul i64 %g, {BUCKETS}\n  %cell = add i64 %start, %b{nearby}\n  %row = mul i64 %cell, 3",
        "  %pw = getelementptr double, ptr %w, i64 %i\n  %weight = load double, ptr %pw",
        "  %square = fmul double %weight, %weight",
        "  %p0 = getelementptr double, ptr %sums, i64 %row",
    ]
    for k, term in enumerate(("1.0", "%weight", "%square")):
        lines += [
            f"  %p{k + 1} = getelementptr double, ptr %p0, i64 {k}"
            if k
            else "  %p1 = getelementptr double, ptr %p0, i64 0",
            f"  %s{k} = load double, ptr %p{k + 1}\n  %t{k} = fadd double %s{k}, {term}\n  store double %t{k}, ptr %p{k + 1}",
        ]
    lines += [
        "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}",
    ]
    return "\n".join(lines)
