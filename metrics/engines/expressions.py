"""The formulas of statistics as expressions: each formula is called once, on symbols in place of arrays.

Equal expressions are one node, so that what formulas share is computed once. Truth values are the numbers 0 and 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Node = tuple[Any, ...]
"""(operation, numbers of its arguments), ("column", name) or ("constant", value)."""
_TRUTHS = frozenset({"isfinite", "less", "greater", "equal", "and", "or"})
"""Operations whose result is 0 or 1."""
_UNCHANGED = {"multiply": 1.0, "add": 0.0, "and": 1.0, "or": 0.0}
"""The value that, as the first argument, leaves the second as it is."""
_OF_CONSTANTS: dict[str, Callable[[Any, Any], float]] = {
    "multiply": operator.mul, "add": operator.add, "subtract": operator.sub, "divide": operator.truediv,
    "greater": operator.gt, "less": operator.lt, "equal": operator.eq, "and": min, "or": max, "maximum": max,
}  # fmt: skip


@dataclass
class Graph:
    """Nodes, each after its arguments. It is also the namespace `xp` that formulas receive."""

    finite: frozenset[str] = frozenset()
    """The columns that hold finite numbers only."""
    nodes: list[Node] = field(default_factory=list)
    _known: dict[Node, int] = field(default_factory=dict)
    """Node -> its number: an equal node is not added again."""

    def column(self, name: str) -> Symbol:
        """The symbol of an input column."""
        return self.node("column", name)

    def constant(self, value: float) -> Symbol:
        """The symbol of a number."""
        return self.node("constant", float(value))

    def isfinite(self, value: Symbol) -> Symbol:
        """1 for a column that is known to be finite."""
        kind, *arguments = self.nodes[value.number]
        known = kind == "column" and arguments[0] in self.finite
        return self.constant(1.0) if known else self.node("isfinite", value.number)

    def abs(self, value: Symbol) -> Symbol:
        """The size of a number."""
        return self.node("abs", value.number)

    def exp(self, value: Symbol) -> Symbol:
        """exp(2 y) is the square of exp(y), and exp of a choice is a choice: so formulas share their exponentials."""
        kind, *arguments = self.nodes[value.number]
        parts = [Symbol(self, number) for number in arguments if kind not in ("column", "constant")]
        if kind == "where" and parts[2].constant in (0.0, -math.inf):
            return self.where(parts[0], self.exp(parts[1]), math.exp(parts[2].constant or 0.0))
        if kind == "multiply" and parts[0].constant == 2.0:
            root = self.exp(parts[1])
            return root * root
        return self.node("exp", value.number)

    def where(self, chosen: Symbol, one: Symbol | float, other: Symbol | float) -> Symbol:
        """`one` where chosen, else `other`."""
        first, second = self.symbol(one), self.symbol(other)
        if chosen.constant is not None:
            return first if chosen.constant else second
        return (
            first if first.number == second.number else self.node("where", chosen.number, first.number, second.number)
        )

    def binary(self, name: str, one: Symbol | float, other: Symbol | float) -> Symbol:
        """An operation on two values; one of the two if the other changes nothing."""
        first, second = self.symbol(one), self.symbol(other)
        if first.constant is not None and second.constant is not None:
            return self.constant(float(_OF_CONSTANTS[name](first.constant, second.constant)))
        if name in ("multiply", "add", "and", "or") and second.constant is not None:
            first, second = second, first
        if name in _UNCHANGED and first.constant == _UNCHANGED[name]:
            return second
        if (name, first.constant) in (("and", 0.0), ("or", 1.0)):
            return first
        if name == "greater" and first.is_truth and second.constant == 0.0:
            return first
        if name == "and" and first.number == second.number:
            return first
        return self.node(name, first.number, second.number)

    def symbol(self, value: Symbol | float) -> Symbol:
        """The value as a symbol."""
        return value if isinstance(value, Symbol) else self.constant(value)

    def node(self, *node: Any) -> Symbol:
        """The symbol of this node, which is added if it is new."""
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return Symbol(self, self._known[node])


@dataclass(frozen=True, eq=False)
class Symbol:
    """The result of a node, with the operators that formulas use."""

    graph: Graph
    number: int
    """The number of the node."""

    @property
    def constant(self) -> float | None:
        """Its value if it is a constant."""
        kind, *arguments = self.graph.nodes[self.number]
        return arguments[0] if kind == "constant" else None

    @property
    def is_truth(self) -> bool:
        """True if it is 0 or 1."""
        return self.graph.nodes[self.number][0] in _TRUTHS or self.constant in (0.0, 1.0)

    def __add__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("add", self, other)

    def __sub__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("subtract", self, other)

    def __mul__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("multiply", self, other)

    def __truediv__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("divide", self, other)

    def __and__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("and", self, other)

    def __or__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("or", self, other)

    def __gt__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("greater", self, other)

    def __lt__(self, other: Symbol | float) -> Symbol:
        return self.graph.binary("less", self, other)

    def __eq__(self, other: object) -> Any:
        return self.graph.binary("equal", self, other)  # type: ignore[arg-type]

    def __neg__(self) -> Symbol:
        return self.graph.binary("multiply", -1.0, self)

    def __rsub__(self, other: float) -> Symbol:
        return self.graph.binary("subtract", other, self)

    __radd__, __rmul__ = __add__, __mul__
    __hash__ = object.__hash__
