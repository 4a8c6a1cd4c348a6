"""Tells if a start goes on with the experiment of a run: the trainer, the script and the settings are the same.

A fact that one side does not know is no difference. Settings that a start has of its own, such as the checkpoint that it
resumes, are none either: OF_A_START lists them.
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
    "the checkpoint it goes on from": (
        r"(auto_)?resum(e|ed|ing)(_.*)?", r".*_resume(_.*)?", r"(check_?point|ckpt)s?(ing)?(_.*)?",
        r"(save|load|last|latest|from|start|auto|keep|enable|use|async|dist)_(.*_)?(check_?point|ckpt).*",
        r"load(_(path|dir|step|from))?",
        r"save", r"restore(_.*)?", r"(start|initial|current|global|begin|last)_(step|epoch|iteration|iter|rollout_id)",
        r"iteration", r"overwrite_output_dir", r"is_restart", r"restarts?(_.*)?",
    ),
    "where it writes and what it is called": (
        r"out",
        r"(default_)?(output|out|save|saving|log|logs|logging|run|work|working|trial|exp|experiment|results?|cache|tmp|temp|root|"
        r"default_root|project|artifacts?|dump|profil(e|er|ing)|hydra|rollout_data|validation_data|local|debug)"
        r"_(dir|dirs|path|folder|directory|root|file|name|id|uri|to)",
        r"(run|launch|attempt|session)_(name|id|uid|number|tag|suffix)", r"launch", r"attempt",
        r"(trial|exp|experiment|job|project|task|process)_(id|uid|number)", r"uuid",
        r"(wandb|mlflow|tensorboard|swanlab|comet|trackio|neptune|clearml|tracking|loggers?|logging|report_to|hub)(_.*)?",
        r"tags?", r"notes?", r"output", r"save_to", r"verbose", r"debug", r"quiet", r"disable_tqdm", r"log_level.*",
    ),
    "when and on which machine it runs": (
        r".*timestamp.*", r"time", r"date", r"datetime", r".*_(at|time|date)", r"host(name)?s?", r"node(name|list|s|_rank|_id)?",
        r"ip", r"addr(ess)?", r"(.*_)?(hosts?|ips?|ports?|addr|address|addresses)",
        r"(?!.*(reward|teacher|judge|verif|rm_|dataset|data_))(.*_)?(url|urls|uri|endpoints?)", r"pids?",
        r"user(name)?", r"cwd", r"command(_line)?", r"argv", r"git(_.*)?", r"commit(_.*)?", r"device(s|_id|_index)?",
        r"cuda_visible_devices", r"slurm.*", r"rdzv.*", r"dist_(url|init_method)", r"init_method", r"(runtime_)?env_vars",
    ),
    "how many workers share the work": (
        r"world_size", r"((local|global|node|data_parallel|dp)_)?rank", r".*workers?(_.*)?", r"_?n_?gpus?(_.*)?", r"gpus?(_.*)?",
        r"num_(nodes|gpus|processes|procs?|cpus|devices|replicas|engines|actors|machines|shards|threads)(_.*)?",
        r".*_num_(gpus|nodes)(_.*)?",
        r"(actor|critic|rollout|ref)_num_(gpus|nodes)(_per_.*)?", r"n?nodes", r"n_?proc(_.*)?", r".*_nproc", r"replicas",
        r"(dp|data_parallel)_(size|degree)", r"prefetch_factor", r"pin_memory", r"dataloader_(num|pin|prefetch|persistent)_.*",
    ),
    "how long it goes on, and how often it saves, logs and tests": (
        r"(max|total|train|training|total_training|max_train|num_train)_(steps|iters|iterations|epochs|episodes|updates|rollouts?)",
        r"steps|epochs|episodes", r"num_(epochs|episodes|rollouts?|updates)", r"time_?out.*", r"time_?limit.*",
        r"(save|log|logging|eval|evaluation|test|val|validation|print|dump|profile)"
        r"_(steps?|interval|freq|frequency|every|every_.*|strategy|total_limit|limit|on_start|at_start|first_step|last)",
    ),
}  # fmt: skip
"""Reason -> names of settings that may differ between two starts of one experiment, as patterns in small letters and _."""
PARTS_OF_A_START = (
    r"(wandb|mlflow|tensorboard|swanlab|comet|trackio|neptune|clearml|tracking|loggers?|logging|hub|hydra|slurm|ray|ray_kwargs|ray_init|"
    r"checkpoints?|checkpointing|checkpoint_(config|manager)|ckpt|resume|launcher|cluster|resources?|env_vars|runtime_env)"
)
"""Names of groups of settings all of which may differ."""
_OF_A_START = re.compile("|".join(f"(?:{pattern})" for patterns in OF_A_START.values() for pattern in patterns))
_PARTS = re.compile(PARTS_OF_A_START)
_NOT_OF_A_START = re.compile(r"lora|peft|adapter")
"""Groups in which `rank` and the like are settings of the model."""
_PASSING = re.compile(
    r"0x[0-9a-f]{6,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d(?:[-_T ]?\d\d[-:_]\d\d(?:[-:_]\d\d)?)?|\d{6,}",
    re.I,
)
"""Addresses, dates, times and identifiers inside of a text."""
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


def differences(known: Facts, own: Facts, scripts: Collection[str] = ()) -> list[str]:
    """The differences of a run and a start, each in words; none if the start goes on with the experiment of the run.

    scripts: programs that recorded into the run. An older ratioscope named none: a start goes on with its runs. Another role of
    the job, such as an orchestrator, knows other settings: only those that both know count.
    """
    there, here = known.get("script"), own.get("script")
    if "script" not in known:
        return []
    is_same_script = isinstance(there, str) and isinstance(here, str) and _place(there) == _place(here)
    is_role = isinstance(here, str) and _place(here) in {_place(each) for each in scripts}
    if isinstance(there, str) and isinstance(here, str) and not is_same_script and not is_role:
        return [f"its script is {there}, here {here}"]
    trainers = [trainer_of(facts) for facts in (known, own)]
    is_other_trainer = None not in trainers and trainers[0] != trainers[1] and not (is_role and not is_same_script)
    found = [f"its trainer is {known['trainer']}, here {own['trainer']}"] if is_other_trainer else []
    return found + [
        f"its {name} is {_worded(a)}, here {_worded(b)}"
        for name, a, b in _changed(known.get("config"), own.get("config"), needs_both=not is_same_script)
    ]


def in_words(found: list[str]) -> str:
    """The first differences."""
    more = len(found) - _MOST_NAMED
    return "; ".join(found[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _changed(known: Any, own: Any, *, needs_both: bool) -> Iterator[tuple[str, Any, Any]]:
    there, here = dict(_flat("", known)), dict(_flat("", own))
    if not there or not here:
        return
    names = there.keys() & here.keys() if needs_both else there.keys() | here.keys()
    for name in sorted(names):
        a, b = there.get(name), here.get(name)
        if _plain(a) != _plain(b):
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
        if not passing.fullmatch(spoken) or _NOT_OF_A_START.search(above.lower()):
            yield from _flat(f"{above}.{name}" if above else str(name), part)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        with suppress(ValueError):
            return json.dumps(
                float(value)
            )  # a number that came as text, which _PASSING must not take for an identifier
        return _PASSING.sub("#", value)
    return "" if value is None else json.dumps(_number(value), sort_keys=True, default=str)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else value


def _worded(value: Any) -> str:
    words = "not set" if value is None else str(value)
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


def _place(script_path: str) -> str:
    """A folder and a name. Digits of the folder do not count: jobs copy their code into folders with numbers."""
    outer, _, name = script_path.rpartition("/")
    return f"{re.sub(r'[0-9]+', '#', outer)}/{name}"


def trainer_of(facts: Facts) -> str | None:
    """The trainer without its version: an update may come with a restart."""
    words = str(facts.get("trainer") or "").lower().split()
    return words[0] if words else None
