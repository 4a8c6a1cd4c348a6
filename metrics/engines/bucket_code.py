"""The text of the loop over buckets in LLVM's language: it adds the weights of eight tokens to their buckets at once."""

from functools import cache

from ..distribution import BUCKETS, REST
from .lanes import DECLARATIONS, LANES, NUMBERS, SINGLES, WORDS, Kind, Lanes, splat, words

TERMS = ("number", "sum of weights", "sum of squared weights", "")
"""The numbers of a bucket. The last one is there because a processor adds four at once."""


@cache
def bucket_code(nearby: int, kind: Kind, *, grouped: bool) -> str:
    """`buckets(count, step, none, groups, later, earlier, shares, lowest, upper, sums, largest)`: adds to each (group, bucket).

    nearby: the most edges among numbers that begin alike. grouped: there are several groups. step: between the groups of two
    log-weights; 0 if they have the same one. lowest, upper: of `lowest_buckets`, in bytes, and UPPER. The last eight log-weights
    are read together, though some of them have been added before: these go to the row `none`. largest: it receives the largest
    size in each lane.
    """
    return "\n".join(
        (
            *DECLARATIONS,
            f"declare i{nearby} @llvm.ctpop.i{nearby}(i{nearby})",
            "define void @buckets(i64 %count, i64 %step, i64 %none, ptr %group, ptr %later, ptr %earlier, ptr %shares,",
            "                     ptr %lowest, ptr %upper, ptr %sums, ptr %largest) {",
            f"entry:\n  %end = and i64 %count, -{LANES}\n  %last = sub i64 %count, {LANES}\n  br label %eight",
            "eight:\n  %at = phi i64 [0, %entry], [%next, %eight]",
            *_added(Lanes("v", bounded=True), kind, nearby, grouped, "%at", None),
            f"  %next = add i64 %at, {LANES}\n  %more = icmp slt i64 %next, %end\n  br i1 %more, label %eight, label %behind",
            "behind:\n  %is_whole = icmp eq i64 %end, %count\n  br i1 %is_whole, label %done, label %rest\nrest:",
            *_added(Lanes("w", bounded=True), kind, nearby, grouped, "%last", "%end"),
            "  br label %done\ndone:\n  ret void\n}",
        )
    )


def _added(lanes: Lanes, kind: Kind, nearby: int, grouped: bool, at: str, new: str | None) -> list[str]:
    """Lines that add eight log-weights. at: the first one. new: the first one that was not added before; None: all are new."""
    put = lanes.put
    later, earlier = (lanes.adjacent(column, kind, at) for column in ("%later", "%earlier"))
    logs = put(f"fsub {NUMBERS} {later}, {earlier}")
    sizes, largest = (
        put(f"call {NUMBERS} @llvm.fabs.v{LANES}f64({NUMBERS} {logs})"),
        f"{NUMBERS}, ptr %largest, align 8",
    )
    most = put(lanes.combined("max", NUMBERS, put(f"load {largest}"), sizes))
    lanes.lines.append(f"store {NUMBERS} {most}, ptr %largest, align 8")
    weights = lanes.exp(logs)
    begins = put(f"lshr {WORDS} {put(f'bitcast {NUMBERS} {logs} to {WORDS}')}, {words(REST)}")
    cells = [_cell(lanes, lane, logs, begins, nearby) for lane in range(LANES)]
    tokens = [put(f"add i64 {at}, {lane}") for lane in range(LANES)] if grouped or new else []
    if grouped:
        cells = [_cell_of_group(lanes, cell, token) for cell, token in zip(cells, tokens, strict=True)]
    if new:
        are_new = [put(f"icmp sge i64 {token}, {new}") for token in tokens]
        cells = [put(f"select i1 {is_new}, i64 {cell}, i64 %none") for is_new, cell in zip(are_new, cells, strict=True)]
    rows = lanes.turned([splat(1.0), weights, put(f"fmul {NUMBERS} {weights}, {weights}")])
    for cell, row in zip(cells, rows, strict=True):
        lanes.combine_at("sum", put(f"getelementptr {SINGLES}, ptr %sums, i64 {cell}"), 0, row)
    return lanes.lines


def _cell(lanes: Lanes, lane: int, logs: str, begins: str, nearby: int) -> str:
    """The bucket of a log-weight: the lowest one of numbers that begin alike, and one more for each edge that it reaches."""
    put, several = lanes.put, f"<{nearby} x double>"
    log, begin = (
        put(f"extractelement {NUMBERS} {logs}, i32 {lane}"),
        put(f"extractelement {WORDS} {begins}, i32 {lane}"),
    )
    lowest = put(f"load i8, ptr {put(f'getelementptr i8, ptr %lowest, i64 {begin}')}")
    lowest = put(f"zext i8 {lowest} to i64")
    edges = put(f"load {several}, ptr {put(f'getelementptr double, ptr %upper, i64 {lowest}')}, align 8")
    one = put(f"insertelement {several} poison, double {log}, i32 0")
    each = put(f"shufflevector {several} {one}, {several} poison, <{nearby} x i32> zeroinitializer")
    reached = put(f"bitcast <{nearby} x i1> {put(f'fcmp oge {several} {each}, {edges}')} to i{nearby}")
    count = put(f"call i{nearby} @llvm.ctpop.i{nearby}(i{nearby} {reached})")
    return put(f"add i64 {lowest}, {put(f'zext i{nearby} {count} to i64')}")


def _cell_of_group(lanes: Lanes, bucket: str, token: str) -> str:
    """The cell of a bucket in the group of a token."""
    put = lanes.put
    place = put(f"getelementptr i64, ptr %group, i64 {put(f'mul i64 {token}, %step')}")
    first = put(f"mul i64 {put(f'load i64, ptr {place}')}, {BUCKETS}")
    return put(f"add i64 {first}, {bucket}")
