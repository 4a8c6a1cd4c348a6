"""Experiments: what to do next so that fewer causes of a gap stay open, cheapest for what they settle first."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

from .tables import table

LIKELY = 4.0
"""A cause of the first set counts like so many that the record cannot tell. A convention."""
CONFIRMING = 2.0
"""The cost of the check that confirms one cause. A convention."""
UNEXPLAINED = "unexplained"
"""Stands for a gap without a likely cause among the codes that experiments settle."""


@dataclass(frozen=True)
class Experiment:
    """One row of experiments.toml, whose head explains the fields."""

    code: str
    """Its name in JSON."""
    do: str
    """The experiment in one sentence."""
    cost: float
    """Relative effort of the reader."""
    settles: tuple[str, ...]
    """Codes of the causes that it tells apart."""
    needs: tuple[str, ...] = ()
    """Facts on record without which it cannot be made."""
    done: tuple[str, ...] = ()
    """Facts on record that show it was made."""


@cache
def experiments() -> tuple[Experiment, ...]:
    """Every row of the table."""
    return tuple(
        Experiment(row["code"], row["do"], row["cost"], *(tuple(row[name]) for name in ("settles", "needs", "done")))
        for row in table("experiments")["experiment"]
    )


def next_experiment(
    first: Sequence[str], others: Collection[str], on_record: Collection[str], confirm: str
) -> Experiment | None:
    """The experiment that settles most for its cost, with the codes that it settles here; None if no cause is open.

    first: codes of the causes that may explain the gap, or UNEXPLAINED. others: codes that the record cannot tell. on_record:
    facts. confirm: the check that confirms the first cause; it is told if nothing settles more.
    """
    if not first:
        return None
    own = (*experiments(), *([Experiment("confirm", confirm, CONFIRMING, (first[0],))] if confirm else ()))
    possible = (e for e in own if set(e.needs) <= set(on_record) and not set(e.done) & set(on_record))
    useful = [each for each in possible if set(each.settles) & set(first)]
    best = max(useful, key=lambda each: _worth(each, first, others), default=None)
    codes = dict.fromkeys((*first, *others))
    return best and replace(best, settles=tuple(code for code in best.settles if code in codes))


def _worth(each: Experiment, first: Sequence[str], others: Collection[str]) -> float:
    return sum(LIKELY if code in first else float(code in others) for code in each.settles) / each.cost
