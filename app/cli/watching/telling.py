"""Tells other programs of an alert: no path, no text of a prompt or token, no secret.

A command of the user runs without a shell, with the facts in its environment, within a time limit.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.redaction import without_secrets
from ratioscope.version import __version__

from ...presentation.alert_words import alert_line
from ...presentation.escape import visible
from ...presentation.json_values import jsonable

SECONDS = 30.0
"""Time limit of a command. Convention: to tell somebody takes less."""
PREFIX = "RATIOSCOPE_ALERT_"
"""Beginning of the environment variables that a command gets."""
_LONGEST_NAME = 200
_OF_PATH = re.compile(r"[/\\]")


def facts(run: str, alert: Alert) -> dict[str, Any]:
    """Name -> value. run: the run's name; of a name like a path only the last part is told."""
    name = visible(without_secrets(_OF_PATH.split(run.rstrip("/\\"))[-1]), _LONGEST_NAME)
    return {
        "run": name,
        "severity": alert.severity.label,
        "signal": alert.signal.name,
        "title": alert.signal.title,
        "gaps": alert.gaps,
        "first_step": alert.first_step,
        "last_step": alert.last_step,
        "peak_step": alert.peak_step,
        "peak": alert.peak,
        "reading": alert.reading,
        "remedy": alert.signal.remedy,
        "text": f"{name}: {alert_line(alert)}",
    }


def variables(run: str, alert: Alert) -> dict[str, str]:
    """The facts as environment variables of a command."""
    return {f"{PREFIX}{name.upper()}": visible(str(value)) for name, value in facts(run, alert).items()}


def payload(run: str, alert: Alert) -> dict[str, Any]:
    """The facts as the JSON of a webhook. `text` is the line that chat services show."""
    plain: dict[str, Any] = jsonable({"source": "ratioscope", "version": __version__, **facts(run, alert)})
    return plain


def arguments_of(command: str) -> tuple[str, ...]:
    """The words of a command line, split as a shell would; no shell ever sees them. ConfigError if there are none."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"--on-alert: {error}; wanted a command line such as: notify-send 'an alert'") from error
    if not words or any("\0" in word for word in words):
        raise ConfigError("--on-alert is empty; wanted a command line such as: notify-send 'an alert'")
    return words


def failure_of_command(words: Sequence[str], facts: Mapping[str, str], seconds: float = SECONDS) -> str:
    """Runs the command to its end; returns why it failed, in words, or an empty text. It never raises for a failure."""
    try:
        process = subprocess.Popen(
            words, env={**os.environ, **facts}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return f"--on-alert: {words[0]} cannot be run: {getattr(error, 'strerror', None) or error}"
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"--on-alert: {words[0]} took more than {seconds:g} s, and was ended"
    finally:
        if process.poll() is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"--on-alert: {words[0]} ended with {code}" if code else ""
