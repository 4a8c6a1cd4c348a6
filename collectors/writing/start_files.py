"""The files in which the first process of each start of a job keeps the folder that the start records into.

`.starts/000001.json` lies in the folder that the job named. A name is taken by one process alone, on a network file system too:
two starts at one instant decide one after the other.

Two processes belong to one start of a job, as a late rank, a restarted one, a child, or a second writer does: `Start` tells it.
A run is then as a start of a job finds it in its folder.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratioscope import process
from ratioscope.errors import ConfigError
from ratioscope.flat_json import loaded
from ratioscope.inside import content, entries
from ratioscope.layout import RUN_FILE, RUN_MEMBERS, SCALARS, STARTS, STATISTICS, TOKENS

from ..process.trainer_process import trainer_process
from .durable_file import create_whole, delete, make_folder
from .joining import begins_anew, is_named, is_same_name, openings, process_of
from .run_file import MOST_BYTES, is_certain, is_restarted, job, launch
from .same_experiment import differences, trainer_of, without_ids

_MOST = 16


@dataclass(frozen=True)
class Start:
    """A process that may decide for its start of the job, or has."""

    rank: int
    """As launchers number processes; 0 if nobody told it."""
    token: str
    """Names the collector, also in its forked children and after its writer was started again."""
    part_of: str | None
    """The pool or parent that the process belongs to, see ranks.py."""
    launch: str
    """The name of the start of the job, see run_file.py."""
    job: str | None
    """The launch without the numbers of its restarts."""
    process: process.Process
    parent: int | None
    """The process that started it."""
    folder: str = ""
    """The name of the folder that was decided on."""
    time: float = field(default_factory=time.time)
    """When it decided, in seconds since 1970."""


def this_start(rank: int, token: str, part_of: str | None) -> Start:
    """This process, which has decided nothing yet."""
    own, here = trainer_process(), process.here()
    named = process.Process(here.host, own.pid, own.started, here.namespace)
    return Start(rank, token, part_of, launch(), job(), named, process.parent_of(own.pid))


def starts_of(base: Path) -> dict[int, Start | None]:
    """Number -> start that decided, the newest first; None for one that cannot be read."""
    try:
        names = [found.name for found in entries(base, STARTS)]
    except OSError:
        return {}
    numbers = sorted((int(name[:-5]) for name in names if re.fullmatch(r"\d{6,9}\.json", name)), reverse=True)
    return {number: _start(base, number) for number in numbers[:_MOST]}


def _start(base: Path, number: int) -> Start | None:
    try:
        found = loaded(content(base, _file(number), MOST_BYTES))
        folder = str(found["folder"])
        if not re.fullmatch(rf"{re.escape(base.name)}(-[1-9]\d{{0,8}})?", folder):
            return None
        there = process_of(found)
        told = int(found["rank"]), str(found["token"]), found.get("part_of"), str(found["launch"]), found.get("job")
        return Start(*told, there, found.get("parent"), folder, float(found["time"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file(number: int) -> str:
    return f"{STARTS}/{number:06d}.json"


def is_claimed(base: Path, number: int, own: Start, root: Path) -> bool:
    """Writes the decision. False if another start was faster. If none can be written, each process decides for itself."""
    entry = {
        "folder": root.name, "rank": own.rank, "token": own.token, "part_of": own.part_of, "launch": own.launch, "job": own.job,
        "host": own.process.host, "pid": own.process.pid, "started": own.process.started, "namespace": own.process.namespace,
        "parent": own.parent, "time": own.time,
    }  # fmt: skip
    try:
        make_folder(base, STARTS)
        is_first = create_whole(base, _file(number), json.dumps(entry).encode())
        delete(base, [_file(number - _MOST)] if is_first and number > _MOST else [])
    except OSError:
        return True
    return is_first


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
