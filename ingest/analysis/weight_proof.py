"""The proof that digests of weights give to a diagnosis: of a failed delivery, or that there was none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratioscope.metrics.diagnosis.proof import WeightProof

from .weight_arrivals import Replica, weight_arrivals

if TYPE_CHECKING:
    from ..run import Run


def weight_proof(run: "Run", steps: Sequence[int], replicas: Sequence[str]) -> WeightProof:
    """The proof about these steps. replicas: names of the engines in the token rows; empty if they are not on record."""
    found = weight_arrivals(run)
    wrong = [one for one in found if one.newest.state == "differs"]
    if wrong:
        return WeightProof({_code(wrong, found): "; ".join(one.words for one in wrong)})
    return WeightProof(equal=_equal(found, steps, replicas))


def _code(wrong: Sequence[Replica], replicas: Sequence[Replica]) -> str:
    """The cause that such digests show."""
    if any(one.newest.holds is None or one.newest.differing for one in wrong):
        return "corrupted_load"
    if len(wrong) < len(replicas):
        return "stuck_replica"
    return "never_synced" if all(one.wrong >= one.versions - 1 for one in wrong) else "sync_broke"


def _equal(found: Sequence[Replica], steps: Sequence[int], replicas: Sequence[str]) -> str:
    """That all weights arrived during these steps, in words; empty if the digests do not show it.

    Each engine must have whole and equal digests at every version on record, from the first of the steps to the last one but the
    distance of two of its versions.
    """
    if not found or not steps or not set(replicas) <= {one.newest.replica for one in found}:
        return ""
    for one in found:
        apart = max((b - a for a, b in zip(one.steps, one.steps[1:], strict=False)), default=0)
        if one.wrong or one.unknown or one.steps[0] > min(steps) or one.steps[-1] + apart < max(steps):
            return ""
    engines = f"{len(found)} engine{'' if len(found) == 1 else 's'}"
    return f"{engines} held the trainer's weights at each of {max(one.versions for one in found)} versions"
