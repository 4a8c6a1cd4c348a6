"""The text of a program in LLVM's language: eight tokens at once, one pass for all cells.

Numpy adds the numbers of adjacent tokens to the first one: halves of at most 128 numbers each, in which every eighth number has a
sum of its own. Those of other cells it adds one after the other. So the sums equal those of `numpy_program.py` bit for bit.
A row of numbers is the work of one token: all that is added up, four numbers to a vector, and what maxima are taken of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from .lanes import DECLARATIONS, FOUR, LANES, NOTHING, NUMBERS, SINGLES, Kind, Lanes, single, splat
from .program import Program

LEAF = 128
"""The most numbers that numpy adds up without halving them (PW_BLOCKSIZE)."""
_TOGETHER = 4
"""Vectors of eight tokens that are added to cells at once. With eight, a loop takes a tenth longer: they leave the registers."""


@dataclass(frozen=True)
class Layout:
    """The places of a program's reductions in a row."""

    sums: tuple[int, ...]
    """Rows of the program's sums, those of exponentials among them."""
    maxima: tuple[int, ...]
    """Rows of the program's maxima."""

    @cached_property
    def vectors(self) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
        """("sum" or "max", the reduction in each of its places) of each vector. The last sum counts tokens: None."""
        return tuple(
            (operation, rows[first : first + FOUR])
            for operation, rows in (("sum", (*self.sums, None)), ("max", self.maxima))
            for first in range(0, len(rows), FOUR)
        )

    @property
    def width(self) -> int:
        """The numbers of a row."""
        return FOUR * len(self.vectors)

    @cached_property
    def nothing(self) -> tuple[float, ...]:
        """A row to which nothing was added."""
        start = {"sum": 0.0, "max": NOTHING["max"]}
        return tuple(start[operation] for operation, _ in self.vectors for _ in range(FOUR))

    @cached_property
    def place(self) -> dict[int | None, int]:
        """The place of each reduction, and of the number of tokens."""
        return {row: FOUR * k + j for k, (_, rows) in enumerate(self.vectors) for j, row in enumerate(rows)}


@cache
def layout(program: Program) -> Layout:
    """The reductions in the order in which their numbers are known."""
    own = [(step.result, step.operation) for step in program.steps if step.operation in NOTHING]
    return Layout(tuple(row for row, kind in own if kind != "max"), tuple(row for row, kind in own if kind == "max"))


@cache
def program_code(program: Program, kind: Kind, partitions: tuple[int, ...]) -> str:
    """A module with `sums(cells, bounds, table, shares, COLUMNS, PARTITIONS)`. The columns are of this kind of numbers.

    bounds: the first token of each cell, and the end. table: it receives a row for each cell. A partition is three arguments: two
    of a `Scattered`, whose codes have so many bits, and a table with a row for each of its cells, to which rows are added.
    shares: of `metrics/exponential.py`.
    """
    return "\n".join(_Code(program, kind, partitions).lines())


