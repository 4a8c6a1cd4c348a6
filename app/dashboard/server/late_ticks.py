"""Streamlit's timers, heard only where nothing can come between a reader and what they do.

A part of a page that draws itself every second asks for that from the browser, which knows that a page was left only once the
next one has begun. A tick on its way by then would be carried out after the next page, as if the reader were on the old one; one
that comes while a click is carried out is mixed with it. Either takes out of the URL what the new page has put there. The browser
asks again a second later, so that leaving a tick out costs nothing.

What is looked at here is Streamlit's own and in no documentation; where it is no longer found, every tick is heard as before.
"""

from functools import wraps
from typing import Any


def leave_out_late_ticks() -> None:
    """Has every session of this process leave them out."""
    from streamlit.runtime.app_session import AppSession

    heard = AppSession.request_rerun
    if hasattr(heard, "__wrapped__"):
        return

    @wraps(heard)
    def request_rerun(session: Any, asked: Any) -> None:
        is_tick = asked is not None and asked.is_auto_rerun
        at_work = getattr(session, "_scriptrunner", None) is not None
        for_ticks_alone = getattr(session, "_for_ticks_alone", False)
        if is_tick and (_of_page_left(session, asked) or (at_work and not for_ticks_alone)):
            return
        session._for_ticks_alone = is_tick
        heard(session, asked)

    AppSession.request_rerun = request_rerun  # type: ignore[method-assign, assignment]


def _of_page_left(session: Any, asked: Any) -> bool:
    return getattr(session, "page_script_hash", "") not in ("", asked.page_script_hash)
