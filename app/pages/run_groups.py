"""Groups of repeated runs: their names differ only in a seed, or their settings share a value.

Settings are text by dotted key.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.ingest.analysis.run_settings import PARTS

from ..presentation.comparison_words import plain_numbers
from ..presentation.escape import visible

SEEDS = "seeds"
"""The way of grouping by names without their seeds."""
MOST_KEYS = 500
LONGEST = 60
_PARTS = re.compile(r"[-_./ ,]+")
_SEED = re.compile(r"(?:random)?(?:seed|rng|s)=?\d+", re.IGNORECASE)
_WORD = re.compile(r"(?:random)?(?:seed|rng)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,4}")


def seedless(name: str) -> str:
    """The name without its seed: a part such as seed3, s3, seed=3 or seed 3, at any place; else a short last number.

    >>> seedless("grpo-8b/seed3"), seedless("grpo-seed_3-8b"), seedless("grpo-8b-2"), seedless("grpo-8b"), seedless("seed1")
    ('grpo-8b', 'grpo-8b', 'grpo-8b', 'grpo-8b', '')
    """
    parts, gaps = _PARTS.split(name), _PARTS.findall(name)
    for at, part in enumerate(parts):
        if _SEED.fullmatch(part):
            return _without(parts, gaps, at, 1)
        if _WORD.fullmatch(part) and at + 1 < len(parts) and parts[at + 1].isdigit():
            return _without(parts, gaps, at, 2)
    return _without(parts, gaps, len(parts) - 1, 1) if len(parts) > 1 and _NUMBER.fullmatch(parts[-1]) else name


def by_seed(names: Sequence[str]) -> dict[str, str]:
    """Name -> group. Runs that differ only in the seed share a group; any other run is alone."""
    stems = {name: seedless(name) for name in names}
    sizes = Counter(stems.values())
    return {name: (stem or "all seeds") if sizes[stem] > 1 else name for name, stem in stems.items()}


def by_key(settings: Mapping[str, Mapping[str, str]], key: str) -> dict[str, str]:
    """Name -> group `key=value`; a run whose settings lack the key is alone."""
    return {name: f"{key}={own[key]}" if key in own else name for name, own in settings.items()}


def sharing_keys(of_runs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Keys with different values of which one is shared by several runs: the keys that are useful for groups, by name."""
    settings, keys = [*of_runs.values()], []
    for key in sorted({key for own in settings for key in own}):
        counted = Counter(own[key] for own in settings if key in own)
        if len(counted) > 1 and counted.most_common(1)[0][1] > 1:
            keys.append(key)
    return keys


def differing(of_runs: Mapping[str, Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """(the keys that are not the same in all runs, the others), each by name."""
    settings = [*of_runs.values()]
    keys: tuple[list[str], list[str]] = ([], [])
    for key in sorted({key for own in settings for key in own}):
        keys[len({own.get(key) for own in settings}) < 2].append(key)
    return keys


def settings_of(info: Mapping[str, Any]) -> dict[str, str]:
    """The settings in run.json as its first start had them, such as config.lr and versions.vllm; numbers in their one form."""
    known = flat({part: info.get(part) or {} for part in PARTS})
    return {visible(key): visible(value) for key, value in plain_numbers(known).items()}


def flat(config: Any) -> dict[str, str]:
    """Settings by dotted key, as text; at most some hundreds. Anything but a mapping, as a stranger may write it, has none."""
    settings: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting and len(settings) < MOST_KEYS:
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [
                (f"{key}.{name}" if key else str(name), inner)
                for name, inner in reversed(list(value.items())[:MOST_KEYS])
            ]
        elif key:
            settings[key[:LONGEST]] = str(value)[:LONGEST]
    return settings


def _without(parts: Sequence[str], gaps: Sequence[str], first: int, number: int) -> str:
    """The text without `number` parts from `first` on, and without the separator before them (after them at the start)."""
    rest = [part for at, part in enumerate(parts) if not first <= at < first + number]
    between = list(gaps)
    del between[max(0, first - 1) : max(0, first - 1) + number]
    return "".join(part + gap for part, gap in zip(rest, [*between, ""], strict=False)) if rest else ""
