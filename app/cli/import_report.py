"""The last words of `ratioscope import`: what became of every file and row, and how two sides match."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from ratioscope.ingest.importers.joining import Matches
from ratioscope.ingest.importers.reading import formats_read
from ratioscope.ingest.importers.source_files import File, SourceNumbers
from ratioscope.layout import REJECTED

from ..presentation.digits import count, size_on_disk
from ..upkeep.rejected_rows import Written, rejection_words
from .terminal import print_json, say


def print_report(
    output: Path, readings: list[SourceNumbers], matches: Matches | None, done: Written, seconds: float
) -> None:
    """Prints the report for people."""
    files = [file for reading in readings for file in reading.files]
    rate = f"{size_on_disk(sum(reading.size for reading in readings) / max(seconds, 1e-3))}/s"
    say(
        f"{output}: {count(done.rows, 'sequence')} of {count(len(done.steps), 'step')}, {count(done.tokens, 'token')}, {rate}"
    )
    for title, number in formats_read(files).items():
        say(f"{count(number, 'file')}: {title}")
    for lacks in dict.fromkeys(f.read_as.part.lacks for f in files if f.read_as and f.read_as.part.lacks):
        say(f"not in such files: {lacks}")
    for what, names in _beside(readings).items():
        say(
            f"{count(len(names), 'file')} beside the rows, {what}: {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
        )
    if passed := _passed_over(readings):
        say(f"{count(len(passed), 'file')} passed over, of which no row is read: {', '.join(passed[:5])}")
    for what, number in _set_aside(files).items():
        say(f"set aside: {what} ({number:,})")
    for side, rows in (pair for reading in readings for pair in reading.only.items()):
        say(f"{count(rows, 'sequence')} only in the files of the {side} side")
    if matches is not None:
        _print_matches(matches)
    untaken = Counter(pair for file in files for pair in file.untaken.items())
    for (name, column), number in untaken.items():
        say(
            f"not imported: {name} of {count(number, 'file')}, which may be log-probs; say whose with --map {column}={name}",
            "watch",
        )
    if unnamed := sum(file.without_step for file in files):
        say(f"{count(unnamed, 'row')} named no step and got step 0; to give another: --step N, or --map step=FIELD")
    if done.rejected:
        say(f"{count(done.rejected, 'row')} not imported; all are listed in {output / REJECTED}", "watch")
        for rejected in done.first_rejected:
            say(f"  {rejection_words(rejected)}")
    say(f"to look at it: ratioscope info {output}")


def _print_matches(matches: Matches) -> None:
    say(f"joined on {', '.join(matches.on)}: {count(matches.matched, 'pair')}")
    for number, words in (
        (matches.other_tokens, "with other tokens on the two sides: one side has encoded or cut the text anew"),
        (matches.only_rollout, "only on the side of the rollout"),
        (matches.only_train, "only on the side of the trainer"),
        (matches.duplicates, "whose key an earlier row of the same side has"),
        (matches.without_key, "without a key"),
    ):
        if number:
            say(f"  {count(number, 'row')} {words}")


def print_json_report(
    output: Path, readings: list[SourceNumbers], matches: Matches | None, done: Written, seconds: float
) -> None:
    """Prints the report as JSON."""
    print_json(
        {
            "run": str(output), "sequences": done.rows, "tokens": done.tokens, "steps": len(done.steps), "seconds": seconds,
            "bytes": sum(reading.size for reading in readings), "rejected": done.rejected,
            "rejected_listed_in": REJECTED if done.rejected else None,
            "first_rejected": [asdict(rejected) for rejected in done.first_rejected],
            "join": None if matches is None else asdict(matches),
            "one_side_only": [reading.only for reading in readings],
            "beside": _beside(readings),
            "passed_over": _passed_over(readings),
            "set_aside": _set_aside(file for reading in readings for file in reading.files),
            "files": [_file_facts(file) for reading in readings for file in reading.files],
        }
    )  # fmt: skip


def _passed_over(readings: Iterable[SourceNumbers]) -> list[str]:
    """Names of files that were passed over; those of which something can be made come first."""
    names = [name for reading in readings for name in reading.passed_over]
    return sorted(names, key=lambda name: not name.endswith(")"))


def _beside(readings: Iterable[SourceNumbers]) -> dict[str, list[str]]:
    """Values that trainers keep beside their rows -> the names of such files."""
    both: dict[str, list[str]] = {}
    for what, names in (pair for reading in readings for pair in reading.beside.items()):
        both.setdefault(what, []).extend(names)
    return both


def _set_aside(files: Iterable[File]) -> dict[str, int]:
    """Sound parts of all files of which no row is made, in words -> their number."""
    total: Counter[str] = Counter()
    for file in files:
        total.update(file.set_aside)
    return dict(total)


def _file_facts(file: File) -> dict[str, object]:
    return {
        "file": file.name, "format": file.read_as.format.name if file.read_as else None, "rows": file.rows,
        "rejected": file.rejected, "refused": file.refused, "without_step": file.without_step,
        "not_taken": list(file.untaken),
    }  # fmt: skip


def why(readings: list[SourceNumbers], done: Written) -> str:
    """Why nothing was imported: the first row that was rejected, or that no file is of a known kind; and what else is there."""
    passed = _passed_over(readings)
    if done.first_rejected:
        others = done.rejected - 1
        more = [f"{others:,} more {'was' if others == 1 else 'were'} rejected"] if others else []
        beside = (
            [f"beside it: {', '.join(known)}"] if (known := [name for name in passed[:5] if name.endswith(")")]) else []
        )
        return "; ".join((rejection_words(done.first_rejected[0]), *more, *beside))
    named = ", ".join(passed[:5]) or "no file holds a row"
    return f"no file is of a kind that is read ({named}); name the format with --from, or its columns with --map"
