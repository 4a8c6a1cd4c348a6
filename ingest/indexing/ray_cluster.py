"""The engine of a Ray cluster: one task of Ray per step, on whichever node is free. Ray is imported when the engine is opened."""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pyarrow as pa

from ratioscope.errors import MissingExtra, SourceError

from .task import IndexTask, TaskOutcome, TaskResult, carried_out

_PATIENCE = 10.0
"""Seconds without the end of a task after which the cluster is asked whether it still has a CPU."""
_ADVICE = "`ray status` on its head node prints the address"
_QUEUED = 2
"""Tasks per CPU that are under way: one that runs, and one that waits on the way to the node."""


def open_cluster(address: str | None = None) -> "RayCluster":
    """Connects to the cluster at an address, to the one that RAY_ADDRESS names, or starts one on this machine.

    MissingExtra where Ray is not installed, SourceError where no cluster answers.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtra("--engine ray", "ray") from None
    if ray.is_initialized():
        return RayCluster(ray, owned=False)
    address = address or os.environ.get("RAY_ADDRESS") or None
    _look(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that Ray starts here would report to its makers
    try:
        ray.init(address=address, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        wanted = address or "the cluster of RAY_ADDRESS"
        raise SourceError(
            f"{wanted}: no Ray cluster answers ({error}); ray status --address ADDRESS shows one"
        ) from None
    return RayCluster(ray, owned=True)


def _look(address: str | None) -> None:
    """SourceError where nothing listens at HOST:PORT. Ray itself would try for eight minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", or the path of a socket
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise SourceError(f"{address}: no Ray cluster answers ({error}); {_ADVICE}") from None


@dataclass
class RayCluster:
    """Tasks on a cluster. Ray tries none of them again: the caller does, and names the steps that fail."""

    _ray: Any
    """The module."""
    owned: bool
    """True if this engine made the connection, and closes it."""
    _under_way: dict[Any, IndexTask] = field(default_factory=dict)
    """Reference of a result -> its task. The reference is dropped with the result, so that the object store stays small."""

    def __post_init__(self) -> None:
        self._remote = self._ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_one)

    @property
    def capacity(self) -> int:
        """Grows and shrinks with the cluster."""
        return _QUEUED * max(1, self._cpus())

    def start(self, task: IndexTask) -> None:
        self._under_way[self._remote.remote(task)] = task

    def ended(self) -> Iterable[TaskOutcome]:
        """SourceError where the cluster has no CPU any more."""
        while True:
            ended, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=_PATIENCE, fetch_local=False)
            if ended:
                return [self._outcome(reference) for reference in ended]
            if self._cpus() < 1:
                raise SourceError(
                    "the Ray cluster has no CPU: add a node, then index again; the steps that ended are kept"
                )

    def close(self) -> None:
        under_way, self._under_way = list(self._under_way), {}
        if self.owned:
            self._ray.shutdown()
            return
        for reference in under_way:
            self._ray.cancel(reference, force=True)

    def _cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _outcome(self, reference: Any) -> TaskOutcome:
        task = self._under_way.pop(reference)
        try:
            answer: TaskResult | str = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # its process or its node is gone, or memory was short
            answer = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return TaskOutcome(task, None, answer) if isinstance(answer, str) else TaskOutcome(task, answer)


def _one(task: IndexTask) -> TaskResult | str:
    """The result, or why there is none, in words: an exception may be of a class that the caller does not have."""
    pa.set_cpu_count(1)
    try:
        return carried_out(task)
    except Exception as error:  # whatever a step raises: the caller tries it again, and names it
        return f"{type(error).__name__}: {error}"
