"""The comparison with a pinned run: its words, the metrics side by side, and the settings that differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from typing import Any

from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.comparison import Compared

from ..blocks import Block, Facts, Paragraph, text_table
from ..presentation.comparison_words import SURE, UNITS, estimate_words, few_settings, title_of, titled
from ..presentation.difference import (
    Difference,
    common_gap,
    difference,
    pairs_in_words,
    parting_in_words,
    plain_difference,
)
from ..presentation.digits import digits
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.privacy import scrubbed_settings, scrubbed_text
from ..presentation.run_names import shortened
from .scope import Scope
from .view import View

NAME_ROOM = 48
"""The most characters of the pinned run's name in the head."""
ABOUT_AS_LARGE = 1.5
"""Factor below which the head gives a percentage. Convention, as that of `diff`."""
PINNED_RUN = "pinned run"
"""The label of the sentence on it."""
SIDES = {"A": "pinned (A)", "B": "this run (B)"}


@dataclass(frozen=True)
class Baseline:
    """A run compared with the pinned one. A is the pinned run, B the run of the report."""

    name: str
    digest: str
    """Digest of the committed files of the pinned run."""
    gap: str
    head: LabelledTexts
    """Facts for the first half page."""
    facts: LabelledTexts
    """Facts for the section on the comparison, as label and text."""
    settings: tuple[tuple[str, str, str], ...]
    """Key, value of the pinned run and own value of each setting that differs, without secrets."""
    header: tuple[str, ...]
    """The headings of `rows`."""
    rows: tuple[tuple[str, ...], ...]
    """The metrics side by side, as text."""
    plain: dict[str, Any]
    """The comparison as values that JSON can hold."""


def compared_with(run: Run, other: View) -> Baseline:
    """other: the pinned run. SourceError if the two have no gap in common."""
    good = other.run
    gap = common_gap(good, run, asked=False)
    compared = difference(good, run, gap)
    name = scrubbed_text(good.name)
    settings = tuple(_scrubbed(*row) for row in compared.settings.table.rows())
    table = titled(compared.table)
    facts = (
        ("compared", f"the pinned run {name} is A, the run of this report is B"),
        ("pair by pair", pairs_in_words(compared).removeprefix("Pair by pair, ")),
        ("apart since", parting_in_words(compared)),
        ("input digest (sha256)", good.digest),
    )
    plain = plain_difference(compared) | {
        "known_good": name,
        "digest": good.digest,
        "settings": [dict(zip(("setting", "known_good", "own"), row, strict=True)) for row in settings],
    }
    return Baseline(
        name,
        good.digest,
        gap,
        _head(compared, name, settings),
        facts,
        settings,
        (gap, *(SIDES.get(side, side) for side in table.columns[1:])),
        tuple(table.rows()),
        plain,
    )


def comparison(scope: Scope) -> Iterator[Block]:
    """The comparison with the pinned run of the scope; nothing without one."""
    if scope.good is None:
        return
    found = scope.view.of(compared_with, scope.good)
    yield Facts(found.facts)
    yield text_table(f"metrics beside {found.name}", found.header, found.rows, is_numbers=True)
    if found.settings:
        yield text_table("settings", ("setting that differs", "pinned run", "this run"), found.settings)
    else:
        yield Paragraph("No setting on record differs; more may differ than was recorded.", "muted")


def _head(compared: Difference, name: str, settings: tuple[tuple[str, str, str], ...]) -> LabelledTexts:
    apart = compared.parting
    since = "" if apart is None else f"; apart since step {apart.step}"
    rows = (
        (PINNED_RUN, f"{words_of(compared.size, shortened(name, NAME_ROOM))}{since}."),
        ("settings", few_settings(settings)),
    )
    return tuple((label, text) for label, text in rows if text)


def words_of(size: Compared | None, name: str) -> str:
    """The size of the gap beside that of the pinned run, in words, with both values."""
    if size is None:
        return f"not comparable with your pinned run {name}, because one of the two lacks the metric"
    unit = UNITS.get(size.metric, "")
    own, good = (estimate_words(size.metric, side) for side in (size.b, size.a))
    sides = f"{title_of(size.metric)} {own}{unit} against {good}"
    if not isnan(size.z) and size.p >= SURE:
        return f"cannot be told apart from your pinned run {name}: {sides}"
    return f"{_times(size)} your pinned run {name}: {sides}"


def _times(size: Compared) -> str:
    """The factor from the pinned run to this one."""
    ratio = size.ratio
    if isnan(ratio):
        return "the same as" if size.difference == 0 else "unlike"
    if ratio >= ABOUT_AS_LARGE:
        return f"{digits(ratio, 2)} times"
    if ratio <= 1 / ABOUT_AS_LARGE:
        return f"{digits(1 / ratio, 2)} times smaller than"
    word = "larger" if ratio > 1 else "smaller"
    return f"{digits(100 * abs(ratio - 1), 2)}% {word} than" if ratio != 1 else "the same as"


def _scrubbed(key: str, good: str, own: str) -> tuple[str, str, str]:
    """A setting without secrets, which are found by the name of the setting or by the look of its value."""
    last = key.rpartition(".")[2]
    one, other = (scrubbed_text(str(scrubbed_settings({last: value}).get(last, ""))) for value in (good, own))
    return scrubbed_text(key), one, other
