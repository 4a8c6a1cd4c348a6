"""MLflow, trackio and SwanLab, each by its own package, which finds its user's own login. No line here reads one.

Any: all three are optional packages.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ratioscope.errors import MissingExtra, RatioscopeError

from ...presentation.privacy import scrubbed_text

_TAG = "ratioscope.id"
_LONGEST_NAME = 128


class Called:
    """A logger that is called once for each step, and once at the end."""

    def __init__(self, name: str, log: Callable[[int, Mapping[str, float]], object], end: Callable[[], object]) -> None:
        self._name, self._log, self._end = name, log, end

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        with failing_of(self._name, "take a row"):
            self._log(step, numbers)

    def close(self) -> None:
        with failing_of(self._name, "finish"):
            self._end()


def mlflow_logger(place: str, run_id: str, name: str) -> Called:
    """A run of the experiment `ratioscope` at a tracking URI. A later sync finds the run by its tag."""
    _demand("mlflow")
    mlflow: Any = import_module("mlflow")
    with failing_of("MLflow", "open a run"):
        client = mlflow.tracking.MlflowClient(tracking_uri=place)
        found = client.get_experiment_by_name("ratioscope")
        experiment = client.create_experiment("ratioscope") if found is None else found.experiment_id
        earlier = client.search_runs([experiment], filter_string=f"tags.`{_TAG}` = '{run_id}'", max_results=1)
        run = (
            earlier[0] if earlier else client.create_run(experiment, run_name=name[:_LONGEST_NAME], tags={_TAG: run_id})
        )
        own = run.info.run_id

    def log(step: int, numbers: Mapping[str, float]) -> None:
        for key, value in numbers.items():
            client.log_metric(own, key, value, step=step)

    return Called("MLflow", log, lambda: client.set_terminated(own))


def trackio_logger(place: str, run_id: str, name: str) -> Called:
    """A run of a project on this machine."""
    _demand("trackio")
    trackio: Any = import_module("trackio")
    with failing_of("trackio", "open a run"):
        trackio.init(project=place, name=f"{name[:_LONGEST_NAME]} {run_id[-6:]}", resume="allow")
    return Called("trackio", lambda step, numbers: trackio.log(dict(numbers), step=step), trackio.finish)


def swanlab_logger(place: str, run_id: str, name: str) -> Called:
    """An experiment of a project. SWANLAB_MODE=offline writes a folder and sends nothing."""
    _demand("swanlab")
    swanlab: Any = import_module("swanlab")
    with failing_of("SwanLab", "open a run"):
        swanlab.init(project=place, experiment_name=name[:_LONGEST_NAME])
    return Called("SwanLab", lambda step, numbers: swanlab.log(dict(numbers), step=step), swanlab.finish)


@contextmanager
def failing_of(logger: str, doing: str) -> Iterator[None]:
    """Turns whatever a logger raises into one line."""
    try:
        yield
    except RatioscopeError:
        raise
    except Exception as error:  # each has errors of its own, of its protocol, and of its store
        words = scrubbed_text(" ".join(str(error).split()))[:300]  # a client may quote the address of a request
        raise RatioscopeError(
            f"{logger} could not {doing}: {type(error).__name__}: {words}; what was sent is kept; try the same command again"
        ) from error


def _demand(name: str) -> None:
    if find_spec(name) is None:
        raise MissingExtra(f"ratioscope sync --to {name}", name)
