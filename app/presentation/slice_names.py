"""Names and explanations of the slices of a run, and how to record the columns that a slice needs."""

from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.rows.part import Only, Part
from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.metrics.analysis.slice_parts import bucket_label
from ratioscope.metrics.engines.slices import WRITTEN


@dataclass(frozen=True)
class SliceWords:
    """The words for one slice."""

    name: str
    """Name of the slice in Run.metrics."""
    title: str
    needs: tuple[str, ...]
    """Columns of the Record that it is made from."""
    record: str
    """Advice on recording these columns."""
    about: str = ""
    """The help of the slice."""

    @property
    def written(self) -> bool:
        """True if its statistics are kept with every step, so that no token row needs to be read."""
        return self.name in WRITTEN


SLICES = (
    SliceWords("position", "position in the response", (), "", "prompt excluded"),
    SliceWords("probability", "probability under the earlier policy", (), ""),
    SliceWords("replica", "engine replica", ("replica",), "pass replica= to Collector.log"),
    SliceWords("turn", "turn", ("turn",), "pass turns= to Collector.log"),
    SliceWords(
        "lag", "version lag", ("trainer_version", "rollout_version_min"),
        "pass trainer_version= and rollout_versions= to Collector.log",
        "trainer version − rollout version",
    ),
    *(
        SliceWords(name, title, ON_DEMAND[name].columns, ON_DEMAND[name].absent, about)
        for name, title, about in (
            ("token_class", "token class", ""),
            ("token_id", "token", "ordered by share of the gap"),
            ("rank", "trainer rank", "the rank that wrote the row"),
            ("group_id", "prompt group", ""),
            ("length_decile", "response length", "deciles within a step, from 1 (shortest) to 10 (longest)"),
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


def only_value_words(words: SliceWords, value: str) -> str:
    """The sentence on a slice of a single value, which needs no chart. value: its label, escaped."""
    return f"By {words.title}: nothing to compare, every token has {value}."


def term_words(term: Only) -> str:
    """The term as a reader should take it: which slice, and the whole of the bucket that the key begins.

    >>> term_words(Only("position", "2")), term_words(Only("replica", "vllm-3"))
    ('position in the response [2, 4)', 'engine replica vllm-3')
    """
    title = BY_NAME[term.slice].title if term.slice in BY_NAME else term.slice
    return f"{title} {bucket_label(term.slice, term.key)}"


def part_words(part: Part) -> str:
    """The part of the tokens in words.

    >>> part_words(Part(((Only("lag", "6"), Only("lag", "7")), (Only("replica", "a"),))))
    '(version lag 6 or version lag 7) and engine replica a'
    """
    groups = [" or ".join(map(term_words, group)) for group in part.groups]
    several = [len(part.groups) > 1 < len(group) for group in part.groups]
    return " and ".join(f"({words})" if more else words for words, more in zip(groups, several, strict=True))


def key_order(keys: pl.Series) -> pl.Series:
    """Values to sort keys of a slice by: numbers if every key is a number, else the texts.

    >>> key_order(pl.Series(["10", "2"])).to_list(), key_order(pl.Series(["10", "2", "vllm-3"])).to_list()
    ([10.0, 2.0], ['10', '2', 'vllm-3'])
    """
    numbers = keys.cast(pl.Float64, strict=False)
    return keys if numbers.null_count() > keys.null_count() else numbers
