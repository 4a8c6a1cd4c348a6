"""The text of a program in LLVM's language: eight tokens at once, and sums in the order in which numpy adds them up.

Numpy adds the numbers of a cell to its first one: halves of at most 128 numbers each, in which every eighth number has a sum of
its own. So the sums equal those of `numpy_program.py` bit for bit.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from .lanes import DECLARATIONS, LANES, NOTHING, NUMBERS, TRUTHS, Kind, Lanes, single, splat
from .program import Program, Step

LEAF = 128
"""The most numbers that numpy adds up without halving them (PW_BLOCKSIZE)."""


@cache
def program_code(program: Program, kind: Kind) -> str:
    """A module with `sums(cells, bounds, table, places, shares, COLUMNS)`. The columns are of this kind of numbers.

    table: a row of cells for each statistic; of a `logsumexp` it receives the plain sum of exponentials. A cell has the tokens
    places[bounds[cell]] to places[bounds[cell + 1] - 1]; the place of a token is its number where `places` is null. shares: of
    `metrics/exponential.py`.
    """
    given = ", ".join(("ptr %places", "ptr %shares", *(f"ptr %c{place}" for place in range(len(program.columns)))))
    reductions = [step for step in program.steps if step.operation in NOTHING]
    text = (
        *DECLARATIONS,
        *_one(program, kind, reductions, given),
        *_leaf(program, kind, reductions, given, placed=False),
        *_leaf(program, kind, reductions, given, placed=True),
        *_halves(reductions, given),
        *_sums(program, reductions, given),
    )
    return "\n".join(text)


def _values(
    lanes: Lanes, program: Program, kind: Kind, places: Sequence[str] | None, at: str = "%at"
) -> dict[Step, str]:
    """The numbers of eight tokens that each reduction reads: those from `at` on, or those at these places."""
    names = [f"%c{place}" for place in range(len(program.columns))]
    columns = [
        lanes.adjacent(name, kind, at) if places is None else lanes.gathered(name, kind, places) for name in names
    ]
    return lanes.steps(program, columns)


def _leaf(program: Program, kind: Kind, reductions: Sequence[Step], given: str, *, placed: bool) -> Iterator[str]:
    """`leaf(first, tokens, results, ...)`: the sums of at most 128 tokens, one number of each reduction."""
    name = "placed" if placed else "adjacent"
    whole, rest = Lanes("v"), Lanes("t")
    places = None
    if placed:
        at = whole.put("getelementptr i64, ptr %places, i64 %at")
        places = [
            whole.put(f"load i64, ptr {whole.put(f'getelementptr i64, ptr {at}, i64 {lane}')}") for lane in range(LANES)
        ]
    values = _values(whole, program, kind, places)
    yield f"define internal void @leaf_{name}(i64 %first, i64 %tokens, ptr %results, {given}) {{"
    yield f"entry:\n  %full = and i64 %tokens, -{LANES}\n  %any = icmp sgt i64 %full, 0"
    yield "  br i1 %any, label %loop, label %few\nloop:\n  %i = phi i64 [0, %entry], [%next, %loop]"
    for step in reductions:
        yield f"  %a{step.result} = phi {NUMBERS} [{splat(NOTHING[step.operation])}, %entry], [%b{step.result}, %loop]"
    yield "  %at = add i64 %first, %i"
    yield from whole.lines
    for step in reductions:
        yield f"  %b{step.result} = {_combined(step, NUMBERS, f'%a{step.result}', values[step])}"
    yield f"  %next = add i64 %i, {LANES}\n  %more = icmp slt i64 %next, %full"
    yield "  br i1 %more, label %loop, label %lanes\nlanes:"
    for step in reductions:
        yield from _of_lanes(step)
    yield "  br label %few\nfew:"
    for step in reductions:
        nothing = single(NOTHING[step.operation])
        yield f"  %f{step.result} = phi double [{nothing}, %entry], [%l{step.result}_6, %lanes]"
    yield f"  %left = and i64 %tokens, {LANES - 1}\n  %is_whole = icmp eq i64 %left, 0"
    yield "  br i1 %is_whole, label %end, label %rest\nrest:"
    yield from _rest(program, kind, reductions, rest, placed=placed)
    yield "  br label %end\nend:"
    for step in reductions:
        yield f"  %r{step.result} = phi double [%f{step.result}, %few], [%s{step.result}_{LANES - 1}, %rest]"
    for step in reductions:
        yield f"  %o{step.result} = getelementptr double, ptr %results, i64 {step.result}"
        yield f"  store double %r{step.result}, ptr %o{step.result}"
    yield "  ret void\n}"


def _of_lanes(step: Step) -> Iterator[str]:
    """The eight sums of a row added up as numpy does: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))."""
    row = step.result
    for lane in range(LANES):
        yield f"  %x{row}_{lane} = extractelement {NUMBERS} %b{row}, i32 {lane}"
    pairs = [(f"%x{row}_{lane}", f"%x{row}_{lane + 1}") for lane in range(0, LANES, 2)]
    pairs += [(f"%l{row}_0", f"%l{row}_1"), (f"%l{row}_2", f"%l{row}_3"), (f"%l{row}_4", f"%l{row}_5")]
    for number, (one, other) in enumerate(pairs):
        yield f"  %l{row}_{number} = {_combined(step, 'double', one, other)}"


def _rest(program: Program, kind: Kind, reductions: Sequence[Step], lanes: Lanes, *, placed: bool) -> Iterator[str]:
    """Fewer than eight tokens, added one after the other. Other lanes hold tokens beside them, and are left out.

    Adjacent tokens are the last of eight, or the first eight of the columns. In the place of a token elsewhere is the last one.
    """
    yield "  %begin = add i64 %first, %full\n  %end_of_it = add i64 %first, %tokens\n  %final = sub i64 %end_of_it, 1"
    yield f"  %back = sub i64 %end_of_it, {LANES}\n  %at_rest = call i64 @llvm.smax.i64(i64 %back, i64 0)"
    places = []
    for lane in range(LANES if placed else 0):
        own = lanes.put(f"add i64 %begin, {lane}")
        own = lanes.put(f"call i64 @llvm.smin.i64(i64 {own}, i64 %final)")
        places.append(lanes.put(f"load i64, ptr {lanes.put(f'getelementptr i64, ptr %places, i64 {own}')}"))
    values = _values(lanes, program, kind, places if placed else None, at="%at_rest")
    yield from lanes.lines
    start = "%begin" if placed else "%at_rest"
    for lane in range(LANES):
        yield f"  %at{lane} = add i64 {start}, {lane}\n  %is_on{lane} = icmp sge i64 %at{lane}, %begin"
        yield f"  %is_in{lane} = icmp slt i64 %at{lane}, %end_of_it\n  %in{lane} = and i1 %is_on{lane}, %is_in{lane}"
    mask = "poison"
    for lane in range(LANES):
        yield f"  %mask{lane} = insertelement {TRUTHS} {mask}, i1 %in{lane}, i32 {lane}"
        mask = f"%mask{lane}"
    for step in reductions:
        row, before = step.result, f"%f{step.result}"
        yield f"  %z{row} = select {TRUTHS} {mask}, {NUMBERS} {values[step]}, {NUMBERS} {splat(NOTHING[step.operation])}"
        for lane in range(LANES):
            yield f"  %y{row}_{lane} = extractelement {NUMBERS} %z{row}, i32 {lane}"
            yield f"  %s{row}_{lane} = {_combined(step, 'double', before, f'%y{row}_{lane}')}"
            before = f"%s{row}_{lane}"


def _one(program: Program, kind: Kind, reductions: Sequence[Step], given: str) -> Iterator[str]:
    """`one(token, results, ...)`: the numbers of one token, which is in all eight lanes."""
    lanes = Lanes("v")
    columns = [lanes.repeated(f"%c{place}", kind, "%at") for place in range(len(program.columns))]
    values = lanes.steps(program, columns)
    yield f"define internal void @one(i64 %token, ptr %results, {given}) {{"
    yield "entry:\n  %adjacent = icmp eq ptr %places, null\n  br i1 %adjacent, label %here, label %placed"
    yield "placed:\n  %place = getelementptr i64, ptr %places, i64 %token\n  %found = load i64, ptr %place\n  br label %here"
    yield "here:\n  %at = phi i64 [%token, %entry], [%found, %placed]"
    yield from lanes.lines
    for step in reductions:
        yield f"  %s{step.result} = extractelement {NUMBERS} {values[step]}, i32 0"
        yield f"  %o{step.result} = getelementptr double, ptr %results, i64 {step.result}"
        yield f"  store double %s{step.result}, ptr %o{step.result}"
    yield "  ret void\n}"


def _halves(reductions: Sequence[Step], given: str) -> Iterator[str]:
    """`halves(first, tokens, results, ...)`: the sums of any number of tokens, by halves."""
    yield f"define internal void @halves(i64 %first, i64 %tokens, ptr %results, {given}) {{"
    yield f"entry:\n  %other = alloca [{len(reductions) + 8} x double], align 64\n  %is_leaf = icmp sle i64 %tokens, {LEAF}"
    yield "  br i1 %is_leaf, label %leaf, label %split\nleaf:\n  %adjacent = icmp eq ptr %places, null"
    yield "  br i1 %adjacent, label %plain, label %anywhere"
    for block, name in (("plain", "adjacent"), ("anywhere", "placed")):
        yield f"{block}:\n  call void @leaf_{name}(i64 %first, i64 %tokens, ptr %results, {given})\n  ret void"
    yield f"split:\n  %two = lshr i64 %tokens, 1\n  %half = and i64 %two, -{LANES}"
    yield "  %middle = add i64 %first, %half\n  %later = sub i64 %tokens, %half"
    yield f"  call void @halves(i64 %first, i64 %half, ptr %results, {given})"
    yield f"  call void @halves(i64 %middle, i64 %later, ptr %other, {given})"
    yield from _added(reductions, "%other")
    yield "  ret void\n}"


def _added(reductions: Sequence[Step], other: str) -> Iterator[str]:
    """Adds other results to %results."""
    for step in reductions:
        row = step.result
        for name, table in (("p", "%results"), ("q", other)):
            yield f"  %{name}{row} = getelementptr double, ptr {table}, i64 {row}"
        yield f"  %m{row} = load double, ptr %p{row}\n  %n{row} = load double, ptr %q{row}"
        yield f"  %k{row} = {_combined(step, 'double', f'%m{row}', f'%n{row}')}\n  store double %k{row}, ptr %p{row}"


def _sums(program: Program, reductions: Sequence[Step], given: str) -> Iterator[str]:
    """Numpy begins with the first token of a cell, and adds the sum of the others."""
    size = len(program.combines) + 8
    yield f"define void @sums(i64 %cells, ptr %bounds, ptr %table, {given}) {{"
    yield f"entry:\n  %results = alloca [{size} x double], align 64\n  %other = alloca [{size} x double], align 64"
    yield "  %any = icmp sgt i64 %cells, 0\n  br i1 %any, label %loop, label %end"
    yield "loop:\n  %cell = phi i64 [0, %entry], [%next, %stored]"
    yield "  %bound = getelementptr i64, ptr %bounds, i64 %cell\n  %first = load i64, ptr %bound"
    yield "  %following = getelementptr i64, ptr %bound, i64 1\n  %last = load i64, ptr %following"
    yield "  %tokens = sub i64 %last, %first\n  %others = sub i64 %tokens, 1\n  %second = add i64 %first, 1"
    yield f"  call void @one(i64 %first, ptr %results, {given})"
    yield "  %single = icmp slt i64 %tokens, 2\n  br i1 %single, label %stored, label %several\nseveral:"
    yield f"  call void @halves(i64 %second, i64 %others, ptr %other, {given})"
    yield from _added(reductions, "%other")
    yield "  br label %stored\nstored:\n  %count = sitofp i64 %tokens to double"
    of_row = {step.result: step for step in program.steps if step.operation in (*NOTHING, "count")}
    for place, row in enumerate(program.rows):
        step = of_row[row]
        if step.operation == "count":
            yield f"  %g{place} = fmul double %count, {single(float(step.arguments[0]))}"
        else:
            yield f"  %h{place} = getelementptr double, ptr %results, i64 {row}\n  %j{place} = load double, ptr %h{place}"
            # of 0.0 and -0.0 the larger one depends on the processor
            plus = 0.0 if step.operation == "max" else -0.0
            yield f"  %g{place} = fadd double %j{place}, {single(plus)}"
        yield f"  %t{place} = mul i64 %cells, {place}\n  %u{place} = add i64 %t{place}, %cell"
        yield f"  %w{place} = getelementptr double, ptr %table, i64 %u{place}\n  store double %g{place}, ptr %w{place}"
    yield "  %next = add i64 %cell, 1\n  %more = icmp slt i64 %next, %cells"
    yield "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}"


def _combined(step: Step, kind: str, one: str, other: str) -> str:
    """The instruction that combines two results of a reduction."""
    if step.operation == "max":
        name = "f64" if kind == "double" else f"v{LANES}f64"
        return f"call nsz {kind} @llvm.maximum.{name}({kind} {one}, {kind} {other})"
    return f"fadd {kind} {one}, {other}"