class _Code:
    """Writes the functions of a module, which share names of arguments and the layout of rows."""

    def __init__(self, program: Program, kind: Kind, partitions: tuple[int, ...]) -> None:
        self._program, self._partitions = program, range(len(partitions))
        self._kind: Kind = kind
        self._bits = partitions
        self._columns = [f"%c{place}" for place in range(len(program.columns))]
        self._layout = layout(program)
        names = (
            "%shares",
            *self._columns,
            *(f"%{what}{k}" for k in self._partitions for what in ("codes", "first", "to")),
        )
        self._given = ", ".join(f"ptr {name}" for name in names)
        self._vectors = list(enumerate(operation for operation, _ in self._layout.vectors))

    def _lanes(self, prefix: str) -> Lanes:
        return Lanes(prefix, self._program.bounded)

    def lines(self) -> Iterator[str]:
        """All functions."""
        yield from DECLARATIONS
        yield from self._add()
        yield from self._edge()
        yield from self._leaf()
        yield from self._halves()
        yield from self._sums()
        yield from self._statistics()

    def _values(self, lanes: Lanes, columns: Sequence[str]) -> Iterator[tuple[int, str, list[str]]]:
        """(number of the vector, its operation, the numbers of eight tokens for each of its places), as they are known."""
        read = lanes.steps(self._program, columns)
        vectors = list(enumerate(self._layout.vectors))
        known: dict[int | None, str] = {None: splat(1.0)}
        for row, value in read:
            known[row] = value
            for number, (operation, rows) in [each for each in vectors if set(each[1][1]) <= set(known)]:
                yield number, operation, [known[each] for each in rows]
            vectors = [each for each in vectors if not set(each[1][1]) <= set(known)]

    def _edge(self) -> Iterator[str]:
        """`edge(first, final, before, rows, ...)`: the rows of the first token of a cell and of the up to seven last ones.

        final: the last token. before: the token before the last ones, less one for the row of the first.
        """
        lanes = self._lanes("v")
        places = ["%first"]
        for lane in range(1, LANES):
            own = lanes.put(f"add i64 %before, {lane}")
            places.append(lanes.put(f"call i64 @llvm.smin.i64(i64 {own}, i64 %final)"))
        columns = [lanes.gathered(name, self._kind, places) for name in self._columns]
        for number, _, values in self._values(lanes, columns):
            for lane, row in enumerate(lanes.turned(values)):
                to = lanes.put(f"getelementptr double, ptr %rows, i64 {lane * self._layout.width + number * FOUR}")
                lanes.lines.append(f"store {SINGLES} {row}, ptr {to}, align 8")
        yield f"define internal void @edge(i64 %first, i64 %final, i64 %before, ptr %rows, {self._given}) {{"
        yield from lanes.lines
        yield "  ret void\n}"

    def _add(self) -> Iterator[str]:
        """`add(token, row, ...)`: a row to the cell of the token in each partition."""
        lanes = self._lanes("v")
        targets = [self._target(lanes, k, "%token") for k in self._partitions]
        for number, operation in self._vectors:
            row = lanes.vector_at("%row", number)
            for target in targets:
                lanes.combine_at(operation, target, number, row)
        yield f"define internal void @add(i64 %token, ptr %row, {self._given}) {{"
        yield from lanes.lines
        yield "  ret void\n}"

    def _target(self, lanes: Lanes, partition: int, token: str) -> str:
        """The row of the cell of a token."""
        kind = f"i{self._bits[partition]}"
        code = lanes.put(f"load {kind}, ptr {lanes.put(f'getelementptr {kind}, ptr %codes{partition}, i64 {token}')}")
        cell = code if kind == "i64" else lanes.put(f"sext {kind} {code} to i64")
        return lanes.put(f"getelementptr [{self._layout.width} x double], ptr %to{partition}, i64 {cell}")

    def _leaf(self) -> Iterator[str]:
        """`leaf(first, tokens, results, ...)`: the row of at most 128 tokens, a multiple of eight of them."""
        lanes, ends = self._lanes("v"), self._lanes("w")
        columns = [lanes.adjacent(name, self._kind, "%at") for name in self._columns]
        tokens = [lanes.put(f"add i64 %at, {lane}") for lane in range(LANES if self._partitions else 0)]
        targets = [[self._target(lanes, k, token) for token in tokens] for k in self._partitions]
        turned = list[tuple[int, str, list[str]]]()
        for number, operation, values in self._values(lanes, columns):
            for place, value in enumerate(values):
                name = f"{number}_{place}"
                combined = lanes.combined(operation, NUMBERS, f"%a{name}", value)
                lanes.lines.append(f"%b{name} = {combined}")
            turned += [(number, operation, lanes.turned(values))] if self._partitions else []
            if len(turned) == _TOGETHER:
                self._add_turned(lanes, targets, turned)
        self._add_turned(lanes, targets, turned)
        for number, (operation, rows) in enumerate(self._layout.vectors):
            of_lanes = ends.turned([f"%b{number}_{place}" for place in range(len(rows))])
            while len(of_lanes) > 1:
                pairs = zip(of_lanes[::2], of_lanes[1::2], strict=True)
                of_lanes = [ends.put(ends.combined(operation, SINGLES, *pair)) for pair in pairs]
            ends.lines.append(f"store {SINGLES} {of_lanes[0]}, ptr {ends.place_of('%results', number)}, align 8")
        yield f"define internal void @leaf(i64 %first, i64 %tokens, ptr %results, {self._given}) {{"
        yield "entry:\n  %any = icmp sgt i64 %tokens, 0\n  br i1 %any, label %loop, label %none\nnone:"
        for number, operation in self._vectors:
            yield f"  %n{number} = getelementptr {SINGLES}, ptr %results, i64 {number}"
            yield f"  store {SINGLES} {splat(NOTHING[operation], FOUR)}, ptr %n{number}, align 8"
        yield "  ret void\nloop:\n  %i = phi i64 [0, %entry], [%next, %loop]"
        for number, (operation, rows) in enumerate(self._layout.vectors):
            for place in range(len(rows)):
                name = f"{number}_{place}"
                yield f"  %a{name} = phi {NUMBERS} [{splat(NOTHING[operation])}, %entry], [%b{name}, %loop]"
        yield "  %at = add i64 %first, %i"
        yield from lanes.lines
        yield f"  %next = add i64 %i, {LANES}\n  %more = icmp slt i64 %next, %tokens"
        yield "  br i1 %more, label %loop, label %end\nend:"
        yield from ends.lines
        yield "  ret void\n}"

    def _add_turned(
        self, lanes: Lanes, targets: Sequence[Sequence[str]], turned: list[tuple[int, str, list[str]]]
    ) -> None:
        """Adds the vectors of eight tokens to their cells, token by token, and forgets them.

        Many tokens are in the cell of the one before; so each vector waits for its own sum alone.
        """
        for own in targets:
            for lane, target in enumerate(own):
                for number, operation, of_lanes in turned:
                    lanes.combine_at(operation, target, number, of_lanes[lane])
        turned.clear()

    def _halves(self) -> Iterator[str]:
        """`halves(first, tokens, results, rows, ...)`: the row of any number of tokens, by halves.

        rows: those of `edge`. The tokens behind the last eight are added one after the other.
        """
        joined, one = self._lanes("v"), self._lanes("w")
        for lanes, row in ((joined, "%other"), (one, "%row")):
            for number, operation in self._vectors:
                lanes.combine_at(operation, "%results", number, lanes.vector_at(row, number))
        arguments = f"ptr %results, ptr %rows, {self._given}"
        yield f"define internal void @halves(i64 %first, i64 %tokens, {arguments}) {{"
        yield f"entry:\n  %other = alloca [{self._layout.width} x double], align 32"
        yield f"  %is_leaf = icmp sle i64 %tokens, {LEAF}\n  br i1 %is_leaf, label %leaf, label %split"
        yield f"leaf:\n  %full = and i64 %tokens, -{LANES}\n  %left = and i64 %tokens, {LANES - 1}"
        yield f"  call void @leaf(i64 %first, i64 %full, ptr %results, {self._given})"
        yield "  %begin = add i64 %first, %full\n  %is_whole = icmp eq i64 %left, 0"
        yield "  br i1 %is_whole, label %end, label %rest\nrest:\n  %k = phi i64 [0, %leaf], [%next, %rest]"
        yield "  %token = add i64 %begin, %k\n  %next = add i64 %k, 1"
        yield f"  %row = getelementptr [{self._layout.width} x double], ptr %rows, i64 %next"
        yield from one.lines
        if self._partitions:
            yield f"  call void @add(i64 %token, ptr %row, {self._given})"
        yield "  %more = icmp slt i64 %next, %left\n  br i1 %more, label %rest, label %end"
        yield f"split:\n  %two = lshr i64 %tokens, 1\n  %half = and i64 %two, -{LANES}"
        yield "  %middle = add i64 %first, %half\n  %later = sub i64 %tokens, %half"
        yield f"  call void @halves(i64 %first, i64 %half, {arguments})"
        yield f"  call void @halves(i64 %middle, i64 %later, {arguments.replace('%results', '%other')})"
        yield from joined.lines
        yield "  br label %end\nend:\n  ret void\n}"

    def _sums(self) -> Iterator[str]:
        """Numpy begins with the first token of a cell, and adds the sum of the others."""
        width, lanes = self._layout.width, self._lanes("v")
        for number, operation in self._vectors:
            own = lanes.vector_at("%rows", number)
            lanes.combine_at(operation, "%row", number, own)
        yield f"define void @sums(i64 %cells, ptr %bounds, ptr %table, {self._given}) {{"
        yield f"entry:\n  %rows = alloca [{LANES * width} x double], align 32"
        yield "  %any = icmp sgt i64 %cells, 0\n  br i1 %any, label %loop, label %end"
        yield "loop:\n  %cell = phi i64 [0, %entry], [%next, %joined]"
        yield "  %bound = getelementptr i64, ptr %bounds, i64 %cell\n  %first = load i64, ptr %bound"
        yield "  %following = getelementptr i64, ptr %bound, i64 1\n  %last = load i64, ptr %following"
        yield "  %tokens = sub i64 %last, %first\n  %others = sub i64 %tokens, 1\n  %second = add i64 %first, 1"
        yield f"  %left = and i64 %others, {LANES - 1}\n  %final = sub i64 %last, 1\n  %before = sub i64 %final, %left"
        yield f"  call void @edge(i64 %first, i64 %final, i64 %before, ptr %rows, {self._given})"
        given = self._given
        for k in self._partitions:
            yield f"  %first_at{k} = getelementptr i64, ptr %first{k}, i64 %cell\n  %added{k} = load i64, ptr %first_at{k}"
            yield f"  %from{k} = getelementptr [{width} x double], ptr %to{k}, i64 %added{k}"
            given = given.replace(f"%to{k}", f"%from{k}")
        if self._partitions:
            yield f"  call void @add(i64 %first, ptr %rows, {given})"
        yield f"  %row = getelementptr [{width} x double], ptr %table, i64 %cell"
        yield f"  call void @halves(i64 %second, i64 %others, ptr %row, ptr %rows, {given})"
        yield "  br label %joined\njoined:"
        yield from lanes.lines
        yield "  %next = add i64 %cell, 1\n  %more = icmp slt i64 %next, %cells"
        yield "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}"

    def _statistics(self) -> Iterator[str]:
        """`statistics(cells, numbers, rows, table)`: a row for each statistic, from the rows of cells so numbered."""
        counts = {step.result: step.arguments[0] for step in self._program.steps if step.operation == "count"}
        lanes, width = self._lanes("v"), self._layout.width
        number = lanes.put(f"load i64, ptr {lanes.put('getelementptr i64, ptr %numbers, i64 %i')}")
        own = lanes.put(f"getelementptr [{width} x double], ptr %rows, i64 {number}")
        for place, row in enumerate(self._program.rows):
            at = self._layout.place[None if row in counts else row]
            value = lanes.put(f"load double, ptr {lanes.put(f'getelementptr double, ptr {own}, i64 {at}')}")
            if row in counts:
                value = lanes.put(f"fmul double {value}, {single(float(counts[row]))}")
            elif self._program.combines[row] == "max":  # of 0.0 and -0.0 the larger one depends on the processor
                value = lanes.put(f"fadd double {value}, {single(0.0)}")
            to = lanes.put(f"add i64 {lanes.put(f'mul i64 %cells, {place}')}, %i")
            to = lanes.put(f"getelementptr double, ptr %table, i64 {to}")
            lanes.lines.append(f"store double {value}, ptr {to}")
        yield "define void @statistics(i64 %cells, ptr %numbers, ptr %rows, ptr %table) {"
        yield "entry:\n  %any = icmp sgt i64 %cells, 0\n  br i1 %any, label %loop, label %end"
        yield "loop:\n  %i = phi i64 [0, %entry], [%next, %loop]"
        yield from lanes.lines
        yield "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %cells"
        yield "  br i1 %more, label %loop, label %end\nend:\n  ret void\n}"
