"""Tells if two processes belong to one start of a job, as a late rank, a restarted one, a child, or a second writer does.

A run as a start of a job finds it in its folder.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ratioscope import process
from ratioscope.errors import ConfigError
from ratioscope.flat_json import loaded
from ratioscope.inside import content, entries
from ratioscope.layout import RUN_FILE, RUN_MEMBERS, SCALARS, STATISTICS, TOKENS

from .joining import begins_anew, is_named, is_same_name, openings
from .run_file import MOST_BYTES, is_certain, is_restarted, launch
from .same_experiment import differences, trainer_of, without_ids
from .start_files import Start

TOGETHER_SECONDS = 600.0
"""The processes of one start begin within ten minutes. A convention, for those that a launcher names like an earlier start."""

_MOST_NAMES = 1_000_000


def is_same_start(base: Path, first: Start, own: Start, info: Mapping[str, Any]) -> bool:
    """True if the process that decided belongs to this start of the job. info: what this process would write into run.json."""
    folder, here = base.with_name(first.folder), process.here()
    is_here = (first.process.host, first.process.namespace) == (here.host, here.namespace)
    if first.token == own.token:
        return True
    if own.job is not None and first.job == own.job and is_restarted():
        return not differences_to(folder, info, own.rank)
    if is_named(own.launch) and is_same_name(first.launch, own.launch):
        if is_certain(own.launch):
            return not (_is_over(folder, first, own) and _is_next_experiment(folder, info, own.rank))
        return _is_at_work(folder, first, own)
    if is_here and first.process.pid == own.process.pid:
        return not (has_ended(folder, first) or _is_next_experiment(folder, info, own.rank))
    if is_here and not is_named(own.launch) and _are_side_by_side(folder, first, own):
        return not differences_to(folder, info, own.rank)
    return is_here and _are_kin(first, own)


def has_ended(run: Path, start: Start) -> bool:
    """True if all that the process recorded there is closed."""
    own = [
        each for each in openings(run) if (each.get("host"), each.get("pid")) == (start.process.host, start.process.pid)
    ]
    return bool(own) and all(each["closed"] for each in own)


def _is_over(folder: Path, first: Start, own: Start) -> bool:
    """True if nothing of the start goes on any more: one launch may run several programs, one after the other."""
    if first.process.life(process.here()) != "gone" and not has_ended(folder, first):
        return False
    ours = (each for each in openings(folder) if is_same_name(each.get("launch"), own.launch) and not each["closed"])
    return all(process_of(each).life(process.here()) == "gone" for each in ours)


def _is_next_experiment(folder: Path, info: Mapping[str, Any], rank: int) -> bool:
    """True if the same program begins again with other settings. Another program, or trainer, is another part of the job."""
    known = as_newest(run_file_of(folder))
    is_same = known.get("script") == info.get("script") and trainer_of(known) == trainer_of(info)
    return is_same and bool(differences_to(folder, info, rank))


def _is_at_work(folder: Path, first: Start, own: Start) -> bool:
    """True if a start of our name still goes on: a launcher may give the same name to a later start."""
    life = first.process.life(process.here())
    if life == "alive":  # a rank is there once: Slurm gives one name to all that runs side by side in an allocation
        is_pool = first.part_of is not None or own.part_of is not None
        return first.rank != own.rank or first.process.pid == own.process.pid or is_pool
    if any(is_same_name(writer.get("launch"), own.launch) for writer in openings(folder)):
        with suppress(ConfigError):
            return not begins_anew(folder, own.rank, own.part_of)
    return life == "unknown" and time.time() - first.time < TOGETHER_SECONDS


def _are_kin(first: Start, own: Start) -> bool:
    """True if one process started the other by multiprocessing or a fork, or if both are of one pool."""
    theirs, ours = (f"{each.process.host}:{each.process.pid}" for each in (first, own))
    is_pool = own.part_of is not None and own.part_of in (first.part_of, theirs)
    return is_pool or first.part_of == ours or (own.parent == first.process.pid and own.rank == first.rank)


def _are_side_by_side(folder: Path, first: Start, own: Start) -> bool:
    """True if ranks without a launcher were started by one process, and another rank of them is alive."""
    if own.parent is None or first.parent != own.parent:
        return False
    if first.process.life(process.here()) == "alive":
        return first.rank != own.rank
    others = _others(folder, own)
    return any(
        each.life(process.here()) == "alive" and process.parent_of(each.pid or 0) == own.parent for each in others
    )


def _others(folder: Path, own: Start) -> Iterator[process.Process]:
    yield from (process_of(each) for each in openings(folder) if each.get("rank") != own.rank and not each["closed"])


def process_of(writer: Mapping[str, Any]) -> process.Process:
    """The process that an open line names."""
    return process.Process(writer.get("host"), int(writer["pid"]), writer.get("started"), writer.get("namespace"))


def differences_to(run: Path, info: Mapping[str, Any], rank: int) -> list[str]:
    """The differences of the newest attempt of the run and a start, each in words. rank: of this process."""
    scripts = {str(without_ids(writer["script"], writer)) for writer in openings(run) if writer.get("script")}
    return differences(as_newest(run_file_of(run)), {**info, "launch": launch()}, scripts, rank)


def has_steps(root: Path) -> bool:
    """True if there is any step."""
    marks = ((TOKENS, "step="), (STATISTICS, ".parquet"), (SCALARS, ".parquet"))
    return any(mark in name for part, mark in marks for name in names_in(root, part))


def names_in(root: Path, part: str = "") -> Iterator[str]:
    """Names in a folder of the run; none where it cannot be listed."""
    with suppress(OSError):
        yield from (found.name for found in entries(root, part, _MOST_NAMES))


def run_file_of(root: Path) -> dict[str, Any]:
    """run.json; empty where it cannot be read."""
    try:
        found = loaded(content(root, RUN_FILE, MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_of_a_run(run_file: Mapping[str, Any]) -> bool:
    """True unless this is the run.json of another program; one that cannot be read may be ours."""
    return not run_file or not RUN_MEMBERS.isdisjoint(run_file)


def as_newest(run: Mapping[str, Any]) -> dict[str, Any]:
    """run.json as the newest attempt described itself."""
    attempts = run.get("attempts")
    entry = attempts[-1] if isinstance(attempts, list) and attempts and isinstance(attempts[-1], dict) else {}
    return {**run, **{name: value for name, value in entry.items() if value not in (None, {}, [])}}


def described(root: Path) -> str:
    """The run in a few words: its trainer and steps."""
    trainer = as_newest(run_file_of(root)).get("trainer")
    steps = [int(name[5:]) for name in names_in(root, TOKENS) if re.fullmatch(r"step=-?\d{1,18}", name)]
    span = f", steps {min(steps)} to {max(steps)}" if steps else ""
    return f"a run{f' of {str(trainer)[:80]}' if trainer else ''}{span}"
