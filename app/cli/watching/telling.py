"""Tells other programs of an alert: no path, no text of a prompt or token, no secret.

A command of the user runs without a shell, with the facts in its environment, within a time limit.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.recorded_events import until
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.redaction import without_secrets
from ratioscope.version import __version__

from ...presentation.alert_words import alert_line
from ...presentation.escape import visible
from ...presentation.json_values import jsonable
from ...presentation.theme import LIGHT
from .webhook import Webhook, failure_of_post

Tell = Callable[[str, Alert], list[str]]
"""Tells others of an alert of the run of this name; returns what failed, in words."""

SECONDS = 30.0
"""Time limit of a command. Convention: to tell somebody takes less."""
PREFIX = "RATIOSCOPE_ALERT_"
"""Beginning of the environment variables that a command gets."""
_LONGEST_NAME = 200
_OF_PATH = re.compile(r"[/\\]")


def facts(run: str, alert: Alert, dashboard: str = "") -> dict[str, Any]:
    """Name -> value. run: the run's name; of a name like a path only the last part is told. dashboard: a URL that serves it."""
    name = visible(without_secrets(_OF_PATH.split(run.rstrip("/\\"))[-1]), _LONGEST_NAME)
    link = _link(dashboard, run) if dashboard else ""
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
        "subject": f"{alert.severity.label}: {alert.signal.title} in {name}",
        "body": "\n".join(
            line
            for line in (f"{alert.gaps}, {until(alert)}: {alert.reading}", f"Do: {alert.signal.remedy}", link)
            if line
        ),
        "link": link,
    }


def _link(dashboard: str, run: str) -> str:
    """The run's first page on a dashboard. Anything else in the URL, as a token, is left out."""
    parts = urlsplit(dashboard)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path or "/", urlencode({"run": run}), ""))


def variables(run: str, alert: Alert, dashboard: str = "") -> dict[str, str]:
    """The facts as environment variables of a command. Only the body has several lines."""
    return {
        f"{PREFIX}{name.upper()}": "\n".join(map(visible, str(value).split("\n")))
        for name, value in facts(run, alert, dashboard).items()
    }


def payload(run: str, alert: Alert, dashboard: str = "", host: str = "") -> dict[str, Any]:
    """A message of Slack or Discord, if the host is theirs, else the facts, of which `subject` and `body` make a mail."""
    told = facts(run, alert, dashboard)
    message = next((made for name, made in _MESSAGES.items() if host == name or host.endswith(f".{name}")), None)
    if message is not None:
        return message(told)
    plain: dict[str, Any] = jsonable({"source": "ratioscope", "version": __version__, **told})
    return plain


def _of_slack(told: Mapping[str, Any]) -> dict[str, Any]:
    """https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks: three signs are escaped, so nobody is called."""
    subject, body = (
        told[name].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for name in ("subject", "body")
    )
    return {"text": subject, "attachments": [{"color": LIGHT.severity[told["severity"]], "text": body}]}


def _of_discord(told: Mapping[str, Any]) -> dict[str, Any]:
    """https://docs.discord.com/developers/resources/webhook: it refuses a message without content or embeds; nobody is called."""
    subject, body = (_DISCORD_ACTIVE.sub(r"\\\1", told[name]) for name in ("subject", "body"))
    embed = {
        "title": subject[:256],
        "description": body[:4096],
        "color": int(LIGHT.severity[told["severity"]].lstrip("#"), 16),
        "url": told["link"] or None,
    }
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


_DISCORD_ACTIVE = re.compile(r"([\\`*_~|\[\]()<>#])")
_MESSAGES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "hooks.slack.com": _of_slack,
    "hooks.slack-gov.com": _of_slack,
    "discord.com": _of_discord,
    "discordapp.com": _of_discord,
}
"""Host of a chat service that takes no other JSON -> its message. Mattermost, Rocket.Chat and Zulip read `text` of the facts."""


def teller(words: Sequence[str] | None, hook: Webhook | None, dashboard: str = "") -> Tell:
    """Tells a command and a webhook of an alert."""

    def tell(run: str, alert: Alert) -> list[str]:
        failures = [] if words is None else [failure_of_command(words, variables(run, alert, dashboard))]
        failures += [] if hook is None else [failure_of_post(hook, payload(run, alert, dashboard, hook.host))]
        return [failure for failure in failures if failure]

    return tell


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
