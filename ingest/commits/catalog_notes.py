"""Sentences about how the files of a run were found: what was pruned, what is damaged or lost, what was recovered.

The commit logs are compared with each other. Each log names its run, the other logs that its writer saw, and in its last line how
many sequences were written. So a log may be missing, belong to another run, or have lost lines.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ratioscope.layout import TOKENS

from ..files.quarantine import printable
from .entries import Segment, TokenFile
from .writer_history import WriterHistory


def notes_on_logs(
    histories: Mapping[str, WriterHistory], run_id: str | None, recovered: Collection[str]
) -> Iterator[str]:
    """Sentences on pruned steps, on damaged logs, on logs that disagree, and on files read without a commit.

    run_id: the id in run.json. recovered: paths of the files that no commit names.
    """
    pruned = _joined({pair for history in histories.values() for pair in history.pruned_steps})
    if pruned:
        number, first, last = sum(b - a + 1 for a, b in pruned), pruned[0][0], pruned[-1][1]
        steps = f"step {first}" if number == 1 else f"{number} steps from {first} to {last}"
        yield f"token rows of {steps} were pruned; their statistics are kept"
    torn = sorted(writer for writer, history in histories.items() if not history.is_whole)
    for writer in torn:
        yield f"{histories[writer].log.file} {histories[writer].doubt}; its other lines were read"
    yield from disagreements(histories, run_id)
    if recovered:
        tokens = sum(path.startswith(f"{TOKENS}/") for path in recovered)
        yield (
            f"{tokens} token files and {len(recovered) - tokens} statistics segments are read without a"
            f" commit, because the log that would name them is {'torn' if torn else 'missing'}: their footers were read,"
            " their digests are unknown"
        )


def notes_on_lost_parts(
    unreadable: Iterable[Segment], token_files: Iterable[TokenFile], segments: Iterable[Segment]
) -> Iterator[str]:
    """A sentence on writers whose part of a step is lost while other writers' parts are shown: the step looks complete.

    unreadable: statistics that are not read. token_files, segments: files that are.
    """
    lost = {pair for segment in unreadable for pair in segment.writers_and_steps}
    lost -= {pair for segment in segments for pair in segment.writers_and_steps}
    lost -= {(writer, file.step) for file in token_files for writer, _ in file.policies_by_writer}
    steps = sorted({step for _, step in lost})
    if steps:
        writers = sorted({writer for writer, _ in lost})
        who = writers[0] if len(writers) == 1 else f"{len(writers)} writers, such as {writers[0]},"
        when = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
        yield f"statistics and token rows of {who} at {when} are lost: the values shown for these steps do not include them"


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The (first, last) spans in ascending order, overlapping ones joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


_MOST_NAMED = 3


def disagreements(histories: Mapping[str, WriterHistory], run_id: str | None) -> tuple[str, ...]:
    """One sentence for each of the three checks that a log fails."""
    return (
        *(sentence for _, sentence in missing_logs(histories)),
        *(sentence for _, sentence in foreign_logs(histories, run_id)),
        *(sentence for _, sentence in miscounted_logs(histories)),
    )


def missing_logs(histories: Mapping[str, WriterHistory]) -> list[tuple[str, str]]:
    """(writer, sentence) for each log that is not there although other writers saw it."""
    seen: dict[str, list[str]] = {}
    for writer, history in sorted(histories.items()):
        for name in history.beside - histories.keys():
            seen.setdefault(printable(name), []).append(writer)
    return [
        (
            name,
            f"the log of {name} is missing: {', '.join(by[:_MOST_NAMED])} saw it. Data that only this log names is not shown",
        )
        for name, by in sorted(seen.items())
    ]


def foreign_logs(histories: Mapping[str, WriterHistory], run_id: str | None) -> list[tuple[str, str]]:
    """(writer, sentence) for each log that names another run. run_id: the id in run.json."""
    return [
        (
            writer,
            f"{history.log.file} is of another run: it names {printable(history.run)}, run.json names {printable(run_id)}",
        )
        for writer, history in sorted(histories.items())
        if history.run is not None and run_id is not None and history.run != run_id
    ]


def miscounted_logs(histories: Mapping[str, WriterHistory]) -> list[tuple[str, str]]:
    """(writer, sentence) for each log whose last line counts other sequences than its commits."""
    return [
        (
            writer,
            f"{history.log.file} closes with {(history.totals or {}).get('written')} sequences written, its commits name"
            f" {history.rows}: lines of it are missing",
        )
        for writer, history in sorted(histories.items())
        if history.is_unaccounted
    ]
