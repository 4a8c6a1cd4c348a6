"""The steps of a program as LLVM's instructions on eight numbers at once. exp is that of `metrics/exponential.py`."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..exponential import CUBE, HIGHEST, LOG_SHARES, LOWEST, PER_UNIT, ROUNDER, SHARES, SQUARE, STEP, STEP_REST
from .program import Program, Step

LANES = 8
NUMBERS, WORDS, TRUTHS = f"<{LANES} x double>", f"<{LANES} x i64>", f"<{LANES} x i1>"
NOTHING = {"max": float("-inf"), "sum": -0.0, "logsumexp": -0.0}
"""The number that changes no result: even a sum of -0.0 stays -0.0 if -0.0 is added, and not if 0.0 is."""
Kind = Literal["float", "double"]
"""The numbers of the columns, as LLVM calls them."""

_SUFFIX = f"v{LANES}f64"
_FINITE = 0b111111000
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
    "isfinite": f"call {TRUTHS} @llvm.is.fpclass.{_SUFFIX}({NUMBERS} {{}}, i32 {_FINITE})",
}
_OF_TRUTHS = {"and": f"and {TRUTHS} {{}}, {{}}", "or": f"or {TRUTHS} {{}}, {{}}"}
_CHOICE = f"select {TRUTHS} {{}}, {NUMBERS} {{}}, {NUMBERS} {{}}"
_ARE_TRUTHS = ("greater", "less", "equal", "isfinite", "and", "or")

DECLARATIONS = (
    f"declare {NUMBERS} @llvm.maximum.{_SUFFIX}({NUMBERS}, {NUMBERS})",
    f"declare {NUMBERS} @llvm.fabs.{_SUFFIX}({NUMBERS})",
    f"declare {TRUTHS} @llvm.is.fpclass.{_SUFFIX}({NUMBERS}, i32)",
    "declare double @llvm.maximum.f64(double, double)",
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i64 @llvm.smax.i64(i64, i64)",
)


@dataclass
class Lanes:
    """Lines that compute on eight tokens. %shares: the table of exponentials."""

    prefix: str
    lines: list[str] = field(default_factory=list)

    def put(self, text: str) -> str:
        """A new name for the result of this instruction."""
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def steps(self, program: Program, columns: Sequence[str]) -> dict[Step, str]:
        """The vector that each reduction reads. columns: the vectors of the program's columns."""
        values, truths, read = dict[int, str](enumerate(columns)), dict[int, str](), dict[Step, str]()

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
                read[step] = number(step.arguments[0])
            elif step.operation != "count":
                kept, other = (truths, values) if step.operation in _ARE_TRUTHS else (values, truths)
                kept[step.result] = made(step.operation, step.arguments)
                other.pop(step.result, None)
        return read

    def exp(self, x: str) -> str:
        """exp of eight numbers."""

        def of(operation: str, one: str, other: str | float) -> str:
            return self.put(f"{operation} {NUMBERS} {one}, {splat(other) if isinstance(other, float) else other}")

        whole = of("fadd", of("fmul", x, PER_UNIT), ROUNDER)
        bits, count = self.put(f"bitcast {NUMBERS} {whole} to {WORDS}"), of("fsub", whole, ROUNDER)
        rest = of("fsub", of("fsub", x, of("fmul", count, STEP)), of("fmul", count, STEP_REST))
        places = self.put(f"and {WORDS} {bits}, {_words(SHARES - 1)}")
        share = self.gathered(
            "%shares", "i64", [self.put(f"extractelement {WORDS} {places}, i32 {k}") for k in range(LANES)]
        )
        shifted = self.put(f"shl {WORDS} {bits}, {_words(52 - LOG_SHARES)}")
        scale = self.put(f"add {WORDS} {share}, {shifted}")
        power = self.put(f"bitcast {WORDS} {scale} to {NUMBERS}")
        sums = of("fadd", of("fmul", rest, CUBE), SQUARE)
        sums = of("fadd", of("fmul", of("fmul", sums, rest), rest), rest)
        found = of("fadd", of("fmul", sums, power), power)
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

    def repeated(self, column: str, kind: Kind, at: str) -> str:
        """The number of one token, eight times."""
        number = self.put(f"load {kind}, ptr {self.put(f'getelementptr {kind}, ptr {column}, i64 {at}')}")
        lone = self.put(f"insertelement <{LANES} x {kind}> poison, {kind} {number}, i32 0")
        vector = f"<{LANES} x {kind}>"
        return self._wide(
            self.put(f"shufflevector {vector} {lone}, {vector} poison, <{LANES} x i32> zeroinitializer"), kind
        )

    def _wide(self, vector: str, kind: str) -> str:
        return self.put(f"fpext <{LANES} x float> {vector} to {NUMBERS}") if kind == "float" else vector


def splat(number: float) -> str:
    """Eight times this number, as LLVM writes it."""
    return f"<{', '.join([f'double {single(number)}'] * LANES)}>"


def single(number: float) -> str:
    """This number, as LLVM writes it."""
    return f"0x{struct.pack('>d', number).hex().upper()}"


def _words(number: int) -> str:
    return f"<{', '.join([f'i64 {number}'] * LANES)}>"
