"""The engine's loops in machine code: numpy's numbers, bit for bit. Importing this file imports llvmlite."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ratioscope.arrays import Floats, Integers, Matrix

from ..distribution import BUCKETS, PLAIN, REST, UPPER, lowest_buckets
from ..exponential import shares
from ..reduction import Cells
from .lanes import DECLARATIONS, LANES, NUMBERS, Kind, Lanes
from .loops import NUMPY_LOOPS, Buckets, LogWeights, Loops
from .machine_code import VERSION, address, functions
from .numpy_program import Columns, Scattered, with_logarithms
from .program import Program, token_program
from .program_code import Layout, layout, program_code

_BLOCKS = 8
"""Blocks at once: behind a loop, Python finds none of its own code in the processor's caches, so that a call takes 40 us."""
_LINE = 8
"""Numbers of a line of the cache."""
_KINDS: dict[Any, Kind] = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def machine_loops() -> Loops:
    """The loops. Exponentials and logarithms are numpy's own."""
    return Loops(f"LLVM {VERSION}", _sums, _buckets, blocks_at_once=_BLOCKS)


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
    wide = columns[program.columns[0]].dtype == np.float64
    given = [np.ascontiguousarray(columns[name], np.float64 if wide else np.float32) for name in program.columns]
    own, bounds = layout(program), np.append(starts, len(given[0]))
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


def _table(own: Layout, cells: int) -> Floats:
    """A row for each cell, to which nothing was added. No vector lies across two lines of the processor's cache."""
    room = np.empty(cells * own.width + _LINE)
    first = -address(room) // room.itemsize % _LINE
    table = room[first : first + cells * own.width].reshape(cells, own.width)
    table[:] = own.nothing
    return table


def _buckets(group: Integers, weights: LogWeights, groups: int) -> Buckets:
    count = len(weights)
    if count < LANES:
        return NUMPY_LOOPS.buckets(group, weights, groups)
    lowest, nearby = lowest_buckets()
    sums, largest = np.zeros((groups * BUCKETS, len(_TERMS))), np.zeros(LANES)
    step, sides = group.strides[0] // group.itemsize, [np.ascontiguousarray(side) for side in weights.sides]
    call = functions(_bucket_code(nearby, _KINDS[sides[0].dtype]))("buckets")
    call(count, step, group, sides, shares(), lowest, np.append(UPPER, [np.inf] * nearby), sums, largest)
    if largest.max() > PLAIN:
        return NUMPY_LOOPS.buckets(group, weights, groups)
    occupied = np.flatnonzero(sums[:, 0])
    found = sums[occupied]
    return occupied, found[:, 0].astype(np.int64), np.log(found[:, 1]), np.log(found[:, 2])


_TERMS = ("1.0", "%weight", "%square", "0.0")
"""The summands of a bucket. The last one is there because a processor adds four numbers at once."""


@cache
def _bucket_code(nearby: int, kind: Kind) -> str:
    """`buckets(count, step, groups, later, earlier, shares, lowest, upper, sums, largest)`: adds terms to each (group, bucket).

    step: between the groups of two log-weights; 0 if they have the same one. lowest, upper: of `lowest_buckets`, and UPPER. The
    last eight log-weights are read together, though some of them have been added before. largest: of the sizes of every eighth.
    """
    lanes = Lanes("v")
    logs = lanes.put(
        f"fsub {NUMBERS} {lanes.adjacent('%later', kind, '%at')}, {lanes.adjacent('%earlier', kind, '%at')}"
    )
    sizes = lanes.put(f"call {NUMBERS} @llvm.fabs.v{LANES}f64({NUMBERS} {logs})")
    most = lanes.put(lanes.combined("max", NUMBERS, lanes.put(f"load {NUMBERS}, ptr %largest, align 8"), sizes))
    weights = lanes.exp(logs)
    vector, terms = f"<{len(_TERMS)} x double>", "poison"
    lines = [
        *DECLARATIONS,
        "define void @buckets(i64 %count, i64 %step, ptr %group, ptr %later, ptr %earlier, ptr %shares, ptr %lowest,",
        "                     ptr %upper, ptr %sums, ptr %largest) {",
        f"entry:\n  %logs = alloca {NUMBERS}, align 64\n  %weights = alloca {NUMBERS}, align 64",
        f"  %last = sub i64 %count, {LANES}\n  br label %eight",
        "eight:\n  %i = phi i64 [0, %entry], [%following, %added]\n  %at = call i64 @llvm.smin.i64(i64 %i, i64 %last)",
        *lanes.lines,
        f"  store {NUMBERS} {most}, ptr %largest, align 8\n  store {NUMBERS} {logs}, ptr %logs",
        f"  store {NUMBERS} {weights}, ptr %weights\n  %begin = sub i64 %i, %at\n  br label %one",
        "one:\n  %k = phi i64 [%begin, %eight], [%next, %one]\n  %j = add i64 %at, %k",
        "  %px = getelementptr double, ptr %logs, i64 %k\n  %log = load double, ptr %px",
        "  %pw = getelementptr double, ptr %weights, i64 %k\n  %weight = load double, ptr %pw",
        f"  %bits = bitcast double %log to i64\n  %first = lshr i64 %bits, {REST}",
        "  %pl = getelementptr i64, ptr %lowest, i64 %first\n  %b0 = load i64, ptr %pl",
        "  %edges = getelementptr double, ptr %upper, i64 %b0",
    ]
    for k in range(nearby):
        lines += [
            f"  %pu{k} = getelementptr double, ptr %edges, i64 {k}\n  %u{k} = load double, ptr %pu{k}",
            f"  %above{k} = fcmp oge double %log, %u{k}\n  %one{k} = zext i1 %above{k} to i64",
            f"  %b{k + 1} = add i64 %b{k}, %one{k}",
        ]
    lines += [
        "  %gi = mul i64 %j, %step\n  %pg = getelementptr i64, ptr %group, i64 %gi\n  %g = load i64, ptr %pg",
        f"  %start = mul i64 %g, {BUCKETS}\n  %cell = add i64 %start, %b{nearby}",
        "  %square = fmul double %weight, %weight",
    ]
    for k, term in enumerate(_TERMS):
        lines.append(f"  %term{k} = insertelement {vector} {terms}, double {term}, i32 {k}")
        terms = f"%term{k}"
    lines += [
        f"  %to = getelementptr {vector}, ptr %sums, i64 %cell\n  %before = load {vector}, ptr %to, align 8",
        f"  %after = fadd {vector} %before, {terms}\n  store {vector} %after, ptr %to, align 8",
        f"  %next = add i64 %k, 1\n  %more = icmp slt i64 %next, {LANES}\n  br i1 %more, label %one, label %added",
        f"added:\n  %following = add i64 %i, {LANES}\n  %further = icmp slt i64 %following, %count",
        "  br i1 %further, label %eight, label %end\nend:\n  ret void\n}",
    ]
    return "\n".join(lines)
