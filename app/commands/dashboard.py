"""`ratioscope dashboard RUN...`: serve the pages on this machine and open them in the browser."""

import os
import platform
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import say
from .arguments import opened

Port = Annotated[int, typer.Option(envvar="PORT", min=0, max=65535, help="Port to serve on; 0 takes a free one.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the URL and open nothing.")]


def dashboard(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run folders.")],
    port: Port = 0,
    no_browser: NoBrowser = False,
) -> int:
    """Browse runs in the dashboard, on this machine only."""
    for run in runs:
        opened(run)
    show(runs, port=port, browser=not no_browser)
    return 0


def show(runs: Sequence[Path], *, port: int, browser: bool) -> None:
    """Serve these runs until interrupted; prints the URL as soon as the server answers."""
    from ..server import serve

    def ready(url: str) -> None:
        say(f"dashboard: {url}   (Ctrl+C stops it)")
        if remote := _remote_hint(url):
            say(remote)
        if browser and _has_browser():
            webbrowser.open(url)

    with suppress(KeyboardInterrupt):  # the ordinary way to stop it
        serve(runs, port=port, on_ready=ready)


def _has_browser() -> bool:
    """Whether a window could open here: not over ssh, not in a container without a display."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _remote_hint(url: str) -> str | None:
    if not os.environ.get("SSH_CONNECTION"):
        return None
    port = url.rsplit(":", 1)[1].rstrip("/")
    return f"from your own machine: ssh -L {port}:127.0.0.1:{port} {platform.node()}   then open the URL there"
