"""Names of runs, machines and sequences where there is little room: cut so that what tells them apart stays.

The colour and mark of a run, out of eight, chosen by its name: a run looks the same on every page and every day.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from .escape import visible

ROOM = 34
SKIPPED = "\0"
_WORDS = re.compile(r"[^\W_]+|[\W_]+")
_SEVERAL = re.compile(f"{SKIPPED}+")

SLOTS = 8
SYMBOLS = ("circle", "pentagon", "hexagon", "hexagram", "cross", "asterisk-open", "star", "bowtie")
"""One per slot (Plotly's names), so that colour is not alone; none that stands for a kind of event (figures/marks.py)."""
MARKS = ("●", "⬟", "⬢", "✶", "✚", "✱", "★", "⋈")
"""The same in text."""


def shortened(name: str, room: int = ROOM) -> str:
    """The name with invisible characters shown, in at most so many characters; most of what is kept is its end.

    >>> shortened("qwen3-4b-grpo-bf16-seed3", 14), shortened("short")
    ('qwen…f16-seed3', 'short')
    """
    shown = visible(name)
    if len(shown) <= room:
        return shown
    first = (room - 1) // 3
    return f"{shown[:first]}…{shown[len(shown) - (room - 1 - first) :]}"


def typed_path(place: str) -> str:
    """The path of a run as its owner would type it here: below the working folder a short one. An address stays as it is."""
    here = Path.cwd()
    return str(Path(place).relative_to(here)) if Path(place).is_relative_to(here) else place


def told_apart(names: Sequence[str], room: int = ROOM) -> list[str]:
    """The names in at most so many characters each. Names that a cut in the middle makes equal keep the words that differ
    instead, each with the word before it; what even that leaves equal is numbered.

    >>> told_apart(["http://engine-a.cluster.local:8000", "http://engine-b.cluster.local:8000"], 20)
    ['…engine-a…', '…engine-b…']
    """
    whole = list(map(visible, names))
    cut = {name: shortened(name, room) for name in whole}
    if not _are_apart(cut):
        cut |= {name: shortened(words, room) for name, words in _differences([n for n in cut if len(n) > room]).items()}
    if not _are_apart(cut):
        shared = Counter(cut.values())
        cut |= {name: f"{cut[name][: room - 4]}…{n}" for n, name in enumerate(cut, 1) if shared[cut[name]] > 1}
    return [cut[name] for name in whole]


def _are_apart(cut: Mapping[str, str]) -> bool:
    return len(set(cut.values())) == len(cut)


def _differences(names: Sequence[str]) -> dict[str, str]:
    """name -> its words that are not the same in all names, each with the word before it, and … for the others."""
    words = [_WORDS.findall(name) for name in names]
    same = [len(set(place)) == 1 for place in zip(*words, strict=False)]
    tail = [len(set(place)) == 1 for place in zip(*map(reversed, words), strict=False)]
    aligned = len(set(map(len, words))) == 1
    first, last = (flags.index(False) if False in flags else len(flags) for flags in (same, tail))
    found = {}
    for name, own in zip(names, words, strict=True):
        differs = [not same[n] if aligned else first <= n < len(own) - last for n in range(len(own))]
        kept = [any(differs[n : n + 3]) for n in range(len(own))]
        found[name] = "".join(word if keep else SKIPPED for word, keep in zip(own, kept, strict=True))
        found[name] = _SEVERAL.sub("…", found[name])
    return found


def slots(names: Iterable[str]) -> dict[str, int]:
    """Name -> slot. Runs seen together have slots of their own, as far as there are any; their order does not matter.

    A run that finds its slot taken has the next free one: who was first is told by the names alone.
    """
    taken: dict[str, int] = {}
    ranked = sorted(set(names), key=lambda name: (_own(name), name))
    free = set(range(SLOTS))
    late = []
    for name in ranked:  # every run that can have its own slot has it, before any other is given away
        if _own(name) in free:
            free.discard(_own(name))
            taken[name] = _own(name)
        else:
            late.append(name)
    for name in late:
        after = sorted(free, key=lambda slot: (slot - _own(name)) % SLOTS)
        taken[name] = after[0] if after else _own(name)
        free.discard(taken[name])
    return taken


def _own(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass")) % SLOTS
