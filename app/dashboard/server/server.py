"""The dashboard's server: Streamlit inside this process, behind the guard; on the loopback interface unless there is a token.

Streamlit reads no settings file (isolated_settings), and its environment variables cannot loosen these settings: values
given to `App.run` win.
"""

import json
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, chdir, contextmanager
from dataclasses import replace
from errno import EADDRINUSE
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError, MissingExtra

from ...browser.policy import inline_scripts
from ...presentation.theme import DARK, LIGHT
from ..model.opened_runs import ATTEMPT, RUNS
from .chart_library import ChartLibrary
from .connections import Answered, bound_connections
from .guard import LOOPBACK, Guard
from .late_ticks import leave_out_late_ticks
from .memory import share_heaps
from .options import ServerOptions, checked_options
from .sign_in import SignIn
from .watchdog import watched

TURN = 0.0005
"""Seconds after which a computing thread must let another run. A page that is drawn while a run is read in the background waits
for its turn a hundred times: at Python's default of 5 ms that is half a second."""
SENDER = "streamlit.web.server.starlette.starlette_websocket"
SCRIPT = Path(__file__).resolve().with_name("entry.py")
SETTINGS: dict[str, Any] = {
    "secrets.files": [],
    "server.headless": True,  # the browser is opened by the command line, which knows whether there is one
    "server.showEmailPrompt": False,
    "server.allowedHosts": sorted(LOOPBACK),
    "server.enableCORS": True,
    "server.corsAllowedOrigins": [],
    "server.enableXsrfProtection": True,
    "server.xsrfCookieSameSite": "strict",
    "server.trustedUserHeaders": {},
    "server.baseUrlPath": "",
    "server.folderWatchList": [],
    "server.runOnSave": False,
    "server.fileWatcherType": "none",  # the working folder may hold the run
    "server.enableStaticServing": False,
    "server.maxMessageSize": 50,
    "server.maxUploadSize": 1,
    "server.enableAgentApi": False,
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "full",
    "client.allowedOrigins": [],
    "client.disableDataExport": True,  # a table's own download would keep formulas in its text; export.py removes them
    "client.showErrorLinks": False,
    "client.toolbarMode": "viewer",
    "global.developmentMode": False,
    "logger.hideWelcomeMessage": True,
    "logger.level": "warning",
}

LOOK: dict[str, Any] = {
    "theme.baseFontSize": 14,
    "theme.baseRadius": "5px",
    "theme.buttonRadius": "5px",
    "theme.headingFontSizes": ["22px", "18px", "15px", "14px", "14px", "13px"],
    "theme.headingFontWeights": [600] * 6,
    "theme.metricValueFontSize": "1.4rem",
    "theme.metricValueFontWeight": 500,
    "theme.codeFontSize": "13px",
    "theme.linkUnderline": False,
    "theme.showWidgetBorder": True,
    "theme.paddingTop": "0.25rem",
    "theme.paddingBottom": "3rem",
}


def look() -> dict[str, Any]:
    """Streamlit's theme settings for both appearances, from our own themes."""
    settings = dict(LOOK)
    for theme in (LIGHT, DARK):
        settings |= {
            f"theme.{theme.name}.{name}": colour
            for name, colour in (
                ("primaryColor", theme.primary),
                ("backgroundColor", theme.background),
                ("secondaryBackgroundColor", theme.panel),
                ("codeBackgroundColor", theme.panel),
                ("codeTextColor", theme.text),
                ("textColor", theme.text),
                ("linkColor", theme.primary),
                ("borderColor", theme.border),
                ("grayColor", theme.muted),
                ("dataframeBorderColor", theme.grid),
                ("dataframeHeaderBackgroundColor", theme.panel),
                ("dataframeHeaderTextColor", theme.muted),
            )
        }
    return settings


def serve(
    runs: Sequence[Path],
    options: ServerOptions | None = None,
    *,
    on_ready: Callable[[str], None] | None = None,
    attempt: int | None = None,
) -> None:
    """Serves the dashboard of these runs until interrupted. `on_ready` gets the URL once the server answers.

    attempt: the only start of the job that pages show; None: all.
    """
    options = checked_options(options or ServerOptions())
    options = replace(options, port=free_port(options.host, options.port))
    os.environ[RUNS] = json.dumps([str(Path(run).resolve()) for run in runs])
    os.environ[ATTEMPT] = json.dumps(attempt)
    sys.setswitchinterval(TURN)
    share_heaps()
    settings = SETTINGS | {
        "server.address": options.host,
        "server.port": options.port,
        "server.allowedHosts": sorted(LOOPBACK.union(options.hosts)),
        "browser.serverAddress": options.host,
        "client.showErrorDetails": "full" if options.is_loopback else "type",  # a trace would show local paths
    }
    sign_in = None if options.token is None else SignIn(options.token)
    with isolated_settings():
        bound_connections()
        guard = partial(Guard, hosts=LOOPBACK.union(options.hosts), sign_in=sign_in, inline=_inline())
        application(guard, on_ready=lambda: on_ready(options.url) if on_ready else None).run(
            config={**look(), **settings}
        )


def application(guard: Callable[[Any], Any], on_ready: Callable[[], None] | None = None) -> Any:
    """The dashboard as an ASGI application (a `streamlit.App`) behind the guard."""
    import streamlit as st
    from starlette.middleware import Middleware
    from streamlit import env_util

    # the first element would make Streamlit look up the files of all modules: 0.15 s of the first page
    env_util.is_repl = lambda: False
    logging.getLogger(SENDER).addFilter(is_worth_a_line)
    leave_out_late_ticks()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[None]:
        from .prefetcher import start_warming

        start_warming()
        if on_ready:
            on_ready()
        async with watched():
            yield

    return st.App(
        SCRIPT, middleware=[Middleware(guard), Middleware(Answered), Middleware(ChartLibrary)], lifespan=lifespan
    )


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """False for log records that only report a disconnected client during a send."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "WebSocketDisconnected"


def free_port(host: str = "127.0.0.1", wanted: int = 0) -> int:
    """A port that is free at this moment: the wanted one, or any for 0. ConfigError if the wanted one is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, wanted), family=family) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        if not wanted:
            raise
        why = "another program listens there" if error.errno == EADDRINUSE else error.strerror
        raise ConfigError(
            f"--port {wanted} cannot be used: {why}; wanted a free port, or none: any free one is taken"
        ) from error


def _inline() -> list[str]:
    """The inline scripts of Streamlit's one page."""
    return inline_scripts(files("streamlit").joinpath("static", "index.html").read_text(encoding="utf-8"))


PLACE = Path(__file__).resolve().parent
"""A folder of ours, into which nobody else puts files."""


@contextmanager
def isolated_settings() -> Iterator[None]:
    """Until the context ends, this process works in a folder of ours and Streamlit finds no settings file, not in the user's
    home either, so that only the settings of this file apply."""
    try:
        from streamlit import config
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None

    path, files = list(sys.path), config.get_config_files
    with chdir(PLACE):
        sys.path[:] = [entry for entry in path if os.path.isabs(entry)]
        config.get_config_files = _none
        try:
            yield
        finally:
            config.get_config_files, sys.path[:] = files, path


def _none(file_name: str) -> list[str]:
    return []
