"""Programs: the formulas of a gap's statistics in steps that an engine carries out on one chunk of tokens after another.

A step is an operation on registers. A register holds one number per token of the chunk; it is used again once nothing needs
its content. Whatever formulas share is computed once, and a sum that several statistics have is added up once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from ratioscope.record import kin

from ..columns import SHIFTS, ShiftedPair, token_columns
from ..metric import SAMPLED, Combine, Statistic
from .expressions import Graph, Symbol
from .level_statistics import statistics_by_level

PER_TOKEN = ("earlier", "later", "entropy", "advantage")
"""The input columns with one number per token; the others are pair -2, pair -1, ...: the earlier logprob of another token."""

BOUND = 300.0
"""Up to this size of logprobs, exp of the difference of two of them is a number that has all its digits."""

APART: tuple[str, ...] = ("earlier", "later", "earlier behind", "later behind")
"""The columns of two tokens of a sequence: the first one, and the one behind it."""

TIMES = ("times", "log times")
"""The columns of weighted sequences."""


@dataclass(frozen=True)
class Step:
    """An operation on registers."""

    operation: str
    result: int
    """The register of the result; for a reduction the row of the sums."""
    arguments: tuple[int | float, ...]
    """Registers, or numbers (float). `logsumexp` reads exponentials and their logarithms, `count` only a number."""


@dataclass(frozen=True, eq=False)
class Program:
    """The steps that give the statistics of cells. There is one of a kind, so that it is found by identity."""

    columns: tuple[str, ...]
    """The input columns; they fill the first registers, and stay there."""
    steps: tuple[Step, ...]
    registers: int
    """Number of registers."""
    combines: tuple[Combine, ...]
    """How each row of the sums is combined."""
    rows: tuple[int, ...]
    """The row of the sums that each statistic has."""
    bounded: bool
    """True if its columns hold no number beyond BOUND: so no exponential overflows, and no maximum reads NaN."""


@cache
def token_program(gap: str, *, whole: bool, entropy: bool, sound: bool, advantage: bool = False) -> Program:
    """The program of a gap's token statistics.

    whole: of those that relate tokens to their neighbours, else of all others. entropy, advantage: it is on record. sound: the
    columns of PER_TOKEN hold no number beyond BOUND, and no NaN.
    """
    levels = statistics_by_level(gap)
    order = levels.whole if whole else levels.sliced
    shifts = SHIFTS if whole and kin(gap) in SAMPLED else ()
    graph = Graph(frozenset(PER_TOKEN if sound else ()))
    recorded = [name for name, known in (("entropy", entropy), ("advantage", advantage)) if known]
    names = (*PER_TOKEN[:2], *recorded, *(f"pair {shift}" for shift in shifts))
    columns = token_columns(
        graph.column("earlier"),
        graph.column("later"),
        graph.constant(1.0),
        graph,
        entropy=graph.column("entropy") if entropy else None,
        advantage=graph.column("advantage") if advantage else None,
        pairs={shift: graph.column(f"pair {shift}") for shift in shifts},
    )
    values = [graph.symbol(s.formula(columns, graph)) for s in order]
    return _program(graph, names, values, [s.combine for s in order], bounded=sound)


@cache
def neighbour_programs(gap: str) -> Mapping[int, tuple[Program, tuple[int, ...]]]:
    """distance -> the program of the statistics that relate two tokens so far apart, and their places in `levels.whole`.

    For tokens that are in one sequence and hold finite numbers only: such programs need no choice between a number and 0.
    """
    levels, found = statistics_by_level(gap), dict[int, tuple[Program, tuple[int, ...]]]()
    for distance in sorted({*map(abs, SHIFTS)}) if levels.whole and kin(gap) in SAMPLED else ():
        graph = Graph(frozenset(APART))
        one, earlier, later, earlier_behind, later_behind = graph.constant(1.0), *map(graph.column, APART)
        pairs = {distance: ShiftedPair(one, earlier, later_behind), -distance: ShiftedPair(one, earlier_behind, later)}
        places, values = list[int](), list[Symbol]()
        for place, statistic in enumerate(levels.whole):
            with suppress(KeyError):  # it is about another distance
                values.append(graph.symbol(statistic.formula(_Neighbour(pairs), graph)))
                places.append(place)
        combines: list[Combine] = [levels.whole[place].combine for place in places]
        found[distance] = _program(graph, APART, values, combines), tuple(places)
    return found


@cache
def cluster_program(gap: str, *, weighted: bool) -> Program:
    """The program of the statistics of a slice by token, from those of each sequence's tokens in it.

    weighted: a sequence counts `times` times. The logarithm of this number is a column, too.
    """
    levels, graph = statistics_by_level(gap), Graph()
    names = [statistic.name for statistic in levels.sliced]
    named = {name: graph.column(name) for name in names}
    values = [named[name] for name in names] + [graph.symbol(s.formula(named, graph)) for s in levels.cluster]
    order = (*levels.sliced, *levels.cluster)
    if weighted:
        values = [_weighted(graph, value, s) for value, s in zip(values, order, strict=True)]
    return _program(graph, (*names, *(TIMES if weighted else ())), values, [s.combine for s in order])


def _weighted(graph: Graph, value: Symbol, statistic: Statistic) -> Symbol:
    times, log_times = map(graph.column, TIMES)
    if statistic.combine == "sum":
        return value * (times * times if statistic.level == "cluster" else times)
    return value + log_times if statistic.combine == "logsumexp" else value


@dataclass(frozen=True)
class _Neighbour:
    """The one column that formulas of neighbours read."""

    pairs: Mapping[int, ShiftedPair]


def _program(
    graph: Graph,
    columns: Sequence[str],
    values: Sequence[Symbol],
    combines: Sequence[Combine],
    *,
    bounded: bool = False,
) -> Program:
    """The program that combines these values over each cell."""
    wanted: list[_Sums] = [
        (combine, (graph.exp(value).number, value.number) if combine == "logsumexp" else (value.number,))
        for value, combine in zip(values, combines, strict=True)
    ]
    rows = {sums: row for row, sums in enumerate(dict.fromkeys(wanted))}
    constants = {n: float(node[1]) for n, node in enumerate(graph.nodes) if node[0] == "constant"}
    order = list(_order(graph, rows, constants))
    last = {number: place for place, (_, arguments) in enumerate(order) for number in arguments}
    register = {graph.column(name).number: place for place, name in enumerate(columns)}
    kept, free, count, steps = set(register), list[int](), len(register), list[Step]()
    for place, (target, arguments) in enumerate(order):
        read = tuple(constants[n] if n in constants else register[n] for n in arguments)
        if isinstance(target, tuple):
            is_count = target[0] == "sum" and arguments[0] in constants
            steps.append(Step("count" if is_count else target[0], rows[target], read))
        else:
            if not free:
                free.append(count)
                count += 1
            register[target] = free.pop()
            steps.append(Step(graph.nodes[target][0], register[target], read))
        # Only now: a result never overwrites what its own step reads, so that compiled loops need no order.
        free += {register[n] for n in arguments if last[n] == place and n not in kept and n not in constants}
    own = tuple(rows[s] for s in wanted)
    return Program(tuple(columns), tuple(steps), count, tuple(s[0] for s in rows), own, bounded)


_Sums = tuple[Combine, tuple[int, ...]]
"""How a row of the sums is combined, and the nodes it is combined of."""


def _order(
    graph: Graph, rows: Iterable[_Sums], constants: Collection[int]
) -> Iterator[tuple[int | _Sums, tuple[int, ...]]]:
    """(what is computed, the nodes it reads): each node before what reads it, and each sum as soon as its nodes are known."""
    done = set[int](constants)

    def needed(number: int) -> Iterator[tuple[int | _Sums, tuple[int, ...]]]:
        kind, *arguments = graph.nodes[number]
        if number in done or kind == "column":
            return
        done.add(number)
        for argument in arguments:
            yield from needed(argument)
        yield number, tuple(arguments)

    for sums in rows:
        for number in sums[1]:
            yield from needed(number)
        yield sums, sums[1]
