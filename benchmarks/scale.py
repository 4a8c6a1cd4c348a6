"""The cost of a run of many steps and ranks: to open, to describe, its first metrics, each verb; before and after compaction.

    python benchmarks/scale.py [--ranks 64] [--steps 1000] [--verbs] [--overview] [--full-steps 10000]

One rank records a segment of steps through the real Collector; the other steps and ranks are written from it, with logs of their
own. The files of a rank are links to those of the first, so that the same rows count once per rank, and `verify` finds that.
Every reading and verb is a fresh process without a cache; times are its CPU seconds, for this machine may have other work. The
last step is added to all logs while a reader follows the run. --overview: the first page of the dashboard, in a browser. --verbs:
verifies, compacts, prunes, and reads again. Beside it stands what a file costs, and what a run of --full-steps steps would at
that: what starting Python takes is taken off.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Collector, layout
from ratioscope.app.cli import FINDINGS, OK
from ratioscope.collectors.writing.parquet_file import parquet_bytes
from ratioscope.collectors.writing.segments import Overall

READ = """
import json, resource, sys
from ratioscope import open_run
from ratioscope.ingest.analysis.info import info
def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss >> 10
found, began = {}, spent()[0]
def took(name):
    global began
    now, most = spent()
    found[name], began = (now - began, most), now
run = open_run(sys.argv[1])
took("open")
run.refresh()
took("refresh")
info(run)
took("describe")
run.metrics()
took("metrics by step")
for log, line in json.load(open(sys.argv[2])).items():
    with open(log, "a") as file:
        file.write(line)
