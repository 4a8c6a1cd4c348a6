"""The worst sequences of a report as a table of plain cells, without secrets, and without texts unless they are wanted."""

import math
from collections.abc import Sequence
from typing import Any

from ...pages.worst import WorstSequence
from ...presentation.privacy import scrubbed_text

LONGEST = 4000
"""Characters of a cell."""
Cell = str | float | None


def worst_table(worst: Sequence[WorstSequence], text: bool) -> tuple[list[str], list[list[Cell]]]:
    """(header, rows). text: with the prompt and the response, where the run holds them."""
    facts = list(dict.fromkeys(name for item in worst for name in item.facts))
    header = ["step", "sequence_id", "tokens_recorded", *facts, *(("prompt", "response") if text else ())]
    return header, [_cells(item, facts, text) for item in worst]


def _cells(item: WorstSequence, facts: Sequence[str], text: bool) -> list[Cell]:
    cells = [item.step, _plain(item.sequence_id), item.length, *(_plain(item.facts.get(name)) for name in facts)]
    return [*cells, _plain(item.prompt), _response(item)] if text else cells


def _response(item: WorstSequence) -> Cell:
    if "token_text" not in item.tokens.columns:
        return None
    texts = item.tokens["token_text"].drop_nulls().to_list()
    return _plain("".join(texts)) if texts else None


def _plain(value: Any) -> Cell:
    """The value as a cell; None where it is absent or not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return scrubbed_text(str(value))[:LONGEST]
    return value
