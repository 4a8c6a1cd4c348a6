"""The text of the loop over buckets in LLVM's language: it adds the weights of eight tokens to their buckets at once."""

from functools import cache

from ..distribution import REST
from .lanes import DECLARATIONS, FINITE, LANES, NUMBERS, SINGLES, WORDS, Kind, Lanes, splat, words

TERMS = ("number", "sum of weights", "sum of squared weights", "")
"""The numbers of a bucket. The last one is there because a processor adds four at once."""


@cache
def bucket_code(nearby: int, kind: Kind) -> str:
    """`buckets(runs, none, ends, firsts, later, earlier, shares, lowest, upper, sums, largest)`: adds to each (group, bucket).

    nearby: the most edges among numbers that begin alike. ends: one after the last log-weight of each run. firsts: the first cell
    of its group. lowest, upper: of `lowest_buckets`, in bytes, and UPPER. Eight log-weights or more are given. The last ones of a
    run are read together with neighbours, which are added to the cell `none`. largest: it receives the largest size in each lane.
    """
    return "\n".join(
        (
            *DECLARATIONS,
            f"declare i64 @llvm.smax.i64(i64, i64)\ndeclare i{nearby} @llvm.ctpop.i{nearby}(i{nearby})",
            "define void @buckets(i64 %runs, i64 %none, ptr %ends, ptr %firsts, ptr %later, ptr %earlier, ptr %shares,",
            "                     ptr %lowest, ptr %upper, ptr %sums, ptr %largest) {",
            "entry:\n  br label %run",
            "run:\n  %number = phi i64 [0, %entry], [%following, %done]\n  %begin = phi i64 [0, %entry], [%end, %done]",
            "  %pe = getelementptr i64, ptr %ends, i64 %number\n  %end = load i64, ptr %pe",
            "  %pf = getelementptr i64, ptr %firsts, i64 %number\n  %first = load i64, ptr %pf",
            f"  %own = getelementptr {SINGLES}, ptr %sums, i64 %first\n  %nowhere = sub i64 %none, %first",
            f"  %count = sub i64 %end, %begin\n  %eights = and i64 %count, -{LANES}\n  %stop = add i64 %begin, %eights",
            "  %any = icmp sgt i64 %eights, 0\n  br i1 %any, label %eight, label %behind",
            "eight:\n  %at = phi i64 [%begin, %run], [%next, %eight]",
            *_added(Lanes("v", bounded=True), kind, nearby, "%at", are_all_new=True),
            f"  %next = add i64 %at, {LANES}\n  %more = icmp slt i64 %next, %stop\n  br i1 %more, label %eight, label %behind",
            "behind:\n  %is_over = icmp eq i64 %stop, %end\n  br i1 %is_over, label %done, label %rest",
            f"rest:\n  %before = sub i64 %end, {LANES}\n  %last = call i64 @llvm.smax.i64(i64 %before, i64 0)",
            *_added(Lanes("w", bounded=True), kind, nearby, "%last", are_all_new=False),
            "  br label %done\ndone:\n  %following = add i64 %number, 1\n  %further = icmp slt i64 %following, %runs",
            "  br i1 %further, label %run, label %over\nover:\n  ret void\n}",
        )
    )


def _added(lanes: Lanes, kind: Kind, nearby: int, at: str, *, are_all_new: bool) -> list[str]:
    """Lines that add eight log-weights. at: the first one. Unless all are new, those from %stop to %end are."""
    put = lanes.put
    later, earlier = (lanes.adjacent(column, kind, at) for column in ("%later", "%earlier"))
    logs, largest = put(f"fsub {NUMBERS} {later}, {earlier}"), f"{NUMBERS}, ptr %largest, align 8"
    sizes = put(f"call {NUMBERS} @llvm.fabs.v{LANES}f64({NUMBERS} {logs})")
    most = put(lanes.combined("max", NUMBERS, put(f"load {largest}"), sizes))
    lanes.lines.append(f"store {NUMBERS} {most}, ptr %largest, align 8")
    weights = lanes.exp(logs)
    begins = put(f"lshr {WORDS} {put(f'bitcast {NUMBERS} {logs} to {WORDS}')}, {words(REST)}")
    cells = [_bucket(lanes, lane, logs, begins, nearby) for lane in range(LANES)]
    if not are_all_new:
        cells = [_cell_if_new(lanes, cell, put(f"add i64 {at}, {lane}")) for lane, cell in enumerate(cells)]
    rows = lanes.turned([splat(1.0), weights, put(f"fmul {NUMBERS} {weights}, {weights}")])
    for cell, row in zip(cells, rows, strict=True):
        lanes.combine_at("sum", put(f"getelementptr {SINGLES}, ptr %own, i64 {cell}"), 0, row)
    return lanes.lines


