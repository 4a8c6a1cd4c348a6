"""The text of `edge_counts` in LLVM's language: eight numbers at once."""

from functools import cache

from .lanes import FINITE, LANES, Lanes

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
