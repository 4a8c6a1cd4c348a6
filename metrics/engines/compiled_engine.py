"""The engine's loops in machine code: numpy's numbers, bit for bit. Importing this file imports llvmlite."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from ..distribution import BUCKETS, PLAIN, REST, UPPER, lowest_buckets
from ..exponential import shares
from ..reduction import LARGE, SMALL, Integers, Matrix
from .lanes import DECLARATIONS, LANES, NUMBERS, Lanes
from .loops import NUMPY_LOOPS, Buckets, Codes, Floats, Loops, Order, Partition
from .machine_code import VERSION, functions
from .numpy_program import Columns, cell_sums
from .program import Program, token_program
from .program_code import program_code


def machine_loops() -> Loops:
    """The loops. Exponentials and logarithms are numpy's own."""
    return Loops(f"LLVM {VERSION}", _sums, _order, _buckets)


def is_exact() -> bool:
    """True if cells of all kinds of lengths have numpy's bits here: another numpy may add up in another order."""
    program = token_program("drift", whole=False, entropy=False, sound=True)
    random, starts = np.random.default_rng(0), np.cumsum(np.arange(60) ** 2 // 2 + 1) - 1
    tokens = int(starts[-1]) + 5000
    columns = {name: random.normal(size=tokens).astype(np.float32) for name in program.columns}
    (found,), (wanted,) = (sums(program, columns, [(starts, None)]) for sums in (_sums, NUMPY_LOOPS.sums))
    return bool((found == wanted).all())


def _sums(program: Program, columns: Columns, partitions: Sequence[Partition]) -> list[Matrix]:
    wide = columns[program.columns[0]].dtype == np.float64
    given = [np.ascontiguousarray(columns[name], np.float64 if wide else np.float32) for name in program.columns]
    if len(given[0]) < LANES:
        return NUMPY_LOOPS.sums(program, columns, partitions)
    add_up, found = functions(program_code(program, "double" if wide else "float"))("sums"), list[Matrix]()
    for starts, places in partitions:
        bounds = np.append(starts, len(given[0] if places is None else places))
        found.append(np.empty((len(program.rows), len(starts))))
        add_up(len(starts), bounds, found[-1], places, shares(), given)
        _take_logarithms(program, columns, places, bounds, found[-1])
    return found


def _take_logarithms(
    program: Program, columns: Columns, places: Integers | None, bounds: Integers, found: Matrix
) -> None:
    logs = [place for place, row in enumerate(program.rows) if program.combines[row] == "logsumexp"]
    if not logs or not found.shape[1]:
        return
    sums = found[logs]
    found[logs] = np.log(sums)
    if not (sums.min() > SMALL and sums.max() < LARGE):
        # A sum of exponentials overflowed or vanished, which numpy's loops know how to avoid.
        beyond = np.flatnonzero(~((sums > SMALL) & (sums < LARGE)).all(axis=0))
        _without_overflow(program, columns, bounds, places, beyond, found)


def _without_overflow(
    program: Program, columns: Columns, bounds: Integers, places: Integers | None, cells: Integers, found: Matrix
) -> None:
    lengths = np.diff(bounds)[cells]
    ends = np.cumsum(lengths)
    chosen = np.arange(ends[-1]) + np.repeat(bounds[cells] - (ends - lengths), lengths)
    found[:, cells] = cell_sums(program, columns, ends - lengths, chosen if places is None else places[chosen])


def _order(rows: Integers, codes: Codes, width: int) -> Order:
    count = (int(rows.max(initial=-1)) + 1) * width
    if count > 4 * len(rows):  # most cells are empty, such as those of a slice by token id
        return NUMPY_LOOPS.order(rows, codes, width)
    codes = np.ascontiguousarray(codes, np.int8 if codes.dtype == np.int8 else np.int64)
    named = functions(_order_code(8 * codes.itemsize))
    rows, counts, order = np.ascontiguousarray(rows), np.zeros(count, np.int64), np.empty(len(rows), np.int64)
    named("count")(len(rows), width, rows, codes, counts, None)
    places = np.cumsum(counts) - counts
    occupied = np.flatnonzero(counts)
    starts = places[occupied]
    named("order")(len(rows), width, rows, codes, places, order)
    return order, occupied, starts


@cache
def _order_code(bits: int) -> str:
    """`count(elements, width, rows, codes, places, order)` adds 1 to the place of the cell of each element.

    codes: of so many bits each. `order` also writes the number of each element to the place that its cell had before.
    """
    text = list[str]()
    for name in ("count", "order"):
        text += [
            f"define void @{name}(i64 %elements, i64 %width, ptr %rows, ptr %codes, ptr %places, ptr %order) {{",
            "entry:\n  %any = icmp sgt i64 %elements, 0\n  br i1 %any, label %loop, label %end",
            "loop:\n  %i = phi i64 [0, %entry], [%next, %loop]",
            "  %row_at = getelementptr i64, ptr %rows, i64 %i\n  %row = load i64, ptr %row_at",
            f"  %code_at = getelementptr i{bits}, ptr %codes, i64 %i\n  %code = load i{bits}, ptr %code_at",
            "  %start = mul i64 %row, %width",
            f"  %own = {'sext i8 %code to i64' if bits == 8 else 'add i64 %code, 0'}\n  %cell = add i64 %start, %own",
            "  %counter = getelementptr i64, ptr %places, i64 %cell\n  %place = load i64, ptr %counter",
            "  %further = add i64 %place, 1\n  store i64 %further, ptr %counter",
            *(
                ("  %to = getelementptr i64, ptr %order, i64 %place\n  store i64 %i, ptr %to",)
                if name == "order"
                else ()
            ),
            "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %elements",
            "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}",
        ]
    return "\n".join(text)


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    largest = max(log_weight.max(initial=0.0), -log_weight.min(initial=0.0))
    if len(log_weight) < LANES or largest > PLAIN:
        return NUMPY_LOOPS.buckets(group, log_weight, groups)
    lowest, nearby = lowest_buckets()
    sums = np.zeros((groups * BUCKETS, len(_TERMS)))
    step, log_weight = group.strides[0] // group.itemsize, np.ascontiguousarray(log_weight)
    functions(_bucket_code(nearby))("buckets")(len(log_weight), step, group, log_weight, shares(), lowest, UPPER, sums)
    occupied = np.flatnonzero(sums[:, 0])
    found = sums[occupied]
    return occupied, found[:, 0].astype(np.int64), np.log(found[:, 1]), np.log(found[:, 2])


_TERMS = ("1.0", "%weight", "%square", "0.0")
"""The summands of a bucket. The last one is there because a processor adds four numbers at once."""


@cache
def _bucket_code(nearby: int) -> str:
    """`buckets(count, step, groups, log-weights, shares, lowest, upper, sums)`: adds the terms to each (group, bucket).

    step: between the groups of two log-weights; 0 if they have the same one. lowest, upper: of `lowest_buckets`, and UPPER. The
    last eight log-weights are read together, though some of them have been added before.
    """
    lanes = Lanes("v")
    weights = lanes.exp(lanes.adjacent("%x", "double", "%at"))
    vector, terms = f"<{len(_TERMS)} x double>", "poison"
    lines = [
        *DECLARATIONS,
        "define void @buckets(i64 %count, i64 %step, ptr %group, ptr %x, ptr %shares, ptr %lowest, ptr %upper, ptr %sums) {",
        f"entry:\n  %weights = alloca {NUMBERS}, align 64\n  %last = sub i64 %count, {LANES}\n  br label %eight",
        "eight:\n  %i = phi i64 [0, %entry], [%following, %added]\n  %at = call i64 @llvm.smin.i64(i64 %i, i64 %last)",
        *lanes.lines,
        f"  store {NUMBERS} {weights}, ptr %weights\n  %begin = sub i64 %i, %at\n  br label %one",
        "one:\n  %k = phi i64 [%begin, %eight], [%next, %one]\n  %j = add i64 %at, %k",
        "  %px = getelementptr double, ptr %x, i64 %j\n  %log = load double, ptr %px",
        "  %pw = getelementptr double, ptr %weights, i64 %k\n  %weight = load double, ptr %pw",
        f"  %bits = bitcast double %log to i64\n  %first = lshr i64 %bits, {REST}",
        "  %pl = getelementptr i64, ptr %lowest, i64 %first\n  %b0 = load i64, ptr %pl",
    ]
    for k in range(nearby):
        lines += [
            f"  %pu{k} = getelementptr double, ptr %upper, i64 %b{k}\n  %u{k} = load double, ptr %pu{k}",
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
