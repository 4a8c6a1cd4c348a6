"""What binds the logs of a run: each states the run that it is of, other logs that it saw, and at its end what it wrote."""

from collections.abc import Mapping

from ..files.quarantine import printable
from .writer_history import WriterHistory

_MOST_NAMED = 3


def disagreements(histories: Mapping[str, WriterHistory], run_id: str | None) -> tuple[str, ...]:
    """A sentence for each bond that does not hold."""
    return (
        *(told for _, told in missing_logs(histories)),
        *(told for _, told in foreign_logs(histories, run_id)),
        *(told for _, told in miscounted_logs(histories)),
    )


def missing_logs(histories: Mapping[str, WriterHistory]) -> list[tuple[str, str]]:
    """(log, what is missing) for logs that others saw."""
    seen: dict[str, list[str]] = {}
    for writer, history in sorted(histories.items()):
        for name in history.beside - histories.keys():
            seen.setdefault(printable(name), []).append(writer)
    return [
        (name, f"the log of {name} is missing: {', '.join(by[:_MOST_NAMED])} saw it. What only it told of is not shown")
        for name, by in sorted(seen.items())
    ]


def foreign_logs(histories: Mapping[str, WriterHistory], run_id: str | None) -> list[tuple[str, str]]:
    """(log, what is odd) for logs that say they are of another run."""
    return [
        (
            writer,
            f"{history.log.file} is of another run: it says {printable(history.run)}, run.json says {printable(run_id)}",
        )
        for writer, history in sorted(histories.items())
        if history.run is not None and run_id is not None and history.run != run_id
    ]


def miscounted_logs(histories: Mapping[str, WriterHistory]) -> list[tuple[str, str]]:
    """(log, what is odd) for logs whose last line counts other sequences than their commits name."""
    return [
        (
            writer,
            f"{history.log.file} closes with {(history.totals or {}).get('written')} sequences written, its commits name"
            f" {history.rows}: lines of it are missing",
        )
        for writer, history in sorted(histories.items())
        if history.is_unaccounted
    ]
