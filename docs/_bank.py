"""The parts of docs/diagnosis.md on all families of the bank, from the results of `make bank`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bank.accepted import HEALTHY  # pyright: ignore[reportMissingImports]  # the generator has put tests/ on the path
from bank.score import LEVELS, Score, interval, summary  # pyright: ignore[reportMissingImports]

STRENGTHS = ("weak", "middle", "strong")
FAMILIES = {
    "agentic": "conversations of a small numpy network, with texts of tools outside the mask",
    "moe": "a mixture of experts, trained here, in torch",
    "odd": "healthy runs of unusual shapes, such as 1 to 3 tokens, one prompt, greedy, entropy collapse, 500 steps",
    "recurrent": "small numpy networks with a gated state, attention or experts, 3 to 24 steps, learning or not",
    "smollm2": "SmolLM2-135M-Instruct, a real model, see below",
    "tiny_llama": "tiny random transformers in torch",
}
"""Family -> who made its runs."""
AIMS = (
    ("the truth is in the first set of causes", "coverage", 0.95, True),
    ("mean size of that set", "set size", 1.5, False),
    ("sets of one cause", "sets of one", 0.75, True),
    ("right where the stated confidence is high", "high share", 0.98, True),
    ("right where it is medium", "medium share", 0.85, True),
    ("single faults that the record decides, given high", "decided high", 0.5, True),
    ("healthy runs with a cause or not green", "healthy share", 0.01, False),
)
"""(what, figure, aim, True if more is better)."""
FIRST = """
## The scoreboard

`make bank` diagnoses every run of these families and keeps the results in `tests/bank/results.json`; this page is made of that
file. The right causes of each fault follow from its mechanism. They were written down before any run was scored, but for
six labels that `tests/bank/accepted.py` names; these were revised after a first look at a quarter of one family.
The *first set* is the first cause with those that the diagnosis names beside it because the record does not tell them apart. An
answer is right if the truth is in it. *Decided* faults are single ones at middle or full strength whose record can be of no
other cause, by their mechanism.
"""
CROSSED = """
## Confidence away from home

Each row leaves one family out. The level of each ground and number of doubts is chosen from all other families, by the share of
right answers ((right + 1) / (runs + 2); from 98% high, from 85% medium, else low; low too if no other family has this ground),
and is tested on the family that was left out. Coverage, size of the set and what is wrong at high stand side by side. A share
below its aim is shown as it is.
"""
CONFUSION = """
## Every fault, over all families

*First*: the truth is named first. *In the set*: it is in the first set. *No cause*: the gap was called noise, or unexplained.
"""
LEAST = """
## The least strength that shows

The weakest strength at which every run of the family has the truth in its first set. Parameters of each strength are in the
makers (`tests/bank/recurrent.py` and beside it). `-`: not even the strongest; empty: the family has no such fault.
"""


MISSED = """
## Faults whose cause is not in the first set

