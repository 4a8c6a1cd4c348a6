"""Which gaps of which steps must be computed from token rows, because no statistics of them can be on record or are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ratioscope.record import GAPS

from .commits import TokenFile


@dataclass(frozen=True)
class Job:
    """Gaps to compute from these files of one step."""

    files: tuple[TokenFile, ...]
    gaps: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """By step. own: writers that hold both sides of a gap and whose statistics lack it; adds to what is on record.
    across: two writers hold a side each, or slices of sequences, so that the gap needs all files; replaces what is on record."""

    own: Mapping[int, Job]
    across: Mapping[int, Job]


def plan(files: Mapping[int, Sequence[TokenFile]], measured: Mapping[tuple[str, int], Collection[str]]) -> Plan:
    """measured: (writer, step) -> the gaps that its statistics hold."""
    own: dict[int, Job] = {}
    across: dict[int, Job] = {}
    for step, present in files.items():
        policies = _policies(present)
        split = frozenset(gap for gap in GAPS if _is_split(gap, policies.values()))
        if any(file.slices for file in present):
            split |= _whole(frozenset().union(*policies.values()))
        if split:
            across[step] = Job(tuple(present), split)
        lacking = {
            writer: _whole(held) - set(measured.get((writer, step), ())) - split for writer, held in policies.items()
        }
        gaps = frozenset(gap for part in lacking.values() for gap in part)
        if gaps:
            own[step] = Job(tuple(file for file in present if lacking[file.writer]), gaps)
    return Plan(own, across)


def gaps_on_record(files: Mapping[int, Sequence[TokenFile]]) -> frozenset[str]:
    """Gaps of which some step holds both sides, whoever recorded them."""
    held = {frozenset(policy for file in present for policy in file.policies) for present in files.values()}
    return frozenset(gap for policies in held for gap in _whole(policies))


def _policies(files: Sequence[TokenFile]) -> dict[str, frozenset[str]]:
    """writer -> the policies it recorded."""
    found: dict[str, frozenset[str]] = {}
    for file in files:
        found[file.writer] = found.get(file.writer, frozenset()) | file.policies
    return found


def _whole(policies: frozenset[str]) -> frozenset[str]:
    return frozenset(gap for gap, sides in GAPS.items() if policies >= set(sides))


def _is_split(gap: str, held: Collection[frozenset[str]]) -> bool:
    """Whether one writer holds only the earlier side and another only the later one."""
    earlier, later = GAPS[gap]
    return any(earlier in p and later not in p for p in held) and any(later in p and earlier not in p for p in held)
