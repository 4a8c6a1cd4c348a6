"""The text of a program in LLVM's language: eight tokens at once, and sums in the order in which numpy adds them up.

Numpy adds the numbers of a cell to its first one: halves of at most 128 numbers each, in which every eighth number has a sum of
its own. So the sums equal those of `numpy_program.py` bit for bit. The exponentials are columns, because numpy computes them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from .program import Program, Step

LANES = 8
LEAF = 128
"""The most numbers that numpy adds up without halving them (PW_BLOCKSIZE)."""
_NUMBERS, _TRUTHS = f"<{LANES} x double>", f"<{LANES} x i1>"
_BINARY = {"multiply": "fmul", "add": "fadd", "subtract": "fsub", "divide": "fdiv"}
_COMPARED = {"greater": "ogt", "less": "olt", "equal": "oeq"}
Kind = Literal["float", "double"]
"""The numbers of the columns, as LLVM calls them."""
_NOTHING = {"max": float("-inf"), "sum": -0.0, "logsumexp": -0.0}
"""The number that changes no result: even a sum of -0.0 stays -0.0 if -0.0 is added, and not if 0.0 is."""


def exponents(program: Program) -> tuple[Step, ...]:
    """The steps whose result numpy computes."""
    return tuple(step for step in program.steps if step.operation == "exp")


@cache
def program_code(program: Program, kind: Kind) -> str:
    """A module with two functions; the columns, of this kind of numbers, come last in both.

    `exponents(tokens, results, COLUMNS)`: the arguments of the exponentials, a row of tokens each.
    `sums(cells, bounds, width, results, places, EXPONENTIALS, COLUMNS)`: a row of `width` for each statistic; of a `logsumexp`
    it holds the plain sum of exponentials. A cell has the tokens places[bounds[cell]] to places[bounds[cell + 1] - 1]; the place
    of a token is its number where `places` is null.
    """
    columns = [f"ptr %c{place}" for place in range(len(program.columns))]
    given = ", ".join(("ptr %places", *(f"ptr %e{place}" for place in range(len(exponents(program)))), *columns))
    reductions = [step for step in program.steps if step.operation in _NOTHING]
    text = (
        f"declare {_NUMBERS} @llvm.maximum.v{LANES}f64({_NUMBERS}, {_NUMBERS})",
        f"declare {_NUMBERS} @llvm.fabs.v{LANES}f64({_NUMBERS})",
        "declare double @llvm.fabs.f64(double)",
        "declare double @llvm.maximum.f64(double, double)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        *_exponents(program, kind, ", ".join(columns)),
        *_one(program, kind, reductions, given),
        *_leaf(program, kind, reductions, given, placed=False),
        *_leaf(program, kind, reductions, given, placed=True),
        *_halves(reductions, given),
        *_sums(program, reductions, given),
    )
    return "\n".join(text)


@dataclass
class _Lanes:
    """Lines that compute the steps of a program for eight tokens."""

    prefix: str
    width: int = LANES
    """1: the steps for one token."""
    lines: list[str] = field(default_factory=list)
    exponents: list[str] = field(default_factory=list)
    """The argument of each exponential of `steps`."""

    def put(self, text: str) -> str:
        """A new name for the result of this instruction."""
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def together(self, singles: Sequence[str], kind: str = "double") -> str:
        """A vector of these numbers."""
        vector = "poison"
        for lane, single in enumerate(singles):
            vector = self.put(f"insertelement <{LANES} x {kind}> {vector}, {kind} {single}, i32 {lane}")
        return vector

    def steps(self, program: Program, given: dict[int, str], exponentials: Sequence[str]) -> dict[Step, str]:
        """The vector that each reduction reads. given: register -> the vector of a column. exponentials: in their order."""
        values, truths, read = dict[int, str](given), dict[int, str](), dict[Step, str]()
        results = iter(exponentials)
        numbers, truth_type, suffix = (
            ("double", "i1", "f64") if self.width == 1 else (_NUMBERS, _TRUTHS, f"v{LANES}f64")
        )

        def number(place: int | float) -> str:
            if isinstance(place, float):
                return self.splat(place)
            if place not in values:
                values[place] = self.put(
                    f"select {truth_type} {truths[place]}, {numbers} {self.splat(1.0)}, {numbers} {self.splat(0.0)}"
                )
            return values[place]

        def truth(place: int | float) -> str:
            if place not in truths or isinstance(place, float):
                return self.put(f"fcmp une {numbers} {number(place)}, {self.splat(0.0)}")
            return truths[place]

        for step in program.steps:
            kind, places = step.operation, step.arguments
            if kind in _NOTHING:
                read[step] = number(places[0])
            elif kind == "count":
                continue
            elif kind in _COMPARED or kind in ("and", "or", "isfinite"):
                if kind == "isfinite":
                    size = self.put(f"call {numbers} @llvm.fabs.{suffix}({numbers} {number(places[0])})")
                    made = self.put(f"fcmp olt {numbers} {size}, {self.splat(float('inf'))}")
                elif kind in _COMPARED:
                    one, other = map(number, places)
                    made = self.put(f"fcmp {_COMPARED[kind]} {numbers} {one}, {other}")
                else:
                    one, other = map(truth, places)
                    made = self.put(f"{kind} {truth_type} {one}, {other}")
                truths[step.result] = made
                values.pop(step.result, None)
            else:
                if kind == "exp":
                    self.exponents.append(number(places[0]))
                    made = next(results)
                elif kind == "abs":
                    made = self.put(f"call {numbers} @llvm.fabs.{suffix}({numbers} {number(places[0])})")
                elif kind == "where":
                    chosen, one, other = truth(places[0]), number(places[1]), number(places[2])
                    made = self.put(f"select {truth_type} {chosen}, {numbers} {one}, {numbers} {other}")
                elif kind == "maximum":
                    one, other = map(number, places)
                    made = self.put(f"call {numbers} @llvm.maximum.{suffix}({numbers} {one}, {numbers} {other})")
                else:
                    one, other = map(number, places)
                    made = self.put(f"{_BINARY[kind]} {numbers} {one}, {other}")
                values[step.result] = made
                truths.pop(step.result, None)
        return read

    def splat(self, number: float) -> str:
        """The number in each lane."""
        return _single(number) if self.width == 1 else splat(number)

    def adjacent(self, column: str, kind: str, at: str) -> str:
        """The numbers of eight adjacent tokens."""
        place = self.put(f"getelementptr {kind}, ptr {column}, i64 {at}")
        found = self.put(f"load <{LANES} x {kind}>, ptr {place}, align {4 if kind == 'float' else 8}")
        return found if kind == "double" else self.put(f"fpext <{LANES} x float> {found} to {_NUMBERS}")

    def gathered(self, column: str, kind: str, places: Sequence[str]) -> str:
        """The numbers of eight tokens anywhere."""
        singles = []
        for each in places:
            place = self.put(f"getelementptr {kind}, ptr {column}, i64 {each}")
            singles.append(self.put(f"load {kind}, ptr {place}"))
        found = self.together(singles, kind)
        return found if kind == "double" else self.put(f"fpext <{LANES} x float> {found} to {_NUMBERS}")


def _exponents(program: Program, kind: Kind, columns: str) -> Iterator[str]:
    """Eight tokens at a time; the last eight may be computed twice, and fewer than eight are in columns of eight."""
    lanes = _Lanes("v")
    given = {place: lanes.adjacent(f"%c{place}", kind, "%at") for place in range(len(program.columns))}
    lanes.steps(program, given, [splat(0.0)] * len(exponents(program)))
    yield f"define void @exponents(i64 %tokens, ptr %results, {columns}) {{"
    yield "entry:\n  %last = sub i64 %tokens, 8\n  br label %loop"
    yield "loop:\n  %i = phi i64 [0, %entry], [%next, %loop]"
    yield "  %at = call i64 @llvm.smin.i64(i64 %i, i64 %last)"
    yield from lanes.lines
    for row, value in enumerate(lanes.exponents):
        yield f"  %row{row} = mul i64 %tokens, {row}\n  %place{row} = add i64 %row{row}, %at"
        yield f"  %to{row} = getelementptr double, ptr %results, i64 %place{row}"
        yield f"  store {_NUMBERS} {value}, ptr %to{row}, align 8"
    yield f"  %next = add i64 %i, {LANES}\n  %more = icmp slt i64 %next, %tokens"
    yield "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}"


def _columns(
    lanes: _Lanes, program: Program, kind: Kind, places: Sequence[str] | None, at: str = "%at"
) -> dict[Step, str]:
    """The numbers of eight tokens that each reduction reads: those from `at` on, or those at these places."""

    def column(name: str, of: str) -> str:
        return lanes.adjacent(name, of, at) if places is None else lanes.gathered(name, of, places)

    given = {place: column(f"%c{place}", kind) for place in range(len(program.columns))}
    return lanes.steps(program, given, [column(f"%e{place}", "double") for place in range(len(exponents(program)))])


def _leaf(program: Program, kind: Kind, reductions: Sequence[Step], given: str, *, placed: bool) -> Iterator[str]:
    """`leaf(first, tokens, results, ...)`: the sums of at most 128 tokens, one number of each reduction."""
    name = "placed" if placed else "adjacent"
    whole, rest = _Lanes("v"), _Lanes("t")
    places = None
    if placed:
        at = whole.put("getelementptr i64, ptr %places, i64 %at")
        places = [
            whole.put(f"load i64, ptr {whole.put(f'getelementptr i64, ptr {at}, i64 {lane}')}") for lane in range(LANES)
        ]
    values = _columns(whole, program, kind, places)
    yield f"define internal void @leaf_{name}(i64 %first, i64 %tokens, ptr %results, {given}) {{"
    yield f"entry:\n  %full = and i64 %tokens, -{LANES}\n  %any = icmp sgt i64 %full, 0"
    yield "  br i1 %any, label %loop, label %few\nloop:\n  %i = phi i64 [0, %entry], [%next, %loop]"
    for step in reductions:
        yield f"  %a{step.result} = phi {_NUMBERS} [{splat(_NOTHING[step.operation])}, %entry], [%b{step.result}, %loop]"
    yield "  %at = add i64 %first, %i"
    yield from whole.lines
    for step in reductions:
        yield f"  %b{step.result} = {_combined(step, _NUMBERS, f'%a{step.result}', values[step])}"
    yield f"  %next = add i64 %i, {LANES}\n  %more = icmp slt i64 %next, %full"
    yield "  br i1 %more, label %loop, label %lanes\nlanes:"
    for step in reductions:
        yield from _of_lanes(step)
    yield "  br label %few\nfew:"
    for step in reductions:
        nothing = _single(_NOTHING[step.operation])
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
        yield f"  %x{row}_{lane} = extractelement {_NUMBERS} %b{row}, i32 {lane}"
    pairs = [(f"%x{row}_{lane}", f"%x{row}_{lane + 1}") for lane in range(0, LANES, 2)]
    pairs += [(f"%l{row}_0", f"%l{row}_1"), (f"%l{row}_2", f"%l{row}_3"), (f"%l{row}_4", f"%l{row}_5")]
    for number, (one, other) in enumerate(pairs):
        yield f"  %l{row}_{number} = {_combined(step, 'double', one, other)}"


def _rest(program: Program, kind: Kind, reductions: Sequence[Step], lanes: _Lanes, *, placed: bool) -> Iterator[str]:
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
    values = _columns(lanes, program, kind, places if placed else None, at="%at_rest")
    yield from lanes.lines
    start = "%begin" if placed else "%at_rest"
    for lane in range(LANES):
        yield f"  %at{lane} = add i64 {start}, {lane}\n  %is_on{lane} = icmp sge i64 %at{lane}, %begin"
        yield f"  %is_in{lane} = icmp slt i64 %at{lane}, %end_of_it\n  %in{lane} = and i1 %is_on{lane}, %is_in{lane}"
    mask = "poison"
    for lane in range(LANES):
        yield f"  %mask{lane} = insertelement {_TRUTHS} {mask}, i1 %in{lane}, i32 {lane}"
        mask = f"%mask{lane}"
    for step in reductions:
        row, before = step.result, f"%f{step.result}"
        yield f"  %z{row} = select {_TRUTHS} {mask}, {_NUMBERS} {values[step]}, {_NUMBERS} {splat(_NOTHING[step.operation])}"
        for lane in range(LANES):
            yield f"  %y{row}_{lane} = extractelement {_NUMBERS} %z{row}, i32 {lane}"
            yield f"  %s{row}_{lane} = {_combined(step, 'double', before, f'%y{row}_{lane}')}"
            before = f"%s{row}_{lane}"


def _one(program: Program, kind: Kind, reductions: Sequence[Step], given: str) -> Iterator[str]:
    """`one(token, results, ...)`: what the reductions read of one token."""
    lanes = _Lanes("v", 1)

    def column(name: str, of: str) -> str:
        place = lanes.put(f"getelementptr {of}, ptr {name}, i64 %at")
        found = lanes.put(f"load {of}, ptr {place}")
        return found if of == "double" else lanes.put(f"fpext float {found} to double")

    columns = {place: column(f"%c{place}", kind) for place in range(len(program.columns))}
    values = lanes.steps(program, columns, [column(f"%e{place}", "double") for place in range(len(exponents(program)))])
    yield f"define internal void @one(i64 %token, ptr %results, {given}) {{"
    yield "entry:\n  %adjacent = icmp eq ptr %places, null\n  br i1 %adjacent, label %here, label %placed"
    yield "placed:\n  %place = getelementptr i64, ptr %places, i64 %token\n  %found = load i64, ptr %place\n  br label %here"
    yield "here:\n  %at = phi i64 [%token, %entry], [%found, %placed]"
    yield from lanes.lines
    for step in reductions:
        yield f"  %o{step.result} = getelementptr double, ptr %results, i64 {step.result}"
        yield f"  store double {values[step]}, ptr %o{step.result}"
    yield "  ret void\n}"


def _halves(reductions: Sequence[Step], given: str) -> Iterator[str]:
    """`halves(first, tokens, results, ...)`: the sums of any number of tokens, by halves."""
    names = ", ".join(given.split(", "))
    yield f"define internal void @halves(i64 %first, i64 %tokens, ptr %results, {given}) {{"
    yield f"entry:\n  %other = alloca [{len(reductions) + 8} x double], align 64\n  %is_leaf = icmp sle i64 %tokens, {LEAF}"
    yield "  br i1 %is_leaf, label %leaf, label %split\nleaf:\n  %adjacent = icmp eq ptr %places, null"
    yield "  br i1 %adjacent, label %plain, label %anywhere"
    for block, name in (("plain", "adjacent"), ("anywhere", "placed")):
        yield f"{block}:\n  call void @leaf_{name}(i64 %first, i64 %tokens, ptr %results, {names})\n  ret void"
    yield f"split:\n  %two = lshr i64 %tokens, 1\n  %half = and i64 %two, -{LANES}"
    yield "  %middle = add i64 %first, %half\n  %later = sub i64 %tokens, %half"
    yield f"  call void @halves(i64 %first, i64 %half, ptr %results, {names})"
    yield f"  call void @halves(i64 %middle, i64 %later, ptr %other, {names})"
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
    yield f"define void @sums(i64 %cells, ptr %bounds, i64 %width, ptr %table, {given}) {{"
    yield f"entry:\n  %results = alloca [{size} x double], align 64\n  %other = alloca [{size} x double], align 64"
    yield "  br label %loop\nloop:\n  %cell = phi i64 [0, %entry], [%next, %stored]"
    yield "  %bound = getelementptr i64, ptr %bounds, i64 %cell\n  %first = load i64, ptr %bound"
    yield "  %following = getelementptr i64, ptr %bound, i64 1\n  %last = load i64, ptr %following"
    yield "  %tokens = sub i64 %last, %first\n  %others = sub i64 %tokens, 1\n  %second = add i64 %first, 1"
    yield f"  call void @one(i64 %first, ptr %results, {given})"
    yield "  %single = icmp slt i64 %tokens, 2\n  br i1 %single, label %stored, label %several\nseveral:"
    yield f"  call void @halves(i64 %second, i64 %others, ptr %other, {given})"
    yield from _added(reductions, "%other")
    yield "  br label %stored\nstored:\n  %count = sitofp i64 %tokens to double"
    of_row = {step.result: step for step in program.steps if step.operation in (*_NOTHING, "count")}
    for place, row in enumerate(program.rows):
        step = of_row[row]
        if step.operation == "count":
            yield f"  %g{place} = fmul double %count, {_single(float(step.arguments[0]))}"
        else:
            yield f"  %h{place} = getelementptr double, ptr %results, i64 {row}\n  %j{place} = load double, ptr %h{place}"
            # of 0.0 and -0.0 the larger one depends on the processor
            plus = 0.0 if step.operation == "max" else -0.0
            yield f"  %g{place} = fadd double %j{place}, {_single(plus)}"
        yield f"  %t{place} = mul i64 %width, {place}\n  %u{place} = add i64 %t{place}, %cell"
        yield f"  %w{place} = getelementptr double, ptr %table, i64 %u{place}\n  store double %g{place}, ptr %w{place}"
    yield "  %next = add i64 %cell, 1\n  %more = icmp slt i64 %next, %cells"
    yield "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}"


def _combined(step: Step, kind: str, one: str, other: str) -> str:
    """The instruction that combines two results of a reduction."""
    if step.operation == "max":
        name = "f64" if kind == "double" else f"v{LANES}f64"
        return f"call {kind} @llvm.maximum.{name}({kind} {one}, {kind} {other})"
    return f"fadd {kind} {one}, {other}"


def splat(number: float) -> str:
    """Eight times this number, as LLVM writes it."""
    return f"<{', '.join([f'double {_single(number)}'] * LANES)}>"


def _single(number: float) -> str:
    return f"0x{struct.pack('>d', number).hex().upper()}"