The aim of 95% counts every fault, weak ones too. A gap below 0.005 nats/token lies within what healthy runs in 16 bits have: if
no cause is named there, the size of the gap cannot decide it, and a pattern would have to. A larger gap without a cause is a
fault that the diagnosis sees and cannot name.
"""
SMALL = 0.005
"""K3 in nats/token above which no healthy dense model in 16 bits was published."""


def page(scores: Sequence[Score]) -> Iterator[str]:
    """All sections, line by line."""
    yield answer(scores)
    for section in (scoreboard, crossed, confusion, missed, least, healthy):
        yield from section(scores)


def answer(scores: Sequence[Score]) -> str:
    """The figures of all families in one paragraph."""
    figures = _figures(scores)
    low, high = interval(int(figures["healthy not calm"]), int(figures["healthy"]))
    families = len({each.family for each in scores})
    return (
        f"Over {families} families of runs ({len(scores):,} runs), the truth is in the first set of causes in\n"
        f"{figures['coverage']:.0%} of {figures['faulty']:.0f} faulty runs; its mean size is {figures['set size']:.2f}. "
        f"High confidence is right in {_of(figures, 'high')},\nmedium in {_of(figures, 'medium')}, low in {_of(figures, 'low')}. "
        f"High and right are {figures['decided high']:.0%}\nof the single faults that the record decides. "
        f"{figures['healthy not calm']:.0f} of {figures['healthy']:.0f} healthy runs have a cause or are not green (95% interval "
        f"{low:.1%} to {high:.1%})."
    )


def _by_strength(scores: Sequence[Score]) -> Iterator[str]:
    """A row for each strength, and one for the decided faults."""
    yield "\n| faults | runs | in the first set | sets of one | mean set | no cause |\n| --- | --- | --- | --- | --- | --- |"
    parts = [(strength, [each for each in scores if each.strength == strength]) for strength in STRENGTHS]
    for words, own in [*parts, ("decided", [each for each in scores if each.decided])]:
        f = _figures(own)
        shares = f"{f['coverage']:.0%} | {f['sets of one']:.0%} | {f['set size']:.2f}"
        yield f"| {words} | {f['faulty']:.0f} | {shares} | {f['no cause']:.0f} |"


def scoreboard(scores: Sequence[Score]) -> Iterator[str]:
    """The aims, and a row for each family."""
    yield FIRST
    figures = _figures(scores)
    yield "| aim | wanted | found |\n| --- | --- | --- |"
    for what, name, aim, is_more in AIMS:
        found, unit = figures[name], "" if name == "set size" else "%"
        met = found >= aim if is_more else found <= aim
        sign, show = ("at least" if is_more else "at most"), (lambda x, u=unit: f"{x:.1%}" if u else f"{x:.2f}")
        yield (
            f"| {what} | {sign} {aim:.0%} | {show(found)}{'' if met else ', **missed**'} |"
            if unit
            else (f"| {what} | {sign} {aim} | {show(found)}{'' if met else ', **missed**'} |")
        )
    yield from _by_strength(scores)
    yield "\n| family | faulty | in the first set | first | mean set | high: right of | medium | low | no cause | not calm |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for family, own in _by_family(scores):
        f = _figures(own)
        levels = " | ".join(_of(f, level) for level in LEVELS)
        calm = f"{f['healthy not calm']:.0f} of {f['healthy']:.0f}" if f["healthy"] else "-"
        faulty = (
            f"{f['coverage']:.0%} | {f['first']:.0%} | {f['set size']:.2f} | {levels}"
            if f["faulty"]
            else "- | - | - | - | - | -"
        )
        yield f"| {family} | {f['faulty']:.0f} | {faulty} | {f['no cause']:.0f} | {calm} |"
    yield (
        "\n"
        + "; ".join(f"**{family}**: {FAMILIES.get(family, 'further runs')}" for family, _ in _by_family(scores))
        + "."
    )


def crossed(scores: Sequence[Score]) -> Iterator[str]:
    """The levels that each family left out gets by all others, beside the stated ones."""
    yield CROSSED
    yield (
        "| family left out | faulty runs | in the first set | mean set | high: right of | medium | low | decided, given high | "
        "stated: high right of | stated: decided, given high |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for family, own in _by_family(scores):
        named = [each for each in own if each.named and each.fault != HEALTHY]
        if not named:
            continue
        others = [each for each in scores if each.family != family and each.named]
        levels = {each.name: level_by(each, others) for each in named}
        f = _figures(own)
        parts = [[each for each in named if levels[each.name] == level] for level in LEVELS]
        decided = [each for each in own if each.decided]
        high = sum(each.is_covered and levels.get(each.name) == "high" for each in decided)
        yield (
            f"| {family} | {f['faulty']:.0f} | {f['coverage']:.0%} | {f['set size']:.2f} | "
            + " | ".join(f"{sum(e.is_covered for e in part)} of {len(part)}" for part in parts)
            + f" | {high / len(decided):.0%} | {_of(f, 'high')} | {f['decided high']:.0%} |"
        )
    yield "\n| ground | doubts | stated | named | right |\n| --- | --- | --- | --- | --- |"
    named = [each for each in scores if each.named]
    for cell in sorted({each.cell for each in named}):
        part = [each for each in named if each.cell == cell]
        stated = Counter(each.level for each in part).most_common(1)[0][0]
        yield f"| {cell[0]} | {cell[1]} | {stated} | {len(part)} | {sum(each.is_covered for each in part) / len(part):.0%} |"


def level_by(score: Score, others: Sequence[Score]) -> str:
    """The level of the cell of a score by what is right in others."""
    own = [each for each in others if each.cell == score.cell]
    share = (sum(each.is_covered for each in own) + 1) / (len(own) + 2) if own else 0.0
    return "high" if share >= 0.98 else "medium" if share >= 0.85 else "low"


def confusion(scores: Sequence[Score]) -> Iterator[str]:
    """A row for each fault."""
    yield CONFUSION
    yield "| fault | runs | first | in the set | no cause | named instead |\n| --- | --- | --- | --- | --- | --- |"
    faulty = [each for each in scores if each.fault != HEALTHY]
    for fault in sorted({each.fault for each in faulty}):
        own = [each for each in faulty if each.fault == fault]
        instead = Counter(f"{each.named[0][0]} {each.level}" for each in own if each.named and not each.is_covered)
        words = ", ".join(f"{name} {count}" for name, count in instead.most_common(6)) or "-"
        firsts, covered, none = (sum(get(each) for each in own) for get in (_is_first, _is_covered, _is_silent))
        yield f"| {fault} | {len(own)} | {firsts} | {covered} | {none} | {words} |"


def missed(scores: Sequence[Score]) -> Iterator[str]:
    """The faults that are not covered: by what is named instead, by strength, and which they are."""
    yield MISSED
    faulty = [each for each in scores if each.fault != HEALTHY]
    parts = {
        f"no cause, K3 below {SMALL:g}": lambda each: not each.named and each.kl_k3 < SMALL,
        "no cause, a larger gap": lambda each: not each.named and not each.kl_k3 < SMALL,
        "another cause": lambda each: bool(each.named),
    }
    yield f"| answer | runs | of all | {' | '.join(STRENGTHS)} | the record decides | faults |"
    yield "| --- | --- | --- |" + " --- |" * len(STRENGTHS) + " --- | --- |"
    for words, belongs in parts.items():
        own = [each for each in faulty if not each.is_covered and belongs(each)]
        counts = " | ".join(str(sum(each.strength == at for each in own)) for at in STRENGTHS)
        faults = ", ".join(f"{fault} {count}" for fault, count in Counter(each.fault for each in own).most_common())
        decided = sum(each.decided for each in own)
        yield f"| {words} | {len(own)} | {len(own) / len(faulty):.1%} | {counts} | {decided} | {faults or '-'} |"


def least(scores: Sequence[Score]) -> Iterator[str]:
    """A row for each fault, a column for each family."""
    yield LEAST
    faulty = [each for each in scores if each.fault != HEALTHY]
    families = sorted({each.family for each in faulty})
    yield f"| fault | {' | '.join(families)} |\n| --- |{' --- |' * len(families)}"
    for fault in sorted({each.fault for each in faulty}):
        cells = []
        for family in families:
            own = [each for each in faulty if each.fault == fault and each.family == family]
            shown = [
                at for at in STRENGTHS if (part := [e for e in own if e.strength == at]) and all(map(_is_covered, part))
            ]
            cells.append((shown or ["-"])[0] if own else "")
        yield f"| {fault} | {' | '.join(cells)} |"


def healthy(scores: Sequence[Score]) -> Iterator[str]:
    """The healthy runs that have a name or are not green."""
    own = [each for each in scores if each.fault == HEALTHY]
    bad = [each for each in own if not each.is_calm]
    yield f"\n## Healthy runs\n\n{len(own) - len(bad)} of {len(own)} healthy runs have no cause and are green. The others:\n"
    yield "| run | K3, nats/token | grade | named |\n| --- | --- | --- | --- |"
    for each in bad:
        named = ", ".join(f"{code} ({level})" for code, level, _ in each.named) or "-"
        yield f"| {each.name} | {each.kl_k3:.2g} | {each.severity} | {named} |"


def _figures(scores: Sequence[Score]) -> dict[str, float]:
    f = summary(scores)
    for level in LEVELS:
        f[f"{level} named"] = f[f"{level} right"] + f[f"{level} wrong"]
        f[f"{level} share"] = f[f"{level} right"] / max(f[f"{level} named"], 1)
    return f | {"healthy share": f["healthy not calm"] / max(f["healthy"], 1)}


def _of(figures: dict[str, float], level: str) -> str:
    return f"{figures[f'{level} right']:.0f} of {figures[f'{level} named']:.0f}"


def _by_family(scores: Sequence[Score]) -> Iterator[tuple[str, list[Score]]]:
    for family in sorted({each.family for each in scores}):
        yield family, [each for each in scores if each.family == family]


def _is_first(score: Score) -> bool:
    return score.is_first


def _is_covered(score: Score) -> bool:
    return score.is_covered


def _is_silent(score: Score) -> bool:
    return not score.named
