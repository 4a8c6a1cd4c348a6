"""`ratioscope dashboard RUN...`: serves the pages and opens the requested view in the browser."""

import logging
import os
import platform
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.files.run_tree import runs_below

from ...dashboard.server.options import ServerOptions
from ...dashboard.server.sign_in import way_in
from ..terminal import say
from ..watching.webhook import webhook_of
from .arguments import BaselineName, RunFolders, attempt_asked, floor_named, opened
from .server_options import AllowHost, Host, NoBrowser, Port, Token, place_of, server_options
from .watch import PrivateOption

PageOption = Annotated[str | None, typer.Option(metavar="NAME", help="The page to open, such as tokens.")]
GapOption = Annotated[str | None, typer.Option(metavar="mismatch|total|drift", help="The gap to show.")]
StepOption = Annotated[int | None, typer.Option(min=0, help="The step to show.")]
StepsOption = Annotated[str | None, typer.Option(metavar="FIRST:LAST", help="A range of steps: 100:200, 100:, -50:.")]
SequenceOption = Annotated[str | None, typer.Option("--sequence", metavar="ID", help="The sequence to show.")]
OnlyOption = Annotated[
    str | None, typer.Option(metavar="SLICE=KEY", help="Show a part of the tokens only, such as replica=vllm-3.")
]
ChooseOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Any other control of a page, by its name in the URL; repeatable."),
]
HookOption = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar="RATIOSCOPE_DASHBOARD_WEBHOOK",
        help="Post each new alert of the served runs to this https address.",
    ),
]


def dashboard(
    runs: RunFolders,
    page: PageOption = None,
    gap: GapOption = None,
    step: StepOption = None,
    steps: StepsOption = None,
    sequence: SequenceOption = None,
    only: OnlyOption = None,
    baseline: BaselineName = None,
    choose: ChooseOption = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    token: Token = None,
    allow_host: AllowHost = None,
    no_browser: NoBrowser = False,
    webhook: HookOption = None,
    allow_private: PrivateOption = False,
) -> int:
    """Browse runs in the dashboard. Without a token, only this machine can connect.

    With --webhook it also tells an address of what is new in the runs it serves, as `ratioscope watch` does of one run.
    """
    floor_named(baseline)
    choices = {"gap": gap, "step": step, "steps": steps, "sequence": sequence, "only": only, "baseline": baseline}
    place = place_of(page, choices, choose)
    options = server_options(host, port, token, allow_host)
    hook = None if webhook is None else webhook_of(webhook, allow_private=allow_private)  # refused before a run is read
    for run in runs:
        _check_path(run)
    if hook is not None:
        from ...dashboard.model.served_runs import SearchedRoots
        from ..watching.followed import follow_runs
        from ..watching.telling import teller

        link = f"http://{options.hosts[0]}:{options.port}/" if options.hosts and options.port else ""
        roots = SearchedRoots(tuple(str(run.resolve()) for run in runs))
        follow_runs(lambda: roots.now().runs, teller(None, hook, link), say)
    show(runs, options, place=place, browser=not no_browser, attempt=attempt_asked())
    return 0


def _check_path(folder: Path) -> None:
    """Opens a run, so that an unreadable run is an error before the server starts. For a folder it prints its number of runs."""
    if not folder.is_dir() or is_run(folder):
        opened(folder)
        return
    tree = runs_below(folder)
    more = f" ({tree.note})" if tree.note else ""
    if number := len(tree.runs):
        say(f"{folder}: {number} run{'s' * (number > 1)}{more}")
    else:
        say(f"{folder}: no run yet; the dashboard shows the first one as soon as it begins{more}")


def show(
    runs: Sequence[Path], options: ServerOptions, *, place: str = "", browser: bool, attempt: int | None = None
) -> None:
    """Serves these runs until interrupted. Prints the URL of `place` as soon as the server answers.

    attempt: the start of the job of which alone pages show what it recorded; None: the runs as they went on.
    """
    from ...dashboard.server.server import serve

    def ready(url: str) -> None:
        url = _at(url, place)
        say(f"dashboard: {url}   (Ctrl+C stops it)")
        if not options.is_loopback:
            say(
                "anyone with this link can read prompts and responses; traffic is not encrypted: use a network you trust"
            )
        elif remote := _remote_hint(url):
            say(remote)
        if browser and _has_browser():
            webbrowser.open(at_the_end.enter_context(way_in(url)) if options.token else url)

    logging.getLogger("uvicorn.error").addFilter(_is_news)
    with suppress(KeyboardInterrupt), ExitStack() as at_the_end:  # Ctrl+C is the ordinary way to stop the server
        serve(runs, options, on_ready=ready, attempt=attempt)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the traceback that the server logs when a second Ctrl+C stops it."""
    return "asyncio.exceptions.CancelledError" not in record.getMessage()


def _at(url: str, place: str) -> str:
    """The URL of the place; the query of `url` (the token) is kept."""
    base, _, own = url.partition("?")
    path, _, query = place.partition("?")
    both = "&".join(part for part in (query, own) if part)
    return f"{base.rstrip('/')}/{path}" + (f"?{both}" if both else "")


def _has_browser() -> bool:
    """True if a browser window can open here: not over ssh, not in a container without a display."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _remote_hint(url: str) -> str | None:
    if not os.environ.get("SSH_CONNECTION"):
        return None
    port = urlsplit(url).port
    return f"from your own machine: ssh -L {port}:127.0.0.1:{port} {platform.node()}   then open the URL there"
