"""The steps of a program as LLVM's instructions on eight numbers at once. exp is that of `metrics/exponential.py`."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..exponential import CUBE, HIGHEST, LOG_SHARES, LOWEST, PER_UNIT, ROUNDER, SHARES, SQUARE, STEP, STEP_REST
from .program import Program

LANES = 8
FOUR = 4
"""The numbers of a vector of one token: a processor adds as many at once."""
NUMBERS, WORDS, TRUTHS = f"<{LANES} x double>", f"<{LANES} x i64>", f"<{LANES} x i1>"
SINGLES = f"<{FOUR} x double>"
NOTHING = {"max": float("-inf"), "sum": -0.0, "logsumexp": -0.0}
"""The number that changes no result: even a sum of -0.0 stays -0.0 if -0.0 is added, and not if 0.0 is."""
Kind = Literal["float", "double"]
"""The numbers of the columns, as LLVM calls them."""

_SUFFIX = f"v{LANES}f64"
FINITE = 0b111111000
"""The classes of finite numbers, as `llvm.is.fpclass` counts them."""
_OF_NUMBERS = {
    "multiply": f"fmul {NUMBERS} {{}}, {{}}",
    "add": f"fadd {NUMBERS} {{}}, {{}}",
    "subtract": f"fsub {NUMBERS} {{}}, {{}}",
    "divide": f"fdiv {NUMBERS} {{}}, {{}}",
    "maximum": f"call nsz {NUMBERS} @llvm.maximum.{_SUFFIX}({NUMBERS} {{}}, {NUMBERS} {{}})",
    "abs": f"call {NUMBERS} @llvm.fabs.{_SUFFIX}({NUMBERS} {{}})",
    "greater": f"fcmp ogt {NUMBERS} {{}}, {{}}",
    "less": f"fcmp olt {NUMBERS} {{}}, {{}}",
    "equal": f"fcmp oeq {NUMBERS} {{}}, {{}}",
    "isfinite": f"call {TRUTHS} @llvm.is.fpclass.{_SUFFIX}({NUMBERS} {{}}, i32 {FINITE})",
}
_OF_TRUTHS = {"and": f"and {TRUTHS} {{}}, {{}}", "or": f"or {TRUTHS} {{}}, {{}}"}
_CHOICE = f"select {TRUTHS} {{}}, {NUMBERS} {{}}, {NUMBERS} {{}}"
_ARE_TRUTHS = ("greater", "less", "equal", "isfinite", "and", "or")

DECLARATIONS = (
    f"declare {NUMBERS} @llvm.maximum.{_SUFFIX}({NUMBERS}, {NUMBERS})",
    f"declare {NUMBERS} @llvm.fabs.{_SUFFIX}({NUMBERS})",
    f"declare {TRUTHS} @llvm.is.fpclass.{_SUFFIX}({NUMBERS}, i32)",
    f"declare {SINGLES} @llvm.maximum.v{FOUR}f64({SINGLES}, {SINGLES})",
    "declare i64 @llvm.smin.i64(i64, i64)",
)


@dataclass
class Lanes:
    """Lines that compute on eight tokens. %shares: the table of exponentials."""

    prefix: str
    """Begins the names of the values, so that no two parts of a program share one."""
    bounded: bool = False
    """True if no exponential overflows or vanishes and no maximum reads NaN."""
    lines: list[str] = field(default_factory=list)
    """Lines of LLVM's language."""

    def put(self, text: str) -> str:
        """A new name for the result of this instruction."""
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def steps(self, program: Program, columns: Sequence[str]) -> Iterator[tuple[int, str]]:
        """(row, the vector that is added up there) of each reduction, as soon as it is known.

        columns: the vectors of the program's columns.
        """
        values, truths = dict[int, str](enumerate(columns)), dict[int, str]()

        def number(place: int | float) -> str:
            if isinstance(place, float):
                return splat(place)
            if place not in values:
                values[place] = self.put(_CHOICE.format(truths[place], splat(1.0), splat(0.0)))
            return values[place]

        def truth(place: int | float) -> str:
            known = isinstance(place, int) and place in truths
            return truths[int(place)] if known else self.put(f"fcmp une {NUMBERS} {number(place)}, {splat(0.0)}")

        def made(kind: str, places: Sequence[int | float]) -> str:
            if kind == "exp":
                return self.exp(number(places[0]))
            if kind == "where":
                return self.put(_CHOICE.format(truth(places[0]), *map(number, places[1:])))
            read = truth if kind in _OF_TRUTHS else number
            return self.put((_OF_TRUTHS | _OF_NUMBERS)[kind].format(*map(read, places)))

        for step in program.steps:
            if step.operation in NOTHING:
                yield step.result, number(step.arguments[0])
            elif step.operation != "count":
                kept, other = (truths, values) if step.operation in _ARE_TRUTHS else (values, truths)
                kept[step.result] = made(step.operation, step.arguments)
                other.pop(step.result, None)

    def turned(self, values: Sequence[str]) -> list[str]:
        """The four numbers of each of eight tokens. values: of all tokens, up to four vectors; the others are 0."""
        one, two, three, four = (*values, *[splat(0.0)] * (FOUR - len(values)))

        def of(one: str, other: str, kind: str, places: Sequence[int]) -> str:
            order = f"<{len(places)} x i32> <{', '.join(f'i32 {place}' for place in places)}>"
            return self.put(f"shufflevector {kind} {one}, {kind} {other}, {order}")

        # a processor takes every other number of two vectors at once, and then halves of four
        pairs = [
            [
                of(*each, NUMBERS, [k + odd for lane in range(0, LANES, 2) for k in (lane, lane + LANES)])
                for odd in (0, 1)
            ]
            for each in ((one, two), (three, four))
        ]
        rows = []
        for lane in range(LANES):
            first = lane - lane % 2
            rows.append(
                of(
                    pairs[0][lane % 2],
                    pairs[1][lane % 2],
                    NUMBERS,
                    (first, first + 1, LANES + first, LANES + first + 1),
                )
            )
        return rows

    def combined(self, operation: str, kind: str, one: str, other: str) -> str:
        """The instruction that combines two results of a reduction."""
        if operation == "max":
            flags = "nnan nsz" if self.bounded else "nsz"
            return f"call {flags} {kind} @llvm.maximum.v{LANES if kind == NUMBERS else FOUR}f64({kind} {one}, {kind} {other})"
        return f"fadd {kind} {one}, {other}"

    def place_of(self, row: str, number: int) -> str:
        """The place of a vector of a row."""
        return self.put(f"getelementptr {SINGLES}, ptr {row}, i64 {number}")

    def vector_at(self, row: str, number: int) -> str:
        """A vector of a row."""
        return self._vector_in(self.place_of(row, number))

    def combine_at(self, operation: str, row: str, number: int, vector: str) -> None:
        """Combines a vector of a row with this one."""
        place = self.place_of(row, number)
        after = self.put(self.combined(operation, SINGLES, self._vector_in(place), vector))
        self.lines.append(f"store {SINGLES} {after}, ptr {place}, align 8")

    def _vector_in(self, place: str) -> str:
        return self.put(f"load {SINGLES}, ptr {place}, align 8")

    def exp(self, x: str) -> str:
        """exp of eight numbers."""

        def of(operation: str, one: str, other: str | float) -> str:
            return self.put(f"{operation} {NUMBERS} {one}, {splat(other) if isinstance(other, float) else other}")

        whole = of("fadd", of("fmul", x, PER_UNIT), ROUNDER)
        bits, count = self.put(f"bitcast {NUMBERS} {whole} to {WORDS}"), of("fsub", whole, ROUNDER)
        rest = of("fsub", of("fsub", x, of("fmul", count, STEP)), of("fmul", count, STEP_REST))
        places = self.put(f"and {WORDS} {bits}, {words(SHARES - 1)}")
        share = self.gathered(
            "%shares", "i64", [self.put(f"extractelement {WORDS} {places}, i32 {k}") for k in range(LANES)]
        )
        shifted = self.put(f"shl {WORDS} {bits}, {words(52 - LOG_SHARES)}")
        scale = self.put(f"add {WORDS} {share}, {shifted}")
        power = self.put(f"bitcast {WORDS} {scale} to {NUMBERS}")
        sums = of("fadd", of("fmul", rest, CUBE), SQUARE)
        sums = of("fadd", of("fmul", of("fmul", sums, rest), rest), rest)
        found = of("fadd", of("fmul", sums, power), power)
        if self.bounded:
            return found
        for compared, limit, beyond in (("olt", LOWEST, 0.0), ("ogt", HIGHEST, float("inf"))):
            is_beyond = self.put(f"fcmp {compared} {NUMBERS} {x}, {splat(limit)}")
            found = self.put(_CHOICE.format(is_beyond, splat(beyond), found))
        return found

    def adjacent(self, column: str, kind: Kind, at: str) -> str:
        """The numbers of eight adjacent tokens."""
        place = self.put(f"getelementptr {kind}, ptr {column}, i64 {at}")
        return self._wide(self.put(f"load <{LANES} x {kind}>, ptr {place}, align {4 if kind == 'float' else 8}"), kind)

    def gathered(self, column: str, kind: Kind | Literal["i64"], places: Sequence[str]) -> str:
        """The numbers of eight tokens anywhere."""
        vector = "poison"
        for lane, each in enumerate(places):
            single = self.put(f"load {kind}, ptr {self.put(f'getelementptr {kind}, ptr {column}, i64 {each}')}")
            vector = self.put(f"insertelement <{LANES} x {kind}> {vector}, {kind} {single}, i32 {lane}")
        return self._wide(vector, kind)

    def filled(self, kind: str, number: str, times: int) -> str:
        """So many times a number that is known once the code runs."""
        vector = f"<{times} x {kind}>"
        one = self.put(f"insertelement {vector} poison, {kind} {number}, i32 0")
        return self.put(f"shufflevector {vector} {one}, {vector} poison, <{times} x i32> zeroinitializer")

    def _wide(self, vector: str, kind: str) -> str:
        return self.put(f"fpext <{LANES} x float> {vector} to {NUMBERS}") if kind == "float" else vector


def splat(number: float, times: int = LANES) -> str:
    """So many times this number, as LLVM writes it."""
    return f"<{', '.join([f'double {single(number)}'] * times)}>"


def single(number: float) -> str:
    """This number, as LLVM writes it."""
    return f"0x{struct.pack('>d', number).hex().upper()}"


def words(number: int) -> str:
    """Eight times this whole number, as LLVM writes it."""
    return f"<{', '.join([f'i64 {number}'] * LANES)}>"
