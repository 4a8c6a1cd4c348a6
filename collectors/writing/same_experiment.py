"""Tells if a start goes on with the experiment of a run: the trainer, the script and the settings are the same.

A fact that one side does not know is no difference. Settings that a start has of its own, such as the checkpoint that it
resumes, are none either: OF_A_START lists them. Everything else that differs makes another experiment, in doubt: a run beside the
first loses nothing, and two experiments in one run hide each other's steps.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from ..process.ranks import in_ray_worker

Facts = Mapping[str, Any]
"""Content of run.json, or what a start would write there: trainer, script, config. `Any`: a stranger may have written it."""

OF_A_START = {
    "the checkpoint it goes on from, and the places it writes to": (
        r"(auto_)?resum(e|ed|ing)(_.*)?", r".*_resume(_.*)?", r"(check_?point|ckpt)s?(_(path|dir|folder|file|name|id|step))?",
        r"(save|load|last|latest|from|start)_(from_)?(check_?point|ckpt).*", r"load(_(path|dir|step))?", r"save(_(path|dir|to))?",
        r"restore(_.*)?", r"(start|initial|current|global|begin|last)_(step|epoch|iteration|iter|rollout_id)", r"iteration",
        r"overwrite_output_dir", r"is_restart", r"restarts?(_.*)?", r"out", r"output",
        r"(default_)?(output|out|saving|logs?|logging|run|work|working|cache|tmp|temp|root|default_root|artifacts?|dump|"
        r"profil(e|er|ing)|hydra|rollout_data|validation_data|local|debug)_(dirs?|path|folder|directory|root|file)",
    ),
    "how many workers share the work": (
        r"world_size", r"(.*_)?workers?(_(count|number|per_.*))?", r"(.*_)?(num|n)_?(gpus|nodes)(_per_.*)?", r"gpus?(_per_.*)?",
        r"num_(nodes|gpus|processes|procs?|cpus|devices|replicas|engines|actors|machines|shards|threads)(_per_.*)?",
        r"nnodes", r"(.*_)?n_?proc(_per_.*)?", r"replicas", r"(dp|data_parallel)_(size|degree)",
    ),
    "the process: its ids, time, machine and code": (
        r"(run|launch|attempt|session)_(name|id|uid|number|tag|suffix)", r"launch", r"attempt", r"uuid",
        r"(trial|job|task|process)_(id|uid|number)", r"(wandb|mlflow|tensorboard|swanlab|comet|trackio|neptune|clearml)(_.*)?",
        r"((start|run|job|launch|creation)_)?(timestamp|datetime)", r"(start|run|job|launch|creation)_(time|date)",
        r"(started|launched|created)(_at)?", r"host(name)?s?", r"node(name|list|_rank|_id)?", r"(.*_)?(hosts?|ips?|ports?)",
        r"(.*_)?addr(ess(es)?)?", r"(.*_)?(vllm|sglang|servers?|router|master|coordinator|engines?)_(urls?|uris?|endpoints?)",
        r"pids?", r"user(name)?", r"cwd", r"git(_.*)?", r"commit(_(hash|sha|id))?", r"device(s|_id|_index)?",
        r"cuda_visible_devices", r"slurm.*", r"rdzv.*", r"(dist_)?(url|init_method)", r"(runtime_)?env_vars",
        r"(local|global|node|data_parallel|dp)_rank",
    ),
}  # fmt: skip
"""Reason -> names of settings that may differ between two starts of one experiment, as patterns in small letters and _."""
PARTS_OF_A_START = (
    r"(wandb|mlflow|tensorboard|swanlab|comet|trackio|neptune|clearml|hydra|slurm|ray|ray_kwargs|ray_init|"
    r"checkpoints?|checkpointing|checkpoint_(config|manager)|ckpt|resume|launcher|cluster|resources?|env_vars|runtime_env)"
)
"""Names of groups of settings all of which may differ."""
_OF_A_START = re.compile("|".join(f"(?:{pattern})" for patterns in OF_A_START.values() for pattern in patterns))
_PARTS = re.compile(PARTS_OF_A_START)
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}", re.I)
"""In memory, inside of a text."""
_ID = re.compile(r"(?=[^/]*\d)[\w.-]{4,}")
"""A part of the name of a start: the number of a job, a process or a port, or the name of a host."""
_NO_SCRIPTS = ("", "-", "-c", "-m", "ipykernel_launcher.py", "colab_kernel_launcher.py", "default_worker.py")
_MOST_NAMED = 3
_LONGEST = 60


def script() -> str | None:
    """The program of this process: its name and that of its folder; None in a notebook or in a worker of Ray."""
    named = PurePath(sys.argv[0] if sys.argv else "")
    if in_ray_worker() or named.name in _NO_SCRIPTS:
        return None
    main = PurePath(str(getattr(sys.modules.get("__main__"), "__file__", "") or ""))
    whole = named if named.is_absolute() else main if main.name == named.name else PurePath(os.path.abspath(named))
    return "/".join(whole.parts[-2:]).lstrip("/")


def differences(known: Facts, own: Facts, scripts: Collection[str] = (), rank: int = 0) -> list[str]:
    """The differences of a run and a start, each in words; none if the start goes on with the experiment of the run.

    scripts: programs that recorded into the run. An older ratioscope named none: a start goes on with its runs. Another role of
    the job, such as an orchestrator, knows other settings: only those that both know count. rank: of this process; a setting
    `rank` of this value is its own.
    """
    there, here = known.get("script"), own.get("script")
    if "script" not in known:
        return []
    is_same_script = isinstance(there, str) and without_ids(there, known) == without_ids(here, own)
    is_role = without_ids(here, own) in scripts
    if isinstance(there, str) and isinstance(here, str) and not is_same_script and not is_role:
        return [f"its script is {there}, here {here}"]
    trainers = [trainer_of(facts) for facts in (known, own)]
    is_other_trainer = None not in trainers and trainers[0] != trainers[1] and not (is_role and not is_same_script)
    found = [f"its trainer is {known['trainer']}, here {own['trainer']}"] if is_other_trainer else []
    return found + [
        f"its {name} is {_worded(a)}, here {_worded(b)}"
        for name, a, b in _changed(known, own, needs_both=not is_same_script)
        if name.rpartition(".")[2] != "rank" or str(b) != str(rank)
    ]


def in_words(found: list[str]) -> str:
    """The first differences."""
    more = len(found) - _MOST_NAMED
    return "; ".join(found[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _changed(known: Facts, own: Facts, *, needs_both: bool) -> Iterator[tuple[str, Any, Any]]:
    there, here = dict(_flat("", known.get("config"))), dict(_flat("", own.get("config")))
    if not there or not here:
        return
    names = there.keys() & here.keys() if needs_both else there.keys() | here.keys()
    for name in sorted(names):
        a, b = there.get(name), here.get(name)
        if _plain(a, known) != _plain(b, own):
            yield name, a, b


def _flat(above: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Dotted name -> value, without settings of a start and without those that say nothing."""
    if not isinstance(value, Mapping):
        if value not in (None, "", [], ()):
            yield above, value
        return
    for name, part in value.items():
        spoken = re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_")
        passing = _PARTS if isinstance(part, Mapping) else _OF_A_START
        if not passing.fullmatch(spoken):
            yield from _flat(f"{above}.{name}" if above else str(name), part)


def _plain(value: Any, facts: Facts) -> str:
    if isinstance(value, str):
        with suppress(ValueError):
            return json.dumps(float(value))  # a number that came as text, which is no identifier
        return _ADDRESS.sub("#", str(without_ids(value, facts)))
    return "" if value is None else json.dumps(_number(value), sort_keys=True, default=str)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else value


def _worded(value: Any) -> str:
    words = "not set" if value is None else str(value)
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


def without_ids(text: object, facts: Facts) -> object:
    """The text without the numbers of its own job and process: jobs copy their code into folders that are named after them."""
    ids = sorted(set(_ID.findall(str(facts.get("launch") or ""))), key=len, reverse=True)
    return re.sub("|".join(map(re.escape, ids)), "#", text) if ids and isinstance(text, str) else text


def trainer_of(facts: Facts) -> str | None:
    """The trainer without its version: an update may come with a restart."""
    words = str(facts.get("trainer") or "").lower().split()
    return words[0] if words else None
