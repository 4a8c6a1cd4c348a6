"""Facts of a run that several texts tell, and how they tell them: a fact must have one value wherever it is told."""

import re
from collections.abc import Mapping

FACTS = {
    "share of the first cause": r"explains (\d+)%(?: ± [\d.]+%)? of the gap",
    "begin": r"since step (\d+)",
    "peak": r"at step (\d+); \d+ of \d+ steps are graded|peak at step (\d+)|worst\W+act at step (\d+)",
    "size at the peak": r"KL K3 is ([\d.]+) nats/token[^;|\n]* at step \d+; \d+ of|"
    r"\A(?s:.*?)kl_k3\W+[\d.]+ ± [\d.]+, [^|]*\|[^|]*\| ([\d.]+) ± ",
    "steps graded act": r"(\d+) of \d+ steps are graded act|\b(\d+) act\n",
    "gap that was diagnosed": r"the gap is ([\d.]+) nats/token as recorded|; K3 ([\d.]+) nats/token at the \d+ steps",
    "rest of the gap": r"as rounding is: K3 ([\d.]+) nats/token",
    "floor": r"floor of the run's first steps \(([\d.]+)\)|run's own floor: ([\d.]+\d)",
}
"""Fact -> its patterns; the group that matches is the value."""

OF_PAGES = {
    "alerts": r"(\d+) alerts?, \d+ (?:open|at)",
    "open alerts": r"\d+ alerts?, (\d+) open|(\d+) still open",
    "sequences": r"offered ([\d,]+)|sequences logged +([\d,]+)",
    "tokens": r"N = ([\d,]+) tokens with a|([\d,]+) tokens in the chosen|\ntokens +([\d,]+) of|Read: ([\d,]+) tokens",
    "ESS of the weights": r"ESS before (≤ [\d.]+)|ESS before → after (≤ [\d.]+)",
    "share above the cap": r"clipped share ([\d.]+)%|clipped ([\d.]+)%",
    "mass above the cap": r"mass removed ([\d.]+)%",
    "size of the whole run": r"have the same KL: ([\d.]+ ± [\d.]+)|\A(?s:.*?)kl_k3\W+([\d.]+ ± [\d.]+)(?:,| \|)",
    "newest size": r"KL nats/token ([\d.]+ ± [\d.]+)|newest KL ([\d.]+ ± [\d.]+)",
    "best correction": r"(\w+ \w+ at [\d.]+) (?:helps|bridges the gap)|\((\w+ \w+ at [\d.]+)\) bridges the gap",
}
"""Facts that live pages tell, and files and terminal too."""

_SIZE = r"([\d.]+ ± [\d.]+)"
_ESS = r"(≤ [\d.]+|[\d.]+ ± [^,|]+?)"
OF_SIZE = {
    "K3 now": rf"K3 now {_SIZE} nats/token|KL nats/token {_SIZE} ± 1 se|newest KL {_SIZE};",
    "K3 at worst": rf"· worst {_SIZE} \(step",
    "K3 over all steps": rf"· whole run {_SIZE} \(\d+ steps|K3 of all tokens {_SIZE}|have the same KL: {_SIZE}|"
    rf"\bKL,{_SIZE},|whole KL {_SIZE}",
    "K3 at the calm level": r"its calm level ([^(]+ ± [^(]+) \(\d+ steps",
    "now in times of the calm level": r"([\d.]+) times its calm level",
    "ESS over all steps": rf"\A(?s:.*?)\bess_token \| {_ESS} \||Effective sample size, tokens\"?,{_ESS},",
    "ESS over all steps in %": r"\A(?s:.*?)ESS before (≤ [\d.]+%|[\d.]+%) ESS after",
    "share that lag explains": r"Old weights explain ([\d.]+ ± [\d.]+)%|explained by lag ([\d.]+ ± [\d.]+)%",
    "tokens that the own correction clips": r"clips ([\d.]+)% of the tokens at|clip the weights of ([\d.]+)% of the tokens",
}
"""The size of the gap with its steps, and shares, as every face tells them."""


def values_of(pattern: str, told: Mapping[str, str]) -> dict[str, set[str]]:
    """Name of a text -> the values that it has for the fact, in small letters; without texts that do not tell it."""
    values = {
        name: {one.lower() for each in re.finditer(pattern, text) for one in each.groups() if one}
        for name, text in told.items()
    }
    return {name: value for name, value in values.items() if value}
