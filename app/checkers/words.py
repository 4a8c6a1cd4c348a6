"""A poll in sentences: which replica holds other weights, of which step, against what; what was not compared, and why."""

from collections.abc import Iterator, Sequence

from ratioscope.ingest.analysis.weight_arrivals import OF_MOST, Arrival

from ..presentation.digits import count
from .answers import PAUSES
from .polls import Known, Poll

NAMED = 3
"""Tensors that a sentence names; it counts the others."""
ALONE = (
    "nothing to compare with: wanted a second --engine, --model DIR, --digests STEP=FILE, or --run RUN with polls of earlier"
    " syncs"
)


def findings(poll: Poll) -> Iterator[str]:
    """A sentence for each replica that holds other weights, and for replicas that differ while nothing shows which is wrong."""
    for arrival in poll.found:
        if arrival.state == "differs":
            yield difference(poll, arrival)
    for split in poll.splits:
        for replica, names in split.odd.items():
            yield f"replica {replica}: {count(len(names), 'tensor')} unlike those of most replicas: {listed(names)}"
        if split.names:
            yield (
                f"replicas {listed(split.replicas, 8)} hold different weights in {count(len(split.names), 'tensor')},"
                f" {listed(split.names)}; no majority shows which of them is wrong: wanted more replicas, --model or --digests"
            )


def difference(poll: Poll, arrival: Arrival) -> str:
    """The weights that the replica holds instead."""
    against = "most replicas" if OF_MOST in arrival.why else "the weights that it should hold"
    own = next(one for one in poll.held if one.replica == arrival.replica)
    number = min(arrival.compared, len(own.checksums))  # an entry may stand for those without a byte
    many = f"{len(arrival.differing)} of {count(number, 'tensor')}" if arrival.differing else "all tensors"
    verb = "differs" if len(arrival.differing) == 1 else "differ"
    names = f": {listed(arrival.differing)}" if arrival.differing else ""
    step = None if arrival.holds is None else poll.steps.get(arrival.holds)
    what = arrival.differing[0] if len(arrival.differing) == 1 else "the weights" if arrival.is_older else "these"
    held = "" if step is None else f"; it holds {what} of step {step}"
    return f"replica {arrival.replica}: {many} {verb} from {against}{names}{held}"


def agreements(poll: Poll, known: Known) -> Iterator[str]:
    """Replicas that hold equal weights, and those that hold the weights that they should."""
    makers = {one.by: [each for each in poll.held if each.by == one.by] for one in poll.held}
    odd = {one.replica for one in poll.found if one.state == "differs"} | {
        r for split in poll.splits for r in split.replicas
    }
    for group in makers.values():
        equal = [one for one in group if one.replica not in odd]
        if len(equal) > 1:
            tensors = count(len(equal[0].checksums), "tensor")
            yield f"replicas {listed([one.replica for one in equal], 8)} hold equal weights: {tensors} each"
    for one in poll.found:
        if one.state == "equal":
            yield f"replica {one.replica} holds the weights that it should: {count(one.compared, 'tensor')} equal"
    has_reference = any(one.checksums for one in poll.references) or known.checkpoint is not None
    if len(poll.held) == 1 and not has_reference and poll.found[0].state == "unknown":
        yield ALONE


def left_out(poll: Poll) -> Iterator[str]:
    """Tensors and replicas that were not compared, and why."""
    makers = list(dict.fromkeys(one.by for one in poll.held))
    if len(makers) > 1:
        groups = (f"{listed([one.replica for one in poll.held if one.by == by], 8)} ({by})" for by in makers)
        yield f"not compared with each other, because their checksums are made otherwise: {'; '.join(groups)}"
    for reference in poll.references:
        if reference.unmapped:
            yield f"no mapping known of {count(len(reference.unmapped), 'tensor')}: {listed(reference.unmapped)}"
        if reference.doubtful:
            yield (
                f"{count(len(reference.doubtful), 'tensor')} with other checksums than the checkpoint's, and none equal of the"
                f" same kind: other weights, or held in another form: {listed(reference.doubtful)}"
            )
    for names in dict.fromkeys(one.empty for one in poll.held if one.empty):
        own = listed([one.replica for one in poll.held if one.empty == names], 8)
        yield (
            f"replica {own}: {count(len(names), 'tensor')} without a byte, whose checksums prove nothing (the engine has packed"
            f" the weights elsewhere): {listed(names)}"
        )


def pauses(poll: Poll) -> list[str]:
    """The loops that stood still while the engines hashed."""
    return [PAUSES[kind] for kind in dict.fromkeys(one.kind for one in poll.held)]


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
