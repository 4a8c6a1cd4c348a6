"""Recording in Ray's workers, written for ray 2.60.

If the driver starts the cluster, its workers inherit the driver's environment, and with it the sitecustomize of `ratioscope run`.
Workers of a running cluster do not. For them the job's runtime environment gets our variables and a `worker_process_setup_hook`,
which begins recording when a worker starts, if ratioscope is installed on its host. Both are added to what the user gives to
`ray.init`. A submitted job gets the variables, and our folder on the PYTHONPATH of its command.

Two public calls are watched. For the first, Ray's own RAY_RUNTIME_ENV_HOOK would do, but it makes `ray.init` fail in a child
process whose Python has no ratioscope, and `uv run` ignores it. Ray Client (ray://) takes no callable, so it gets variables only.
"""

import copy
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..process.notice import warn
from ..process.variables import recording_variables
from .hooks import Call, Hook, put_on
from .recording import Recording

BOOTSTRAP = Path(__file__).parent.parent / "bootstrap"
"""The folder of our sitecustomize."""

HOOKS = (
    Hook("ray._private.worker", "init", swap="init", needed=False),
    Hook("ray.dashboard.modules.job.sdk", "JobSubmissionClient.submit_job", swap="submit_job", needed=False),
)
_ENV_VARS, _SETUP = "env_vars", "worker_process_setup_hook"
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_SETUP_IS_SET = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"

RuntimeEnvironment = Any
"""A ray.runtime_env.RuntimeEnv or a dict of the same keys. `Any`, because ray is no dependency."""


def await_ray() -> None:
    """Has the Ray workers of this process record too. Takes effect when the process imports ray."""
    put_on(HOOKS, Forwarder(), Recording(os.environ["RATIOSCOPE_RUN"], {}, "ray"))


class Forwarder:
    """Adds to the arguments of a call what makes the workers record."""

    def init(self, call: Call) -> dict[str, Any] | None:
        """`ray.init(runtime_env=...)`."""
        given = call.arguments
        if _starts_a_cluster(given.get("address"), given.get("_temp_dir")) and _is_inherited():
            return None
        asked = given.get("runtime_env")
        if asked is None:  # a job_config's own would be replaced by the argument
            asked = getattr(given.get("job_config"), "runtime_env", None)
        if _is_client(given.get("address")):
            warn("ray:// forwards no setup hook: workers record where `ratioscope run` started their node.")
            return {"runtime_env": with_variables(asked, {})}
        return {"runtime_env": with_recording(asked, submitted_environment())}

    def submit_job(self, call: Call) -> dict[str, Any]:
        """`JobSubmissionClient.submit_job(entrypoint=..., runtime_env=...)`, which `ray job submit` calls, too."""
        return {
            "runtime_env": with_variables(call.arguments.get("runtime_env"), {}),
            "entrypoint": with_bootstrap(call.arguments["entrypoint"]),
        }


def with_recording(asked: RuntimeEnvironment | None, submitted: Mapping[str, Any]) -> RuntimeEnvironment:
    """The runtime environment with our variables and a setup hook, which also calls the user's own.

    submitted: the runtime environment of the submitted job that this process drives. Ray refuses a name that both set.
    """
    merged = with_variables(asked, submitted)
    is_set = _SETUP in submitted or any(_SETUP_IS_SET in env.get(_ENV_VARS, {}) for env in (merged, submitted))
    if not is_set:
        merged[_SETUP] = setup_hook(merged.get(_SETUP))
    return merged


def with_variables(asked: RuntimeEnvironment | None, submitted: Mapping[str, Any]) -> RuntimeEnvironment:
    """The runtime environment with those of our variables that neither it nor the submitted job sets."""
    merged = {} if asked is None else copy.deepcopy(asked)
    taken = submitted.get(_ENV_VARS, {})
    ours = {name: value for name, value in recording_variables().items() if name not in taken}
    merged[_ENV_VARS] = {**ours, **(merged.get(_ENV_VARS) or {})}
    return merged


def setup_hook(theirs: Callable[[], Any] | str | None) -> Callable[[], None]:
    """The function that a worker calls when it starts: it begins recording, then calls the user's own hook.

    It is a nested function, which cloudpickle pickles by value, so that it can be loaded where ratioscope is not installed.
    """

    def ratioscope_install() -> None:
        import contextlib
        import importlib
        import logging

        try:
            importlib.import_module("ratioscope.collectors.environment").install()
        except Exception as error:
            with contextlib.suppress(Exception):  # a handler of the worker's that raises
                logging.getLogger("ratioscope").warning("this Ray worker is not recorded: %s", error)
        if isinstance(theirs, str):
            module, _, name = theirs.rpartition(".")
            getattr(importlib.import_module(module), name)()
        elif theirs is not None:
            theirs()

    return ratioscope_install


def with_bootstrap(entrypoint: str) -> str:
    """The shell command with our folder first on its PYTHONPATH, if the folder exists where the command runs."""
    folder = shlex.quote(str(BOOTSTRAP))
    return f'if [ -d {folder} ]; then export PYTHONPATH={folder}"${{PYTHONPATH:+:$PYTHONPATH}}"; fi; {entrypoint}'


def submitted_environment() -> dict[str, Any]:
    """The runtime environment of the submitted job that this process drives; {} if it drives none."""
    environment: dict[str, Any] = json.loads(os.environ.get(_JOB_CONFIG) or "{}").get("runtime_env") or {}
    return environment


def _starts_a_cluster(address: str | None, folder: str | None) -> bool:
    """True if ray.init will start nodes of its own, by Ray's own rule; False if that cannot be found out."""
    if _is_client(address):
        return False
    try:
        return import_module("ray._private.services").canonicalize_bootstrap_address(address, folder) is None
    except Exception:
        return False


def _is_client(address: str | None) -> bool:
    return (address or os.environ.get("RAY_ADDRESS") or "").startswith("ray://")


def _is_inherited() -> bool:
    """True if processes that this one starts load our sitecustomize."""
    return str(BOOTSTRAP) in os.environ.get("PYTHONPATH", "").split(os.pathsep) and not sys.flags.ignore_environment
