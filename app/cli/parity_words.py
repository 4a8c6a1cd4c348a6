"""The answer of `parity` for a terminal and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..blocks import Block, Paragraph, text_table

if TYPE_CHECKING:
    from ..referee.parity.limits import Limits
    from ..referee.parity.parity import Parity, Row

HEAD = ("arm", "of", "readings", "mean |x|", "max |x|", "K3", "equal bits", "first difference", "verdict")
PUBLISHED_HEAD = ("published limit of", "quantity", "limit", "of", "here", "kept", "source")


def blocks(
    done: "Parity", limits: "Limits", scorers: Mapping[str, str], left_out: Sequence[str], folder: Path | None
) -> Iterator[Block]:
    """The answer first, then each comparison, what is not available, and the limits that others use."""
    from ..referee.parity.limits import QUANTITIES, bound_words, keeps
    from ..referee.parity.parity import published_beside, sentences

    first, *others = sentences(done, limits)
    yield Paragraph(first, "lead")
    yield from (Paragraph(words) for words in others)
    yield from (Paragraph(f"{name} is {words}", "muted") for name, words in scorers.items())
    yield from (Paragraph(f"not read: {words}") for words in left_out)
    yield Paragraph("")
    rows = [_cells(row, bool(limits)) for row in done.rows]
    yield text_table("comparisons (|x| in nats, first difference as sequence, token)", HEAD, rows)
    doubts = dict.fromkeys(f"{row.arm}, {row.who}: {row.doubt}" for row in done.rows if row.doubt)
    yield from (Paragraph(words, "muted") for words in doubts)
    yield from (Paragraph(f"not available: {arm}, {who}: {why}", "muted") for arm, who, why in done.absent)
    yield Paragraph("")
    table = [
        [
            own.whose,
            QUANTITIES[own.quantity].words,
            bound_words(own.quantity, own.limit),
            f"{row.arm} {row.who}".strip(),
            QUANTITIES[own.quantity].shown(row.found),
            "yes" if keeps(row.found, own) else "no",
            own.source,
        ]
        for own, row in published_beside(done)
    ]
    yield text_table("published limits", PUBLISHED_HEAD, table)
    yield Paragraph("Published limits are of other models and lengths. They decide nothing here.", "muted")
    if folder is not None:
        yield Paragraph(f"The readings are a run: ratioscope dashboard {folder}")


def plain(done: "Parity", limits: "Limits", made_of: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """The answer as JSON holds it."""
    from ..referee.parity.limits import keeps
    from ..referee.parity.parity import published_beside, sentences

    return {
        "answer": " ".join(sentences(done, limits)),
        "passed": not done.broken and done.rows[0].found.distance.tokens > 0,
        "scorers": dict(made_of),
        "limits": dict(limits),
        "comparisons": [asdict(row) for row in done.rows],
        "not_available": [{"arm": arm, "scorer": who, "because": why} for arm, who, why in done.absent],
        "not_read": list(left_out),
        "published": [
            asdict(own) | {"of": row.who, "kept": keeps(row.found, own)} for own, row in published_beside(done)
        ],
    }


def _cells(row: "Row", has_limits: bool) -> list[str]:
    from ..referee.parity.limits import QUANTITIES

    first = "–" if row.found.first is None else ", ".join(map(str, row.found.first))
    numbers = [QUANTITIES[name].shown(row.found) for name in ("mean", "max", "k3", "equal")]
    return [row.arm or "both", row.who, f"{row.earlier} → {row.later}", *numbers, first, _verdict(row, has_limits)]


def _verdict(row: "Row", has_limits: bool) -> str:
    if row.broken:
        return "; ".join(row.broken)
    own = {"moved": "moved, as wanted", "equal": "taken back", "any": "shown alone"}
    return own.get(row.wanted, "within the limits" if has_limits else "no limit")
