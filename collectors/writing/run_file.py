"""run.json: name, trainer, settings and attempts of a run. The first writer creates it; a later start adds its attempt."""

import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ratioscope import process
from ratioscope.flat_json import loaded
from ratioscope.inside import content
from ratioscope.kept_settings import kept
from ratioscope.layout import RUN_FILE, RUN_MEMBERS, checksum
from ratioscope.record import SCHEMA_VERSION
from ratioscope.redaction import without_secrets
from ratioscope.version import __version__

from ..process.machine import code_commits, code_files, machine
from ..process.trainer_process import trainer_process
from ..process.variables import BY_HAND, LAUNCH
from .durable_file import create_whole, make_root, write_whole
from .same_experiment import script

LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "RAY_JOB_ID", "KUBERNETES_JOB_UID")
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", "MASTER_PORT")
JOB_RESTARTS = RESTARTS[:2]
NODES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""Variables that are equal on all nodes of one start, even if each node was given a launch name of its own."""
_NO_JOB = "ffffffff"  # RAY_JOB_ID of a worker that was started before its job
_VERSIONS = (
    "numpy", "pyarrow", "torch", "transformers", "trl", "vllm", "sglang", "verl", "accelerate", "areal", "bitsandbytes",
    "deepspeed", "flash_attn", "megatron.core", "nemo_rl", "openrlhf", "peft", "ray", "skyrl", "slime", "tensorrt_llm", "tinker",
    "torchao", "transformer_engine", "triton", "unsloth", "agentlightning", "art", "axolotl", "miles", "molt", "open_instruct",
    "prime_rl", "roll", "swift", "tinker_cookbook", "torchtitan", "xtuner",
)  # fmt: skip
"""Modules whose version and commit are recorded if they are in memory."""
SHARED = " of "
MOST_BYTES = 1 << 22  # limit of run.json, as in ingest


def run_info(name: str, trainer: str | None, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The content of run.json for a run that this process would create, with the files of its code: see `_with_commits`."""
    modules = {module: getattr(sys.modules.get(module), "__version__", None) for module in _VERSIONS}
    versions = {module: str(version) for module, version in modules.items() if version is not None}
    settings, own_machine = kept(config), machine()
    left_out = [*settings.secrets, *([f"and {settings.more} more"] if settings.more else [])]
    return {
        "name": without_secrets(str(name)),
        "trainer": None if trainer is None else without_secrets(str(trainer)),
        "config": settings.settings,
        "script": script(),
        **({"redacted": left_out} if left_out else {}),
        "versions": {"ratioscope": __version__, "python": platform.python_version(), **versions},
        "code": code_files(_VERSIONS),
        **({"machine": own_machine} if own_machine else {}),
        "created": time.time(),
    }


def start_run(root: Path, info: Mapping[str, Any]) -> None:
    """Makes the folder and run.json, if there is none yet."""
    make_root(root)
    create_whole(root, RUN_FILE, new_run(info))


def new_run(info: Mapping[str, Any]) -> bytes:
    """run.json of a run that begins now."""
    entry = {"attempt": 0, "time": time.time(), "launch": launch()}
    run = {"id": secrets.token_hex(8), **_with_commits(info), "schema_version": SCHEMA_VERSION, "attempts": [entry]}
    return _encoded(run)


def run_id(root: Path) -> str | None:
    """The `id` of the run, which its logs repeat; None if run.json has none or cannot be read."""
    try:
        found = loaded(content(root, RUN_FILE, MOST_BYTES))["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def note_attempt(root: Path, attempt: int, info: Mapping[str, Any]) -> None:
    """Adds an attempt to run.json, with the members of `info` that differ from the first attempt's.

    Several ranks may do so at once, for they write the same. A run.json whose checksum is wrong is not touched, because a new
    checksum would make it look sound.
    """
    run = loaded(content(root, RUN_FILE, MOST_BYTES))
    if not isinstance(run, dict) or run.pop("crc32", None) not in (None, checksum(run)):
        raise ValueError("it was changed after it was written")
    if RUN_MEMBERS.isdisjoint(run):
        raise ValueError("it is of another program")
    known = run.setdefault("attempts", [])
    if not isinstance(known, list) or not all(isinstance(entry, dict) for entry in known):
        raise ValueError("its attempts are no list of objects")
    if any(entry.get("attempt") == attempt for entry in known):
        return
    changed = {name: value for name, value in _with_commits(info).items() if value != run.get(name)}
    known.append({"attempt": attempt, "time": time.time(), "launch": launch(), **changed})
    write_whole(root, RUN_FILE, _encoded(run))


def _with_commits(info: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the commits of its code in place of files, as far as they are known. It reads files: a writer calls it."""
    code = code_commits(info.get("code", {}))
    rest = {name: value for name, value in info.items() if name != "code"}
    return {**rest, **({"code": code} if code else {})}


@cache
def launch() -> str:
    """The name of this start of the job: $RATIOSCOPE_LAUNCH, else what the launcher calls it, else a name for this process."""
    if told := trainer_process().launch:
        return told
    if given := os.environ.get(LAUNCH):
        nodes = [os.environ.get(name, "") for name in NODES]
        shared = SHARED + "/".join(nodes) if all(nodes) else ""
        # a launcher that counts no restarts has made the first start
        return "job:" + "/".join((given, *(os.environ.get(name, "0") for name in JOB_RESTARTS))) + shared
    names = [os.environ[name] for name in LAUNCHERS if os.environ.get(name, _NO_JOB) not in ("", _NO_JOB)]
    if names:
        names += [session] if (session := _session()) is not None else []
        return "job:" + "/".join((*names, *(os.environ.get(name, "") for name in RESTARTS)))
    return f"process:{process.host_name()}:{os.getpid()}:{secrets.token_hex(4)}"


def job() -> str | None:
    """The name of the start without the numbers of its restarts; None if no launcher gave it one."""
    if given := os.environ.get(LAUNCH):
        return f"job:{given}"
    names = [os.environ[name] for name in LAUNCHERS if os.environ.get(name, _NO_JOB) not in ("", _NO_JOB)]
    return "job:" + "/".join(names) if names else None


def is_restarted() -> bool:
    """True if a launcher started all processes again that it had started before: it counts."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in JOB_RESTARTS)


def is_certain(name: str) -> bool:
    """True if no later start can have this name: it was made for this start, or contains a Ray session."""
    given = os.environ.get(LAUNCH, "")
    is_made = given != "" and not given.startswith(BY_HAND)
    return name.startswith("job:") and (is_made or _session() is not None)


def is_of_ray(name: str) -> bool:
    """True if the start is a Ray job: Ray restarts single processes."""
    return name.startswith("job:") and os.environ.get("RAY_JOB_ID", _NO_JOB) not in ("", _NO_JOB)


def _session() -> str | None:
    """The name of the Ray cluster that this process is a worker of. It tells jobs of equal number in two clusters apart."""
    node = getattr(sys.modules.get("ray._private.worker"), "_global_node", None)
    found = getattr(node, "_session_name", None)
    return found if isinstance(found, str) and "RAY_JOB_ID" in os.environ else None


def _encoded(run: Mapping[str, Any]) -> bytes:
    """As JSON, with the checksum of what a reader will parse: JSON turns names that are no texts into texts."""
    found = json.loads(json.dumps(dict(run), allow_nan=False))
    return json.dumps({**found, "crc32": checksum(found)}, indent=2).encode() + b"\n"
