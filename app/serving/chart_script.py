"""The script that draws charts, sent for before the page knows that it needs it.

Streamlit's front end asks for it, nearly five megabytes, when the first chart is to be drawn. Here the first answer names it, so
that the browser fetches it while it starts; and `in_browser` runs it where a page has no chart, so that the next finds it ready.
"""

from functools import cache
from pathlib import Path

from .asgi import Application, Message, Receive, Scope, Send


@cache
def chart_script() -> str:
    """Its place on the server; empty if this Streamlit keeps it elsewhere: then it comes when the first chart asks for it."""
    import streamlit

    found = sorted(Path(streamlit.__file__).parent.glob("static/static/js/PlotlyChart.*.js"))
    return f"/static/js/{found[0].name}" if len(found) == 1 else ""


class Ahead:
    """The ASGI application inside, whose pages name the script in a header."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_page(message) and chart_script():
                link = f"<{chart_script()}>; rel=modulepreload".encode()
                message = {**message, "headers": [*message.get("headers", ()), (b"link", link)]}
            await send(message)

        await self.app(scope, receive, sending if scope["type"] == "http" else send)


def _is_page(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in message.get("headers", ())
    )