assert run.refresh()
took("follow a step")
frame = run.metrics()
took("its metrics")
print(json.dumps(found))
assert float(frame["mismatch/tokens"].sum()) > 0 and not run.quarantined
"""
VERBS = (("info",), ("metrics", "--json"), ("verify",))
"""Measured before and after compaction, each a process with an empty cache."""
IN_ONE_PROCESS = ("open", "refresh", "describe", "metrics by step", "follow a step", "its metrics")
Spent = tuple[float, int]
"""CPU seconds, and the most memory held in MB."""
SEGMENT = layout.SEGMENT_STEPS
REPEATED = layout.OVERALL_SEGMENTS
"""Segments that a file of overall statistics repeats."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--full-steps", type=int, default=10_000)
    parser.add_argument("--verbs", action="store_true")
    parser.add_argument("--overview", action="store_true")
    parser.add_argument(
        "--run", type=Path, help="where the run is written, and read if it is there; else it is deleted"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if not run.exists():
            began = time.perf_counter()
            write(run, options.ranks, options.steps)
            print(f"{options.ranks} ranks, {options.steps:,} steps, written in {time.perf_counter() - began:.0f} s")
        scale = options.full_steps / options.steps
        files = sum(len(names) for _, _, names in os.walk(run) if names)
        before = report(run, scale, files, verbs=options.verbs)
        if options.overview:
            # imported here, because it needs a browser
            import_module("_overview").overview(run)
        if not options.verbs:
            return
        for arguments in (("compact",), ("prune", "--yes")):
            tell(arguments[0], verb(run, arguments), scale, files)
        after = report(run, scale, files, verbs=True)
        for name, (spent, memory) in before.items():
            less = spent / max(after[name][0], 0.01), memory / after[name][1]
            print(f"{name:<26} was {less[0]:.1f} times the CPU and {less[1]:.1f} times the memory")


def report(run: Path, scale: float, files: int, *, verbs: bool) -> dict[str, Spent]:
    """The cost of each reading, and of each verb that only looks."""
    logs = list((run / layout.COMMITS).iterdir())
    print(f"{len(logs)} logs, {sum(log.stat().st_size for log in logs) / 1e6:.1f} MB")
    found = read(run)
    for arguments in VERBS if verbs else ():
        found[" ".join(("ratioscope", *arguments))] = verb(run, arguments)
    for name, spent in found.items():
        tell(name, spent, scale, files)
    return found


def tell(name: str, spent: Spent, scale: float, files: int) -> None:
    """One line."""
    own = max(0.0, spent[0] - (0.0 if name in IN_ONE_PROCESS else starting()))
    each, full = own / files * 1e3, spent[0] + own * (scale - 1)
    print(
        f"{name:<26} {spent[0]:8.1f} s of CPU {spent[1]:6,} MB   {each:6.2f} ms a file as written, {full:8.0f} s at full length"
    )


@cache
def starting() -> float:
    """CPU seconds of a process that only loads what a verb loads."""
    return spent_by([sys.executable, "-c", "import ratioscope.app.upkeep.maintenance, ratioscope.ingest.run"])[0][0]


def verb(run: Path, arguments: Sequence[str]) -> Spent:
    """The cost of a command, carried out by a process of its own, which must end well; `verify` finds the rows that are links."""
    ends = FINDINGS if arguments[0] == "verify" else OK
    return spent_by([sys.executable, "-m", "ratioscope", arguments[0], str(run), *arguments[1:]], ends)[0]


def spent_by(command: Sequence[str], ends: int = OK) -> tuple[Spent, bytes]:
    """CPU and memory of a process with an empty cache that ends with this code, and what it printed."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile() as printed:
        began = subprocess.Popen(command, env={**os.environ, "XDG_CACHE_HOME": cache}, stdout=printed)
        _, status, used = os.wait4(began.pid, 0)
        began.returncode = os.waitstatus_to_exitcode(status)
        assert began.returncode == ends, (command, began.returncode)
        printed.seek(0)
        return (used.ru_utime + used.ru_stime, used.ru_maxrss >> 10), printed.read()


def write(run: Path, ranks: int, steps: int) -> None:
    """A run in which every rank committed every step."""
    template = recorded(run)
    size = -(-steps // SEGMENT) * SEGMENT
    tables = list(shifted(pq.read_table(run / template["segment"]), range(0, size, SEGMENT)))
    segments, overall = [bytes(parquet_bytes(table, {}, codec="lz4")) for table in tables], list(overall_files(tables))
    first = pq.read_table(run / template["files"][0]["file"])
    tokens = [bytes(parquet_bytes(table, {})) for table in shifted(first, range(size))]
    for entry in [*template["files"], {"file": template["segment"]}]:
        (run / entry["file"]).unlink()
    (run / layout.commit_file(template["open"]["writer"])).unlink()
    for step, data in enumerate(tokens):
        put(run, [layout.token_file(step, writer(rank), 0) for rank in range(ranks)], data)
    for place, data in enumerate(segments):
        put(run, [layout.statistics_file(writer(rank), place) for rank in range(ranks)], data)
    for place, data in enumerate(overall):
        put(run, [layout.overall_file(writer(rank), place) for rank in range(ranks)], data)
    facts = {
        name: [described(data) for data in files]
        for name, files in (("tokens", tokens), ("segments", segments), ("overall", overall))
    }
    for rank in range(ranks):
        (run / layout.commit_file(writer(rank))).write_bytes(b"".join(chained(log({**template, **facts}, rank))))


def chained(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The lines of a log, each with the digest of those before it, so that the log is whole."""
    chain = ""
    for number, entry in enumerate(entries):
        own = {name: value for name, value in entry.items() if name not in ("line", "chain", "crc32")}
        line, chain = layout.chained_line(own, number, chain)
        yield line


def put(run: Path, paths: Sequence[Path], data: bytes) -> None:
    """One file under all of these names."""
    first, *others = paths
    (run / first).parent.mkdir(exist_ok=True)
    (run / first).write_bytes(data)
    for path in others:
        os.link(run / first, run / path)


def described(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def writer(rank: int) -> str:
    return f"r{rank:05d}-host-1-abcdef"


def recorded(run: Path) -> dict[str, Any]:
    """A segment of steps, and the lines that tell of it."""
    random, sync = np.random.default_rng(0), os.fsync
    os.fsync = lambda descriptor: None
    with Collector(run, rank=0, attempt=0) as collector:
        for step in range(SEGMENT):
            rollout = random.normal(-1, 0.3, (2, 50)).astype(np.float32)
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=rollout + np.float32(0.01))
            collector.flush()
    os.fsync = sync
    (path,) = (run / layout.COMMITS).iterdir()
    lines = [entry for line in path.read_bytes().splitlines() if (entry := layout.decode_line(line)) is not None]
    commits = [entry for entry in lines if entry["kind"] == layout.COMMIT]
    return {
        "open": next(entry for entry in lines if entry["kind"] == layout.OPEN),
        "close": next(entry for entry in lines if entry["kind"] == layout.CLOSE),
        "files": [entry for entry in commits if "rows" in entry],
        "segment": next(entry["file"] for entry in commits if "steps" in entry),
    }


def overall_files(segments: Sequence[pa.Table]) -> Iterator[bytes]:
    """The files that repeat the overall statistics of these segments; none for one segment."""
    files: list[bytes] = []

    def keep(number: int, rows: pa.Table, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        files.append(bytes(parquet_bytes(rows, {})))
        return {}

    overall = Overall(keep)
    for first in range(0, len(segments) if len(segments) > 1 else 0, REPEATED):
        for rows in segments[first : first + REPEATED]:
            overall.add({}, rows)
        overall.written()
    yield from files


def shifted(table: pa.Table, firsts: Iterable[int]) -> Iterator[pa.Table]:
    """The rows as they would be at other steps."""
    place = table.schema.get_field_index("step")
    for first in firsts:
        moved = pa.array(np.asarray(table["step"]) + first, table.schema.field(place).type)
        yield table.set_column(place, table.schema.field(place), moved)


def log(template: dict[str, Any], rank: int) -> Iterator[dict[str, Any]]:
    """The lines that the rank would have written."""
    name, count, waiting = writer(rank), 0, list[dict[str, Any]]()
    last_step, opened = len(template["tokens"]) - 1, template["open"]["time"]
    files = enumerate(template["overall"])
    yield {**template["open"], "writer": name, "rank": rank}
    for step, rows in enumerate(template["tokens"]):
        within, place = step % SEGMENT, step // SEGMENT
        told = {**template["files"][within], "file": layout.token_file(step, name, 0).as_posix(), "step": step}
        count += told["rows"]
        yield {**told, **rows, "offered": count}
        steps = list(range(step - within, step + 1))
        segment = {"kind": layout.COMMIT, "file": layout.statistics_file(name, place).as_posix(), "steps": steps}
        segment |= template["segments"][place]
        yield {**segment, "time": opened}
        waiting += [segment] if step == last_step or within == SEGMENT - 1 else []
        if template["overall"] and (step == last_step or len(waiting) == REPEATED):
            number, data = next(files)
            path, sources = layout.overall_file(name, number).as_posix(), [sha(each) for each in waiting]
            yield {"kind": layout.OVERALL, "file": path, **data, "time": opened, "segments": sources}
            waiting = []
    yield {**template["close"], "offered": count, "written": count}


def sha(segment: dict[str, Any]) -> dict[str, str]:
    """The file and the digest of a segment."""
    return {name: segment[name] for name in ("file", "sha256")}


def read(run: Path) -> dict[str, Spent]:
    """The cost of each reading, by one process that does them in turn; it begins without the last step and ends with it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as kept:
        json.dump(without_last_step(run), kept)
        kept.flush()
        _, printed = spent_by([sys.executable, "-c", READ, str(run), kept.name])
    return {name: (float(spent), int(memory)) for name, (spent, memory) in json.loads(printed).items()}


def without_last_step(run: Path) -> dict[str, str]:
    """Takes the lines from the rows of the last step on off each log: log -> these lines."""
    taken = dict[str, str]()
    for log in (run / layout.COMMITS).iterdir():
        if layout.is_offline(log.stem):
            continue  # the log of a verb
        lines = log.read_bytes().splitlines(keepends=True)
        last = max(place for place, line in enumerate(lines) if "rows" in (layout.decode_line(line) or {}))
        log.write_bytes(b"".join(lines[:last]))
        taken[str(log)] = b"".join(lines[last:]).decode()
    return taken


if __name__ == "__main__":
    main()
