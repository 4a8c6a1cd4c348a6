"""The meaning of a name: a metric or family of ours, a signal of an alert, a term, or a number that a trainer logs."""

import re
from dataclasses import replace
from functools import cache

from ratioscope.errors import ConfigError

from .analysis.support_metrics import SUPPORT_METRICS, SupportMetric
from .card import cards, family, lines
from .definitions.registry import BY_NAME
from .diagnosis.catalogue import CAUSE
from .diagnosis.cause import Cause
from .grading.signals import SIGNALS, Signal
from .known.tables import table
from .logged_names import ANY, LoggedName, asked_of, facts_of, named_by_trainers, nearest_names

Entry = tuple[str, list[tuple[str, str]]]
"""(name, its card as (heading, text))."""


def explain(name: str) -> str:
    """The cards of a name as text: of a metric, a signal, a cause, a term, or a trainer's number such as "kl@trl".

    ConfigError for a name that is not known, with those that are close.

    >>> print(explain("k1"))
    K1
      term: The estimator mean(-x) of KL(earlier || later): without bias, and negative on some samples. It is kl_direct.
    """
    return "\n\n".join(
        "\n".join((own, *(f"  {heading}: {text}" for heading, text in card))) for own, card in entries(name)
    )


def entries(asked: str) -> list[Entry]:
    """The cards of every thing that has the name; NAME@TRAINER asks for a trainer's number alone. ConfigError for none."""
    name, trainer = asked_of(asked.removeprefix("ratioscope/"))
    theirs = named_by_trainers(name, trainer)
    if trainer is not None:
        if not theirs:
            close, elsewhere = ", ".join(nearest_names(name, trainer)), named_by_trainers(name) or family(name)
            hints = [f"close are {close}"] * bool(close) + [f"try it without @{trainer}"] * bool(elsewhere)
            raise ConfigError("; ".join([f"not known: {trainer} has no number '{name}' on record", *hints]))
        return _logged([(own, _of(row, trainer)) for own, row in theirs])
    if name not in BY_NAME and (signals := [each for each in SIGNALS if each.name == name]):
        return [(name, _signal(signals[0]))]
    if name in CAUSE:
        return [(name, _cause(CAUSE[name]))]
    if supported := [each for each in SUPPORT_METRICS if each.name == name.rpartition("/")[2]]:
        return [(name, _supported(supported[0]))]
    found = _terms().get(_plain(name))
    term, ours = [] if found is None else [(found[0], [("term", found[1])])], family(name)
    if theirs and not ours and not term:
        return _logged(theirs)
    if not ours and term:
        return term
    own = [(card.metric.name, [(heading, text) for heading, text in lines(card) if text]) for card in cards(name)]
    exact = [] if name in BY_NAME else [pair for pair in theirs if pair[1].name == name and pair[1].trainer != ANY]
    return [*term, *own, *_logged(exact)]


def _cause(cause: Cause) -> list[tuple[str, str]]:
    others = "; ".join(f"{code}: {check}" for code, check in cause.mistaken_for.items())
    facts = (("cause", cause.title), ("meaning", cause.meaning), ("what to do", cause.remedy), ("check", cause.confirm))
    return [*facts, *([("told apart", others)] if others else [])]


def _supported(metric: SupportMetric) -> list[tuple[str, str]]:
    """The card of a number that needs several tokens per position."""
    needs = "topk_ids with the log-probs of both sides: docs/bias_and_noise.md has the symbols"
    facts = ("title", "meaning", "formula", "unit", "range", "estimator", "weighting", "source")
    return [*((fact, getattr(metric, fact)) for fact in facts), ("needs", needs)]


def _of(row: LoggedName, trainer: str) -> LoggedName:
    """The row; of a name that most trainers give to the same kind of number, with the trainer that was asked for."""
    unknown = f"{trainer}, which has no such name on record; by its words, as {ANY}"
    return replace(row, trainer=unknown) if row.trainer == ANY else row


def _logged(found: list[tuple[str, LoggedName]]) -> list[Entry]:
    """A card per number; trainers that give one name to the same kind of number share a card."""
    shared: dict[tuple[str, LoggedName], list[LoggedName]] = {}
    for name, row in found:
        key = row if row.near else replace(row, trainer="", source="", tokens="", name="")
        shared.setdefault((name, key), []).append(row)
    return [(name, _card(name, rows)) for (name, _), rows in shared.items()]


def _card(name: str, rows: list[LoggedName]) -> list[tuple[str, str]]:
    if len(rows) == 1:
        return facts_of(rows[0], name)
    shared = {**dict(facts_of(rows[0], name)), "trainer": ", ".join(row.trainer for row in rows)}
    return [fact for fact in shared.items() if fact[0] != "source"]


@cache
def _terms() -> dict[str, tuple[str, str]]:
    """Spelling -> (the term in full, what it is)."""
    rows = table("terms").items()
    return {_plain(each): (full, text) for key, (full, text, *other) in rows for each in (key, full, *other)}


def _plain(name: str) -> str:
    return re.sub("[ _-]+", " ", name).casefold().strip()


def _signal(signal: Signal) -> list[tuple[str, str]]:
    act = "" if signal.act is None else f", act from {signal.act:g} on"
    lasting = ", on two adjacent steps" if signal.lasting else ""
    return [
        ("signal", signal.title),
        ("meaning", signal.meaning),
        ("what to try", signal.remedy),
        ("rings", f"watch from {signal.watch:g} on{act}{lasting}"),
        ("gaps", ", ".join(signal.gaps)),
        ("metric", signal.reads),
        ("source", signal.source),
    ]
