"""The dashboard's server: Streamlit inside this process, on the loopback interface, behind the guard.

What Streamlit reads from config files and the environment cannot loosen what is set here: values given to `App.run` win.
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ratioscope.errors import MissingExtra, RatioscopeError

from .guard import LOOPBACK, Guard
from .theme import THEMES

RUNS = "RATIOSCOPE_RUNS"
"""The environment variable that tells the pages which runs they may open: a JSON list of absolute paths."""
SCRIPT = Path(__file__).resolve().parent / "pages" / "entry.py"
SETTINGS: dict[str, Any] = {
    "server.headless": True,  # the browser is opened by the command line, which knows whether there is one
    "server.showEmailPrompt": False,
    "server.allowedHosts": sorted(LOOPBACK),
    "server.fileWatcherType": "none",  # the working folder may hold the run
    "server.enableStaticServing": False,
    "server.maxMessageSize": 50,
    "server.maxUploadSize": 1,
    "server.enableAgentApi": False,
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "full",
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
    for theme in THEMES.values():
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
    runs: Sequence[Path], *, host: str = "127.0.0.1", port: int = 0, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve the dashboard of these runs until interrupted. `on_ready` gets the URL once the server answers.

    port: 0 takes a free one. A host other than loopback is refused: the pages show prompts and completions, and there
    is no way to sign in.
    """
    if not is_loopback(host):
        raise RatioscopeError(
            f"the dashboard has no sign-in, so it is served on this machine only, not on {host}; "
            f"from another machine: ssh -L 8501:127.0.0.1:8501 THIS_MACHINE, with --port 8501"
        )
    port = port or free_port(host)
    os.environ[RUNS] = json.dumps([str(Path(run).resolve()) for run in runs])
    application(on_ready=lambda: on_ready(f"http://{_in_url(host)}:{port}") if on_ready else None).run(
        config={**look(), **SETTINGS, "server.address": host, "server.port": port, "browser.serverAddress": host}
    )


def application(on_ready: Callable[[], None] | None = None) -> Any:
    """The dashboard as an ASGI application (a `streamlit.App`) behind the guard."""
    try:
        import streamlit as st
        from starlette.middleware import Middleware
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[None]:
        if on_ready:
            on_ready()
        yield

    return st.App(SCRIPT, middleware=[Middleware(Guard)], lifespan=lifespan)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach a server bound to this address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on at this moment."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return int(server.getsockname()[1])


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
