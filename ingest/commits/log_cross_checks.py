"""Compares the commit logs of a run with each other: a log that is missing, that belongs to another run, or that lost lines.

Each log names its run, the other logs that its writer saw, and in its last line how many sequences were written.
"""

from collections.abc import Mapping

from ..files.quarantine import printable
from .writer_history import WriterHistory

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
