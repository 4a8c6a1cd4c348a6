"""Which gaps of which steps must be computed from token rows, because no statistics of them can be on record or are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ratioscope.layout import joint_writer
from ratioscope.record import GAPS

from ..commits.entries import TokenFile


@dataclass(frozen=True)
class RowJob:
    """Gaps to compute from these files of one step."""

    files: tuple[TokenFile, ...]
    gaps: frozenset[str]


@dataclass(frozen=True)
class RowPlan:
    """By step. own: writers that hold both sides of a gap and whose statistics lack it; adds to what is on record.
    across: two writers hold a side each, or slices or facts of sequences, or a writer whose rows were merged with others'
    lost its statistics, or these are of a part of its rows, so that the gap needs all files; replaces what is on record."""

    per_writer: Mapping[int, RowJob]
    joint: Mapping[int, RowJob]


def row_plan(files: Mapping[int, Sequence[TokenFile]], measured: Mapping[tuple[str, int], Collection[str]]) -> RowPlan:
    """measured: (writer, step) -> the gaps that its statistics hold; what was measured of all rows of the step together stands
    for every writer."""
    own: dict[int, RowJob] = {}
    across: dict[int, RowJob] = {}
    for step, present in files.items():
        policies = _policies(present)
        split = frozenset(gap for gap in GAPS if _is_split(gap, policies.values()))
        if any(file.slices for file in present):
            split |= _whole(frozenset().union(*policies.values()))
        split |= _without_facts(present, policies)
        split |= _whole(
            frozenset().union(*(held for file in present if file.unmeasured for _, held in file.policies_by_writer))
        )
        lacking = {writer: _whole(held) - set(measured.get((writer, step), ())) for writer, held in policies.items()}
        split |= _inseparable(present, lacking)
        known = frozenset(measured.get((joint_writer(sum(file.rows for file in present)), step), ()))
        if split - known:
            across[step] = RowJob(tuple(present), split - known)
        lacking = {writer: missing - split - known for writer, missing in lacking.items()}
        gaps = frozenset(gap for part in lacking.values() for gap in part)
        if gaps:
            own[step] = RowJob(
                tuple(file for file in present if any(lacking[writer] for writer, _ in file.policies_by_writer)), gaps
            )
    return RowPlan(own, across)


def gaps_on_record(files: Mapping[int, Sequence[TokenFile]]) -> frozenset[str]:
    """Gaps of which some step holds both sides, whoever recorded them."""
    held = {frozenset(policy for file in present for policy in file.policies) for present in files.values()}
    return frozenset(gap for policies in held for gap in _whole(policies))


def _policies(files: Sequence[TokenFile]) -> dict[str, frozenset[str]]:
    """writer -> the policies it recorded."""
    found: dict[str, frozenset[str]] = {}
    for file in files:
        for writer, policies in file.policies_by_writer:
            found[writer] = found.get(writer, frozenset()) | policies
    return found


def _without_facts(files: Sequence[TokenFile], policies: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Gaps that a writer measured without a fact (versions, say) of which only a writer that cannot measure them knows."""
    known: dict[str, frozenset[str]] = {}
    for writer, facts in (pair for file in files for pair in file.slice_columns_by_writer):
        known[writer] = known.get(writer, frozenset()) | facts
    found = set[str]()
    for gap in GAPS:
        measuring = {writer for writer, held in policies.items() if gap in _whole(held)}
        elsewhere = frozenset().union(*(facts for writer, facts in known.items() if writer not in measuring))
        if any(elsewhere - known.get(writer, frozenset()) for writer in measuring):
            found.add(gap)
    return frozenset(found)


def _inseparable(files: Sequence[TokenFile], lacking: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Gaps that some writers of a merged file lack and others may not: its rows no longer say whose they are."""
    merged = (
        {writer for writer, _ in file.policies_by_writer}
        for file in files
        if len({writer for writer, _ in file.policies_by_writer}) > 1
    )
    return frozenset(gap for writers in merged for writer in writers for gap in lacking[writer])


def _whole(policies: frozenset[str]) -> frozenset[str]:
    return frozenset(gap for gap, sides in GAPS.items() if policies >= set(sides))


def _is_split(gap: str, held: Collection[frozenset[str]]) -> bool:
    """Whether one writer holds only the earlier side and another only the later one."""
    earlier, later = GAPS[gap]
    return any(earlier in p and later not in p for p in held) and any(later in p and earlier not in p for p in held)
