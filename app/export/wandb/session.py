"""An open W&B run of ours. Only this file imports wandb, and only `ratioscope wandb sync` imports this file.

W&B keeps and finds the user's key itself; no line here reads it. Machine facts, console, code and git state stay here.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError, MissingExtra, RatioscopeError

from ...presentation.privacy import scrubbed_text
from .rows import PREFIX, SEVERITY, STEP, WandbHistogram
from .sync_record import Destination

INIT_SECONDS = 30
"""Seconds that W&B may take to answer."""
JOB = "ratioscope"
LEVELS = ("INFO", "WARN", "ERROR")
"""Severity -> W&B's level of an alert."""
LONGEST_NAME = 128


class Session:
    """An open W&B run. Every failure of W&B is a RatioscopeError with W&B's own words."""

    def __init__(self, wandb: Any, opened: Any) -> None:  # Any: wandb is an optional package
        self._wandb, self._run = wandb, opened

    @property
    def folder(self) -> Path:
        """The folder that W&B writes this run to."""
        return Path(self._run.dir).parent

    @property
    def link(self) -> str:
        """The page of the run; "" for a run that is written to a folder only."""
        return "" if self._run.offline else str(self._run.url or "")

    @property
    def rows(self) -> int:
        """The number of the next row, as far as W&B knows."""
        return int(self._run.step)

    @property
    def newest_step(self) -> int | None:
        """The newest step that the W&B run had before it was opened again."""
        known = self._run.summary.get(STEP) if self._run.resumed else None
        return int(known) if isinstance(known, int | float) else None

    def define(self, names: Sequence[str]) -> None:
        """Draws each of these over our own step. Explicit names: a glob with a summary fills it with NaN for histograms."""
        with failing("name its metrics"):
            self._run.define_metric(STEP, hidden=True)
            for name in (*(f"{PREFIX}/{name}" for name in names), SEVERITY):
                self._run.define_metric(name.replace(".", "\\."), step_metric=STEP)

    def log(self, number: int, content: Mapping[str, float], counts: Mapping[str, WandbHistogram]) -> None:
        """Sends one row. number: its place among all rows of the W&B run."""
        with failing("take a row"):
            drawn = {
                f"{PREFIX}/{gap}/log_ratio": self._wandb.Histogram(np_histogram=(list(each.counts), list(each.edges)))
                for gap, each in counts.items()
            }
            self._run.log({**content, **drawn}, step=number)

    def alert(self, title: str, text: str, severity: int) -> None:
        with failing("take an alert"):
            self._run.alert(title=title, text=text, level=getattr(self._wandb.AlertLevel, LEVELS[severity]))

    def summary(self, name: str, value: str) -> None:
        with failing("take a summary"):
            self._run.summary[f"{PREFIX}/{name}"] = value

    def table(
        self, number: int, name: str, header: Sequence[str], rows: Sequence[Sequence[str | float | None]]
    ) -> None:
        with failing("take a table"):
            table = self._wandb.Table(columns=list(header), data=[list(row) for row in rows], allow_mixed_types=True)
            self._run.log({f"{PREFIX}/{name}": table}, step=number)

    def artifact(self, name: str, kind: str, file: str, text: str) -> None:
        """Keeps a file with the W&B run."""
        with failing("take the report"):
            artifact = self._wandb.Artifact(name, type=kind)
            with artifact.new_file(file, mode="w", encoding="utf-8") as written:
                written.write(text)
            self._run.log_artifact(artifact)


@contextmanager
def session(target: Destination, run_id: str, name: str, config: Mapping[str, str]) -> Iterator[Session]:
    """The W&B run, opened, and finished afterwards. ConfigError, before anything is sent, if nobody is logged in."""
    wandb = _wandb()
    if not target.offline:
        demand_login(wandb)
    with failing("open a run"):
        opened = wandb.init(
            project=target.project,
            entity=target.entity,
            group=target.group,
            job_type=JOB,
            id=run_id,
            name=name[:LONGEST_NAME],
            config=dict(config),
            resume=None if target.offline else "allow",
            mode="offline" if target.offline else "online",
            settings=_settings(wandb),
        )
    try:
        yield Session(wandb, opened)
    except BaseException:
        with suppress(Exception):  # the first failure is the one to tell
            opened.finish(exit_code=1)
            wandb.teardown()
        raise
    with failing("finish the run"):
        opened.finish()
        wandb.teardown()  # finish may return before W&B's process has written its log to the end


def demand_extras() -> None:
    """MissingExtra unless wandb is installed, and what draws the report."""
    if find_spec("wandb") is None:
        raise MissingExtra("wandb sync", "wandb")
    if find_spec("plotly") is None:
        raise MissingExtra("the report that goes with a W&B run", "dashboard")


def demand_login(wandb: Any) -> None:
    """ConfigError unless W&B finds credentials of the user's own. It is not asked for a key, and asks for none."""
    with failing("look for a login"):
        logged_in = wandb.login(prompt=False, verify=False)
    if not logged_in:
        raise ConfigError(
            "nobody is logged in to W&B here, and nothing was sent; try: wandb login, or set WANDB_API_KEY, or --offline to write"
            " a folder that `wandb sync` uploads later"
        )


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Turns whatever W&B raises into one line."""
    try:
        yield
    except RatioscopeError:
        raise
    except Exception as error:  # W&B raises errors of its own, of its protocol, and of its process
        words = scrubbed_text(" ".join(str(error).split()))[:300]  # a client may quote the address of a request
        raise RatioscopeError(
            f"W&B could not {doing}: {type(error).__name__}: {words}; what was sent is kept; try the same command"
            " again, or --offline"
        ) from error


def _wandb() -> Any:
    demand_extras()
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb reports its own crashes to its makers otherwise
    # Weave traces calls of models, or advises it: this process makes none.
    os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")
    with failing("start"):
        import wandb

        return wandb


def _settings(wandb: Any) -> Any:
    return wandb.Settings(
        init_timeout=INIT_SECONDS,
        host=JOB,  # else the name of this machine, whatever x_disable_machine_info says
        console="off",
        silent=True,
        save_code=False,
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
