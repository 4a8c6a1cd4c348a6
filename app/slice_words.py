"""The slices of a run in a reader's words: what each is, whether this run has it, and how to record what it lacks."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import bucket_label
from ratioscope.metrics.engines.slices import WRITTEN

from .digits import count
from .escape import visible
from .scope import Only
from .view import View


@dataclass(frozen=True)
class SliceWords:
    """name: as Run.metrics takes it. one: what a bucket of it is. needs: columns of the Record it is made of."""

    name: str
    title: str
    needs: tuple[str, ...]
    record: str
    about: str = ""

    @property
    def written(self) -> bool:
        """Whether its statistics are kept with every step, so that no token row needs to be read."""
        return self.name in WRITTEN


SLICES = (
    SliceWords("position", "position in the response", (), "", "prompt excluded"),
    SliceWords("probability", "probability under the earlier policy", (), ""),
    SliceWords("replica", "engine replica", ("replica",), "log replica"),
    SliceWords("turn", "turn", ("turn",), "log turns"),
    SliceWords(
        "lag", "version lag", ("trainer_version", "rollout_version_min"), "log trainer_version and rollout_versions",
        "trainer version − rollout version",
    ),
    *(
        SliceWords(name, title, ON_DEMAND[name].columns, ON_DEMAND[name].absent, about)
        for name, title, about in (
            ("token_class", "token class", ""),
            ("token_id", "token", "by their part of the gap"),
            ("rank", "trainer rank", "the rank that wrote the row"),
            ("group_id", "prompt group", ""),
            ("length_decile", "response length", "deciles of its step, 1 shortest to 10 longest"),
            ("finish_reason", "finish reason", ""),
            ("reward_sign", "sign of the reward", ""),
            ("advantage_sign", "sign of the advantage", ""),
            ("minibatch", "minibatch", "the update within the step"),
        )
    ),
)  # fmt: skip
BY_NAME = {words.name: words for words in SLICES}
UNFILTERED = ("token_id",)
"""Slices that pages cannot be filtered by: a row per step and key would be too much to keep."""


MOST_KEYS = 20
"""Keys that a reader is told of."""


def part_words(part: Only) -> str:
    """The part of the tokens as a reader should take it: which slice, and the whole of the bucket that the key begins.

    >>> part_words(Only("position", "2")), part_words(Only("replica", "vllm-3"))
    ('position in the response [2, 4)', 'engine replica vllm-3')
    """
    title = BY_NAME[part.slice].title if part.slice in BY_NAME else part.slice
    return f"{title} {bucket_label(part.slice, part.key)}"


def wrong_part(view: View, typed: str) -> str:
    """Why no token of the run can be chosen by what was typed, and which slices or keys there are; empty where some can."""
    name, _, key = typed.partition("=")
    absent = absences(view)
    known = [words.name for words in SLICES if words.name not in {*absent, *UNFILTERED}]
    if name in absent:
        return f"{name} is not available, {absent[name]}"
    if name not in known:
        found = "" if name == "?" else f"{visible(name, 40)} is no slice of this run; "
        return f"{found}wanted slice=key, with a slice of {', '.join(known)}"
    keys = view.of(written_keys, name)
    if key in keys or (key and not keys):
        return ""
    there = f": {', '.join(keys[:MOST_KEYS])}{' …' if len(keys) > MOST_KEYS else ''}" if keys else ""
    return (
        f"{name} has no key {visible(key, 40)}; it has {count(len(keys), 'key')}{there}"
        if key
        else f"wanted {name}=key{there}"
    )


def written_keys(run: Run, name: str) -> tuple[str, ...]:
    """The keys of a slice; none where token rows would have to be read for them."""
    keys = run.metrics((name,))[name].cast(pl.String) if name in WRITTEN else pl.Series(dtype=pl.String)
    return tuple(sorted(keys, key=lambda key: (len(key), key) if key.isdecimal() else (math.inf, key)))


def absences(view: View) -> dict[str, str]:
    """slice -> "because ..." for those that this run cannot be cut by."""
    columns, has_rows = view.of(recorded)
    return {words.name: reason for words in SLICES if (reason := _absence(view, words, columns, has_rows=has_rows))}


def _absence(view: View, words: SliceWords, columns: Collection[str], *, has_rows: bool) -> str:
    missing = [name for name in words.needs if name not in columns]
    if words.written:
        absent = bool(words.needs) and words.name not in view.of(written_slices)
        return f"because no row has {' and '.join(words.needs)}; {words.record}" if absent else ""
    if not has_rows:
        return "because no token rows were kept, and it is made of them; give the collector a larger budget"
    return f"because no row has {' and '.join(missing)}; {words.record}" if missing else ""


def recorded(run: Run) -> tuple[frozenset[str], bool]:
    columns = run.columns
    return columns, bool(columns)


def written_slices(run: Run) -> frozenset[str]:
    """Written slices with a bucket."""
    wanted = (words.name for words in SLICES if words.written)
    return frozenset(name for name in wanted if len(run.metrics((name,))))  # which the bars read anyhow
