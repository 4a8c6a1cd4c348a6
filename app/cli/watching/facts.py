"""The facts of an alert for other programs: no path, no text of a prompt or token, no secret."""

import re
from typing import Any

from ratioscope.metrics.grading.alerts import Alert
from ratioscope.redaction import without_secrets
from ratioscope.version import __version__

from ...presentation.alert_words import alert_line
from ...presentation.escape import visible
from ...presentation.json_values import jsonable

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