def _bucket(lanes: Lanes, lane: int, logs: str, begins: str, nearby: int) -> str:
    """The bucket of a log-weight: the lowest one of numbers that begin alike, and one more for each edge that it reaches."""
    put, several = lanes.put, f"<{nearby} x double>"
    log = put(f"extractelement {NUMBERS} {logs}, i32 {lane}")
    begin = put(f"extractelement {WORDS} {begins}, i32 {lane}")
    lowest = put(f"load i8, ptr {put(f'getelementptr i8, ptr %lowest, i64 {begin}')}")
    lowest = put(f"zext i8 {lowest} to i64")
    edges = put(f"load {several}, ptr {put(f'getelementptr double, ptr %upper, i64 {lowest}')}, align 8")
    each = lanes.filled("double", log, nearby)
    reached = put(f"bitcast <{nearby} x i1> {put(f'fcmp oge {several} {each}, {edges}')} to i{nearby}")
    count = put(f"call i{nearby} @llvm.ctpop.i{nearby}(i{nearby} {reached})")
    return put(f"add i64 {lowest}, {put(f'zext i{nearby} {count} to i64')}")


def _cell_if_new(lanes: Lanes, bucket: str, token: str) -> str:
    """The bucket, or the cell of what belongs to others."""
    put = lanes.put
    is_new = put(f"and i1 {put(f'icmp sge i64 {token}, %stop')}, {put(f'icmp slt i64 {token}, %end')}")
    return put(f"select i1 {is_new}, i64 {bucket}, i64 %nowhere")


_NUMBERS, _COUNTS, _TRUTHS = f"<{LANES} x float>", f"<{LANES} x i32>", f"<{LANES} x i1>"
_NONE = f"<{', '.join(['i32 -1'] * LANES)}>"


@cache
def edge_code(edges: int) -> str:
    """`edge_counts(count, numbers, edges, counts)` for so many edges. The last eight numbers are read together."""
    lanes = Lanes("v")
    put = lanes.put
    numbers = put(f"load {_NUMBERS}, ptr {put('getelementptr float, ptr %numbers, i64 %at')}, align 4")
    counts = "zeroinitializer"
    for place in range(edges):
        edge = put(f"load float, ptr {put(f'getelementptr float, ptr %edges, i64 {place}')}")
        is_reached = put(f"fcmp oge {_NUMBERS} {numbers}, {lanes.filled('float', edge, LANES)}")
        counts = put(f"add {_COUNTS} {counts}, {put(f'zext {_TRUTHS} {is_reached} to {_COUNTS}')}")
    is_finite = put(f"call {_TRUTHS} @llvm.is.fpclass.v{LANES}f32({_NUMBERS} {numbers}, i32 {FINITE})")
    found = put(f"select {_TRUTHS} {is_finite}, {_COUNTS} {counts}, {_COUNTS} {_NONE}")
    short = put(f"trunc {_COUNTS} {found} to <{LANES} x i8>")
    to = put("getelementptr i8, ptr %counts, i64 %at")
    lanes.lines.append(f"store <{LANES} x i8> {short}, ptr {to}, align 1")
    return "\n".join(
        (
            f"declare {_TRUTHS} @llvm.is.fpclass.v{LANES}f32({_NUMBERS}, i32)",
            "declare i64 @llvm.smin.i64(i64, i64)",
            "define void @edge_counts(i64 %count, ptr %numbers, ptr %edges, ptr %counts) {",
            f"entry:\n  %last = sub i64 %count, {LANES}\n  br label %eight",
            "eight:\n  %i = phi i64 [0, %entry], [%next, %eight]\n  %at = call i64 @llvm.smin.i64(i64 %i, i64 %last)",
            *lanes.lines,
            f"  %next = add i64 %i, {LANES}\n  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %eight, label %end\nend:\n  ret void\n}",
        )
    )
