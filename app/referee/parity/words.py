"""The answer of `parity`: in sentences, as blocks for a terminal, and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...blocks import Block, Paragraph, text_table
from ...presentation.digits import count, digits, percent, plus_minus
from .limits import PUBLISHED, QUANTITIES, Published, bound_words, keeps, shown
from .parity import Parity, Row

HEAD = ("arm", "of", "readings", "mean |x|", "max |x|", "K3", "equal bits", "first difference", "verdict")
PUBLISHED_HEAD = ("published limit of", "quantity", "limit", "of", "here", "kept", "source")


def sentences(done: Parity) -> list[str]:
    """The answer: how far both are from each other, each from itself, and what the limits say."""
    said = [*_between(done), *_within(done)]
    if done.broken:
        return [*said, f"{count(len(done.broken), 'fault')}: {'; '.join(done.broken)}."]
    if not done.limits:
        return [*said, "No limit was given."]
    number = sum(row.pair.wanted == "within" for row in done.rows)
    who = "The comparison is" if number == 1 else f"All of {count(number, 'comparison')} are"
    words = "; ".join(f"{QUANTITIES[name][0]} {bound_words(name, limit)}" for name, limit in done.limits.items())
    return [*said, f"{who} within the limits: {words}."]


def _between(done: Parity) -> Iterator[str]:
    """The distance of both scorers, in sentences."""
    found = done.rows[0].found
    own, over = found.distance, f"{count(found.distance.tokens, 'token')} of {count(found.sequences, 'sequence')}"
    who = " and ".join(done.names) if len(done.names) > 1 else f"Two readings by {done.names[0]}"
    if not own.tokens:
        yield f"{who} have no token in common with a finite log-prob: nothing was measured."
    elif found.first is None:
        yield f"{who} are equal to the last bit at all {over}."
    else:
        sequence, place = found.first
        yield f"{who} differ by {plus_minus(own.mean, own.mean_error)} nats/token (mean |x|) over {over}."
        yield (
            f"{percent(found.equal)} are equal to the last bit; the first difference is at token {place} of sequence"
            f" {sequence}, both counted from 0."
        )
    if own.set_aside:
        yield f"{count(own.set_aside, 'token')} were set aside: a log-prob is not finite."


def _within(done: Parity) -> Iterator[str]:
    """The distance of each scorer from itself in its arms, a sentence each."""
    for name in done.names:
        own = [row for row in done.rows if row.arm and row.who == name and row.pair.wanted == "within"]
        same = ", ".join(row.arm for row in own if row.found.first is None)
        apart = ", ".join(f"{row.arm} ({digits(row.found.distance.mean)} nats/token)" for row in own if row.found.first)
        parts = [f"is equal to itself to the last bit in {same}"] if same else []
        parts += [f"differs from itself in {apart}"] if apart else []
        if parts:
            yield f"{name} {', and '.join(parts)}."


def _published(done: Parity) -> Iterator[tuple[Published, Row]]:
    """Each published limit, with each comparison that it is of. One scorer alone has its largest distance beside those of two."""
    judged = [row for row in done.rows if row.pair.wanted == "within"]
    whole = max(judged, key=lambda row: row.found.distance.mean) if done.rows[0].arm else done.rows[0]
    for own in PUBLISHED:
        yield from ((own, row) for row in ([row for row in judged if row.arm == own.arm] if own.arm else [whole]))


def blocks(done: Parity, scorers: Mapping[str, str], left_out: Sequence[str], folder: Path | None) -> Iterator[Block]:
    """The answer first, then each comparison, what is not available, and the limits that others use."""
    first, *others = sentences(done)
    yield Paragraph(first, "lead")
    yield from (Paragraph(words) for words in others)
    yield from (Paragraph(f"{name} is {words}", "muted") for name, words in scorers.items())
    yield from (Paragraph(f"not read: {words}") for words in left_out)
    yield Paragraph("")
    rows = [_cells(row, bool(done.limits)) for row in done.rows]
    yield text_table("comparisons (|x| in nats, first difference as sequence, token)", HEAD, rows)
    doubts = dict.fromkeys(f"{row.arm}, {row.who}: {row.pair.doubt}" for row in done.rows if row.pair.doubt)
    yield from (Paragraph(words, "muted") for words in doubts)
    yield from (Paragraph(f"not available: {arm}, {who}: {why}", "muted") for arm, who, why in done.absent)
    yield Paragraph("")
    yield text_table("published limits", PUBLISHED_HEAD, [_published_cells(*each) for each in _published(done)])
    yield Paragraph("Published limits are of other models and lengths. They decide nothing here.", "muted")
    if folder is not None:
        yield Paragraph(f"The readings are a run: ratioscope dashboard {folder}")


def _cells(row: Row, has_limits: bool) -> list[str]:
    first = "–" if row.found.first is None else ", ".join(map(str, row.found.first))
    numbers = [shown(name, row.found) for name in ("mean", "max", "k3", "equal")]
    verdicts = {"moved": "moved, as wanted", "equal": "taken back", "any": "shown alone"}
    verdict = "; ".join(row.broken) or verdicts.get(row.pair.wanted, "within the limits" if has_limits else "no limit")
    return [row.arm or "both", row.who, f"{row.pair.earlier} → {row.pair.later}", *numbers, first, verdict]


def _published_cells(own: Published, row: Row) -> list[str]:
    name, kept = own.quantity, "yes" if keeps(row.found, own.quantity, own.limit) else "no"
    limit, of = bound_words(name, own.limit), f"{row.arm} {row.who}".strip()
    return [own.whose, QUANTITIES[name][0], limit, of, shown(name, row.found), kept, own.source]


def plain(done: Parity, made_of: Mapping[str, Any], left_out: Sequence[str], folder: Path | None) -> dict[str, Any]:
    """The answer as JSON holds it."""
    return {
        "answer": " ".join(sentences(done)),
        "passed": not done.broken and done.rows[0].found.distance.tokens > 0,
        "scorers": dict(made_of),
        "limits": dict(done.limits),
        "comparisons": [
            {"arm": row.arm, "who": row.who, "earlier": row.pair.earlier, "later": row.pair.later, "found": asdict(row.found),
             "broken": row.broken, "doubt": row.pair.doubt, "wanted": row.pair.wanted}
            for row in done.rows
        ],
        "not_available": [{"arm": arm, "scorer": who, "because": why} for arm, who, why in done.absent],
        "not_read": list(left_out),
        "published": [
            asdict(own) | {"of": row.who, "kept": keeps(row.found, own.quantity, own.limit)} for own, row in _published(done)
        ],
        "folder": None if folder is None else str(folder),
    }  # fmt: skip
