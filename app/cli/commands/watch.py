"""`ratioscope watch RUN`: a run in a terminal, over SSH: one screen that follows it, and a word to others about new alerts."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ...presentation.escape import terminal
from ..terminal import STYLES, console
from .arguments import RulesFile, RunFolder, attempt_asked

if TYPE_CHECKING:
    from rich.console import Group

    from ..watching.looks import Look

LAST_STEPS, LAST_ALERTS, LAST_WORDS = 6, 8, 4
"""Rows of the screen."""

EveryOption = Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Seconds between two looks.")]
OnAlertOption = Annotated[
    str | None,
    typer.Option(
        "--on-alert",
        metavar="COMMAND",
        help="Run this, without a shell, for each new or worse alert; facts: RATIOSCOPE_ALERT_*.",
    ),
]
HookOption = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar="RATIOSCOPE_WEBHOOK",
        help="Post JSON to this https address for each new alert.",
    ),
]
PrivateOption = Annotated[
    bool, typer.Option("--allow-private", help="The webhook may lead to a machine on a private network.")
]
DashboardOption = Annotated[
    str, typer.Option("--dashboard", metavar="URL", help="A dashboard that serves the run: alerts link to it.")
]


def watch(
    run: RunFolder,
    every: EveryOption = 5.0,
    on_alert: OnAlertOption = None,
    webhook: HookOption = None,
    allow_private: PrivateOption = False,
    dashboard: DashboardOption = "",
    rules: RulesFile = None,
) -> int:
    """Follow a run in the terminal until it ends; without a terminal, print one line per change.

    Others are told of new alerts, and when the run dies, falls silent or is back; not of what is so when the watch begins. A
    command or webhook that fails is reported, and the watch goes on.
    """
    from ratioscope.ingest.files.run_file import rules_of_file

    from ..watching.followed import Followed
    from ..watching.looks import Watched
    from ..watching.telling import arguments_of, line_of, teller
    from ..watching.webhook import webhook_of

    words = None if on_alert is None else arguments_of(on_alert)
    hook = None if webhook is None else webhook_of(webhook, allow_private=allow_private)
    followed = Followed(Watched(run, None if rules is None else rules_of_file(rules), attempt_asked()))
    tell = teller(words, hook, dashboard)
    followed.read()
    with _screen() as show:
        said = list[str]()
        while followed.seen is not None:
            show(followed.seen, said)
            if followed.seen.has_ended:
                break
            time.sleep(every)
            said += followed.look(lambda name, news: [f"alert: {line_of(news)}", *tell(name, news)])
    return 0


Show = Callable[["Look", list[str]], None]


@contextmanager
def _screen() -> Iterator[Show]:
    """One refreshing screen in a terminal, else one line per change."""
    if not sys.stdout.isatty():
        yield _lines()
        return
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, screen=False) as live:
        yield lambda look, words: live.update(_drawn(look, words), refresh=True)


def _lines() -> Show:
    """Prints the words that are new, and the headline if it changed."""
    said, printed = "", 0

    def show(look: "Look", words: list[str]) -> None:
        nonlocal said, printed
        headline = f"{look.name}: {_now(look)}; {look.state.brief}"
        headline += "; the store does not answer" if look.lacks else ""
        for line in words[printed:]:
            print(terminal(f"{time.strftime('%H:%M:%S')} {line}"))
        if headline != said:
            print(terminal(f"{time.strftime('%H:%M:%S')} {headline}"))
        said, printed = headline, len(words)
        sys.stdout.flush()  # raises if the reader has left: then there is nobody to watch for

    return show


def _now(look: "Look") -> str:
    """The first words on the run, and the number of open alerts."""
    still = sum(alert.is_open for alert in look.alerts)
    return f"{look.words.sentence.rstrip('.')}; {still} open alert{'' if still == 1 else 's'}"


def _drawn(look: "Look", words: list[str]) -> "Group":
    """The screen: headline, the newest steps, the newest alerts, and what was said."""
    from rich.console import Group
    from rich.text import Text

    from ...presentation.alert_words import alert_line
    from ...presentation.run_state import ALARMS

    def line(text: str, style: str = "") -> Text:
        return Text(terminal(text), style=STYLES.get(style, style), overflow="fold")

    newest = sorted(look.alerts, key=lambda alert: (alert.is_open, alert.last_step), reverse=True)[:LAST_ALERTS]
    rows = [
        line(f"{look.name}: {_now(look)}", look.verdict.word),
        line(f"{look.state.word} {look.state.ago}", ALARMS.get(look.state.life, "")),
        *([line(look.lacks, "watch")] if look.lacks else []),
    ]
    rows += [
        *map(line, look.words.below),
        *([line(look.verdict.rules, "watch")] if look.verdict.rules else []),
        line(""),
    ]
    rows += [line(text) for text in _steps(look)]
    rows += [line(""), *(line(alert_line(alert), alert.severity.label) for alert in newest)]
    rows += [line(text, "dim") for text in words[-LAST_WORDS:]]
    return Group(*rows, line(f"{time.strftime('%H:%M:%S')}, Ctrl+C ends the watch", "dim"))


def _steps(look: "Look") -> Iterator[str]:
    """The size of the gap on the newest steps, one line each."""
    from ratioscope.metrics.analysis.slice_parts import size_metric
    from ratioscope.metrics.definitions.registry import BY_NAME

    from ...presentation.value_text import value_with_error

    gap = look.verdict.gap or "mismatch"
    metric = BY_NAME[size_metric(gap)]
    column = f"{gap}/{metric.name}"
    for row in look.steps.sort("step").tail(LAST_STEPS).iter_rows(named=True) if column in look.steps.columns else ():
        yield f"step {row['step']:>7}  {column} {value_with_error(metric, row[column], row.get(f'{column}_se'))}"
