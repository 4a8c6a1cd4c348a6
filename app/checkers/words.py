"""A poll in sentences, as blocks and as JSON: which replica holds other weights, of which step, and what was not compared."""

from collections.abc import Iterator
from typing import Any

from ratioscope.ingest.analysis.weight_arrivals import OF_MOST, Arrival

from ..blocks import Block, Paragraph, text_table
from ..presentation.digits import count, first_few
from .answers import PAUSES
from .polls import Known, Poll, by_maker

ALONE = (
    "nothing to compare with: wanted a second --engine, --model DIR, --digests STEP=FILE, or --run RUN with polls of earlier"
    " syncs"
)


def _findings(poll: Poll) -> Iterator[str]:
    """A sentence for each replica that holds other weights, and for replicas that differ while nothing shows which is wrong."""
    for arrival in poll.found:
        if arrival.state == "differs":
            yield _difference(poll, arrival)
    for split in poll.splits:
        for replica, names in split.odd.items():
            yield f"replica {replica}: {count(len(names), 'tensor')} unlike those of most replicas: {first_few(names)}"
        if split.names:
            yield (
                f"replicas {first_few(split.replicas, 8)} hold different weights in {count(len(split.names), 'tensor')},"
                f" {first_few(split.names)}; no majority shows which of them is wrong: wanted more replicas, --model or --digests"
            )


def _difference(poll: Poll, arrival: Arrival) -> str:
    """The weights that the replica holds instead."""
    against = "most replicas" if OF_MOST in arrival.why else "the weights that it should hold"
    own = next(one for one in poll.held if one.replica == arrival.replica)
    number = min(arrival.compared, len(own.checksums))  # an entry may stand for those without a byte
    many = f"{len(arrival.differing)} of {count(number, 'tensor')}" if arrival.differing else "all tensors"
    verb = "differs" if len(arrival.differing) == 1 else "differ"
    names = f": {first_few(arrival.differing)}" if arrival.differing else ""
    step = None if arrival.holds is None else poll.steps.get(arrival.holds)
    what = arrival.differing[0] if len(arrival.differing) == 1 else "the weights" if arrival.is_older else "these"
    held = "" if step is None else f"; it holds {what} of step {step}"
    return f"replica {arrival.replica}: {many} {verb} from {against}{names}{held}"


def _agreements(poll: Poll, known: Known) -> Iterator[str]:
    """Replicas that hold equal weights, and those that hold the weights that they should."""
    odd = {one.replica for one in poll.found if one.state == "differs"}
    odd |= {replica for split in poll.splits for replica in split.replicas}
    for group in by_maker(poll.held):
        equal = [one for one in group if one.replica not in odd]
        if len(equal) > 1:
            tensors = count(len(equal[0].checksums), "tensor")
            yield f"replicas {first_few([one.replica for one in equal], 8)} hold equal weights: {tensors} each"
    for one in poll.found:
        if one.state == "equal":
            yield f"replica {one.replica} holds the weights that it should: {count(one.compared, 'tensor')} equal"
    has_reference = any(one.checksums for one in poll.references) or known.checkpoint is not None
    if len(poll.held) == 1 and not has_reference and poll.found[0].state == "unknown":
        yield ALONE


def _left_out(poll: Poll) -> Iterator[str]:
    """Tensors and replicas that were not compared, and why."""
    if len(makers := by_maker(poll.held)) > 1:
        groups = (f"{first_few([one.replica for one in group], 8)} ({group[0].by})" for group in makers)
        yield f"not compared with each other, because their checksums are made otherwise: {'; '.join(groups)}"
    for reference in poll.references:
        if reference.unmapped:
            yield f"no mapping known of {count(len(reference.unmapped), 'tensor')}: {first_few(reference.unmapped)}"
        if reference.doubtful:
            yield (
                f"{count(len(reference.doubtful), 'tensor')} with other checksums than the checkpoint's, and none equal of the"
                f" same kind: other weights, or held in another form: {first_few(reference.doubtful)}"
            )
    for names in dict.fromkeys(one.empty for one in poll.held if one.empty):
        own = first_few([one.replica for one in poll.held if one.empty == names], 8)
        yield (
            f"replica {own}: {count(len(names), 'tensor')} without a byte, whose checksums prove nothing (the engine has packed"
            f" the weights elsewhere): {first_few(names)}"
        )


def blocks(poll: Poll, known: Known, log: str | None) -> Iterator[Block]:
    """The answer first, then what was not compared, and what stood still. log: the file that records it."""
    yield from (Paragraph(words, "warning") for words in _findings(poll))
    yield from (Paragraph(words, "" if poll.has_findings else "lead") for words in _agreements(poll, known))
    yield from (Paragraph(words) for words in _left_out(poll))
    rows = [[one.replica, one.by, str(len(one.checksums)), f"{one.seconds:.3g}"] for one in poll.held]
    yield text_table("replicas", ("replica", "checksums by", "tensors", "seconds"), rows)
    yield from (Paragraph(PAUSES[kind], "muted") for kind in dict.fromkeys(one.kind for one in poll.held))
    yield Paragraph("nothing is recorded: no --run" if log is None else f"recorded at step {poll.at.step}", "muted")


def plain(poll: Poll, log: str | None) -> dict[str, Any]:
    """The answer as JSON holds it."""
    arrivals = {one.replica: one for one in poll.found}
    return {
        "step": poll.at.step, "version": poll.at.version, "findings": list(_findings(poll)),
        "not_compared": list(_left_out(poll)), "recorded": log,
        "replicas": [
            {
                "replica": one.replica, "engine": one.kind, "by": one.by, "seconds": one.seconds,
                "state": arrivals[one.replica].state, "differing": list(arrivals[one.replica].differing),
                "holds_version": arrivals[one.replica].holds, "why": arrivals[one.replica].why,
                "empty": list(one.empty), "checksums": dict(one.checksums),
            }
            for one in poll.held
        ],
    }  # fmt: skip
