"""Controls that choose among options. The choice is in the URL; a URL with an unknown option gives the first one.

Streamlit binds the words of an option to the URL. A control whose options have words is therefore not bound: the URL keeps the
option, such as `kl_direct`, so that links stay short and outlive a change of the words.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import streamlit as st

Option = TypeVar("Option")


def choice(
    name: str,
    options: Sequence[Option],
    key: str,
    *,
    default: Option | None = None,
    help: str | None = None,
    label_visibility: Literal["visible", "collapsed"] = "visible",
    bind: bool = True,
) -> Option:
    """The chosen one of a row of options; the default, or else the first, unless chosen.

    bind: False for a choice that is not in the URL.
    """
    usual = options[0] if default is None else default
    chosen = st.segmented_control(
        name, options, default=usual, required=True, key=key, bind="query-params" if bind else None, help=help,
        label_visibility=label_visibility, wrap=True,
    )  # fmt: skip
    return usual if chosen is None or chosen not in options else chosen


def dropdown(
    name: str,
    options: Sequence[Option],
    key: str,
    *,
    width: int,
    default: Option | None = None,
    help: str | None = None,
    shown: Callable[[Option], str] | None = None,
    bind: bool = True,
    label_visibility: Literal["visible", "collapsed"] = "visible",
) -> Option:
    """The chosen one of a list of options, the default or the first unless chosen. shown: the words of an option.

    bind: False for a choice that is not in the URL.
    """
    first = options[0] if default is None else default
    in_words = shown is not None and bind
    if in_words:
        _recall(key, options, first)
    chosen = st.selectbox(
        name, options, 0 if in_words else options.index(first), format_func=shown or str, key=key, help=help,
        bind="query-params" if bind and not in_words else None, width=width, label_visibility=label_visibility,
        on_change=_tell if in_words else None, args=(key, first),
    )  # fmt: skip
    return next((option for option in options if option == chosen), first)


def several(
    name: str,
    options: Sequence[str],
    key: str,
    *,
    shown: Callable[[str], str],
    width: int | Literal["stretch"],
    placeholder: str,
) -> list[str]:
    """The chosen ones of a list of options, none unless chosen. shown: the words of an option."""
    _recall_all(key, options)
    chosen = st.multiselect(
        name, options, key=key, format_func=shown, width=width, placeholder=placeholder, on_change=_tell, args=(key, [])
    )
    return [option for option in chosen if option in options]


def optional(
    name: str, options: Sequence[str], key: str, *, shown: Callable[[str], str], width: int, placeholder: str
) -> str | None:
    """The chosen one of a list of options; None unless chosen. shown: the words of an option."""
    _recall(key, [None, *options], None)
    return st.selectbox(
        name, options, None, key=key, format_func=shown, width=width, placeholder=placeholder, on_change=_tell,
        args=(key, None),
    )  # fmt: skip


def words_of_pills(options: Sequence[str], key: str) -> dict[str, Any]:
    """Arguments of a row of pills of which several can be chosen, whose options have words; the URL keeps the options."""
    _recall_all(key, options)
    return {"options": options, "key": key, "selection_mode": "multi", "on_change": _tell, "args": (key, [])}


def _recall(key: str, options: Sequence[object], usual: object) -> None:
    """Gives the control the option of the URL, or else the usual one, unless it has one of these options already."""
    if key not in st.session_state or st.session_state[key] not in options:
        asked = st.query_params.get(key)
        st.session_state[key] = next((option for option in options if str(option) == asked), usual)


def _recall_all(key: str, options: Sequence[str]) -> None:
    known = st.session_state.get(key)
    if not isinstance(known, list) or not set(known) <= set(options):
        asked = st.query_params.get_all(key)
        st.session_state[key] = [option for option in asked if option in options]
        if st.session_state[key] != asked:  # the URL tells what is chosen here, so that it opens the same view
            _tell(key, [])


def _tell(key: str, usual: object) -> None:
    """Writes the reader's choice into the URL, or takes the usual one out of it."""
    chosen = st.session_state[key]
    if chosen == usual:
        st.query_params.pop(key, None)
    else:
        st.query_params[key] = chosen
