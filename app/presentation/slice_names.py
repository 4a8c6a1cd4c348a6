"""Names and explanations of the slices of a run, the columns that a slice needs, and the buckets that have most of the gap."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.rows.part import Only, Part
from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.metrics.analysis.concentration import Concentration
from ratioscope.metrics.analysis.slice_parts import NUMERIC, bucket_label
from ratioscope.metrics.engines.slices import WRITTEN

from .digits import first_few
from .sentence import capital


@dataclass(frozen=True)
class SliceWords:
    """The words for one slice."""

    name: str
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


MOST = 2
"""Sentences on a page."""


def concentration_words(concentrations: Sequence[tuple[SliceWords, Concentration | None]], title: str) -> list[str]:
    """The sentences, the most concentrated slice first. title: of the metric that the gap is measured by."""
    known = [(words, part) for words, part in concentrations if part is not None]
    known.sort(key=lambda pair: pair[1].times, reverse=True)
    if not known:
        names = " or ".join(words.title for words, _ in concentrations)
        return [f"The {title} is spread: no part by {names} has half of it in far fewer tokens."] if names else []
    return [
        f"{capital(words.title)} {_named(words, part)} has {_rounded(part.share_of_gap)} of the {title}"
        f" in {_rounded(part.share_of_tokens)} of the tokens."
        for words, part in known[:MOST]
    ]


def _named(words: SliceWords, part: Concentration) -> str:
    """The buckets: a range of a numeric slice as its ends, else the first names."""
    labels = part.labels
    if len(labels) > 1 and part.is_range and words.name in NUMERIC:
        return f"{labels[0]} to {labels[-1]}"
    return first_few(labels)


def _rounded(share: float) -> str:
    """A share in whole percent; a small one with two digits.

    >>> _rounded(0.5333), _rounded(0.00123)
    ('53%', '0.12%')
    """
    return f"{float(f'{100 * share:.2g}'):g}%"
