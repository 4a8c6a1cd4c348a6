"""Ignores requests for a part of a page that was left, and auto-refresh requests that would interrupt a click.

The browser asks for a part of a page: every second if the part refreshes itself, and once when the window becomes narrow. It
learns that a page was left only when the next page has begun. A late request would take the reader back to the page before; a
refresh during a click would be mixed with the click. Both remove choices of the new page from the URL. A refresh that the browser
asks for between a click and the click's own request carries the click too: it would be handled twice, so that the key `p` paused
the page and resumed it at once. The browser asks again a second later, and the next page asks for the width of the window itself,
so an ignored request costs nothing.

A click on another page's link closes an open drawer too. If the page knows whether its drawer is open, the browser asks for that
page anew a moment after the click's own request, and the reader would stay on it.

This module uses undocumented parts of Streamlit. If a release no longer has them, no request is ignored.
"""

import time
from functools import wraps
from typing import Any

CLICKS = frozenset({"trigger_value", "string_trigger_value", "json_trigger_value"})
"""Values of a button, a menu and a component that are sent once; the browser then forgets them."""

WITH_THE_CLICK = 0.2
"""Seconds after a click on another page's link in which a request for the page before belongs to the same click. Convention: on a
busy machine 0.01 s pass, and a reader who goes back at once needs longer."""


def leave_out_late_ticks() -> None:
    """Makes every session of this process ignore late requests."""
    from streamlit.runtime.app_session import AppSession

    heard = AppSession.request_rerun
    if hasattr(heard, "__wrapped__"):
        return

    @wraps(heard)
    def request_rerun(session: Any, asked: Any) -> None:
        is_part = asked is not None and bool(asked.fragment_id)
        is_tick = asked is not None and asked.is_auto_rerun
        at_work = getattr(session, "_scriptrunner", None) is not None
        if asked is not None and (is_part or is_tick) and _of_page_left(session, asked.page_script_hash):
            return
        if asked is not None and _is_of_the_click_that_left(session, asked.page_script_hash):
            return
        if is_tick and (_carries_click(asked) or at_work and not getattr(session, "_for_ticks_alone", False)):
            return
        session._for_ticks_alone = is_tick
        if asked is not None and not is_part:
            session._page_left = _page(session) if asked.page_script_hash not in ("", _page(session)) else None
            session._left_at = time.monotonic()
        heard(session, asked)

    AppSession.request_rerun = request_rerun  # type: ignore[method-assign, assignment]


def _carries_click(asked: Any) -> bool:
    return any(widget.WhichOneof("value") in CLICKS for widget in asked.widget_states.widgets)


def _of_page_left(session: Any, page: str) -> bool:
    """True for a page that is not the session's, and for one that was left by a click whose page has not begun yet."""
    return _page(session) not in ("", page) or page == getattr(session, "_page_left", None)


def _is_of_the_click_that_left(session: Any, page: str) -> bool:
    """True for a page that was left a moment ago by a click."""
    left = getattr(session, "_page_left", None)
    return left not in ("", None) and page == left and time.monotonic() - session._left_at < WITH_THE_CLICK


def _page(session: Any) -> str:
    """The page that began last; "" as long as the first script of a session has not come to its page.

    The session's own `page_script_hash` names no page until the first script has ended, and the browser asks before.
    """
    pages = getattr(session, "_pages_manager", None)
    page = getattr(pages, "current_page_script_hash", "")
    return "" if page == getattr(pages, "main_script_hash", "") else page
