"""Tells other programs of an alert, and of a run that dies or is back: no path, no text of a prompt or token, no secret.

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
from ...presentation.run_state import ALARMS, Life
from ...presentation.theme import LIGHT, MARKS
from .looks import LifeChange, News
from .webhook import Webhook, failure_of_post

Tell = Callable[[str, News], list[str]]
"""Tells others of news of the run of this name; returns what failed, in words."""

SECONDS = 30.0
"""Time limit of a command. Convention: to tell somebody takes less."""
PREFIX = "RATIOSCOPE_ALERT_"
"""Beginning of the environment variables that a command gets."""
_LONGEST_NAME = 200
_OF_PATH = re.compile(r"[/\\]")


_LIVES: Mapping[Life, tuple[str, str]] = {
    "dead": ("is dead", "Read the trainer's log, and start it again."),
    "silent": ("is silent", "See whether the trainer is at work."),
    "live": ("lives again", ""),
    "ended": ("has ended", ""),
}
"""Life of a run that was or is dead or silent -> what it does, and the remedy."""


def facts(run: str, news: News, dashboard: str = "") -> dict[str, Any]:
    """Name -> value. run: the run's name; of a name like a path only the last part is told. dashboard: a URL that serves it."""
    name = visible(without_secrets(_OF_PATH.split(run.rstrip("/\\"))[-1]), _LONGEST_NAME)
    link = _link(dashboard, run) if dashboard else ""
    own, first = _of_life(name, news) if isinstance(news, LifeChange) else _of_alert(name, news)
    do = f"Do: {own['remedy']}" if own["remedy"] else ""
    body = "\n".join(filter(None, (first, do, link)))
    return {"run": name, **own, "text": f"{name}: {line_of(news)}", "body": body, "link": link}


def line_of(news: News) -> str:
    """The news in one line."""
    if isinstance(news, LifeChange):
        mark = MARKS[ALARMS.get(news.state.life, "healthy")]
        return news.state.word.removeprefix(mark).strip()
    return alert_line(news)


def _of_alert(name: str, alert: Alert) -> tuple[dict[str, Any], str]:
    """The facts of an alert, and the first line of a mail."""
    severity, title = alert.severity.label, alert.signal.title
    own = {
        "severity": severity, "signal": alert.signal.name, "title": title, "gaps": alert.gaps,
        "first_step": alert.first_step, "last_step": alert.last_step, "peak_step": alert.peak_step, "peak": alert.peak,
        "reading": alert.reading, "remedy": alert.signal.remedy, "subject": f"{severity}: {title} in {name}",
    }  # fmt: skip
    return own, f"{alert.gaps}, {until(alert)}: {alert.reading}"


def _of_life(name: str, change: LifeChange) -> tuple[dict[str, Any], str]:
    """The same of a run that dies, falls silent or is back. It has no value, and its step is the newest one."""
    state, severity = change.state, ALARMS.get(change.state.life, "healthy")
    title, remedy = _LIVES[state.life]
    own = {
        "severity": severity, "signal": "liveness", "title": f"The run {title}", "gaps": "", "first_step": state.step,
        "last_step": state.step, "peak_step": state.step, "peak": None, "reading": line_of(change), "remedy": remedy,
        "subject": f"{severity}: {name} {title}",
    }  # fmt: skip
    return own, line_of(change) if state.step is None else f"{line_of(change)}; the newest step is {state.step}"


def _link(dashboard: str, run: str) -> str:
    """The run's first page on a dashboard. Anything else in the URL, as a token, is left out."""
    parts = urlsplit(dashboard)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path or "/", urlencode({"run": run}), ""))


def variables(run: str, news: News, dashboard: str = "") -> dict[str, str]:
    """The facts as environment variables of a command. Only the body has several lines."""
    return {
        f"{PREFIX}{name.upper()}": "" if value is None else "\n".join(map(visible, str(value).split("\n")))
        for name, value in facts(run, news, dashboard).items()
    }


def payload(run: str, news: News, dashboard: str = "", host: str = "") -> dict[str, Any]:
    """A message of Slack or Discord, if the host is theirs, else the facts, of which `subject` and `body` make a mail."""
    told = facts(run, news, dashboard)
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
    """Tells a command and a webhook of news."""

    def tell(run: str, news: News) -> list[str]:
        failures = [] if words is None else [failure_of_command(words, variables(run, news, dashboard))]
        failures += [] if hook is None else [failure_of_post(hook, payload(run, news, dashboard, hook.host))]
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
