"""Controls that choose one of a few options. The choice is in the URL; a URL with an unknown option gives the first one."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

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
) -> Option:
    """The chosen one of a row of options; the default, or else the first, unless chosen."""
    usual = options[0] if default is None else default
    chosen = st.segmented_control(
        name, options, default=usual, required=True, key=key, bind="query-params", help=help,
        label_visibility=label_visibility,
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
    shown: Callable[[Option], str] = str,
    bind: bool = True,
    label_visibility: Literal["visible", "collapsed"] = "visible",
) -> Option:
    """The chosen one of a list of options, the default or the first unless chosen. shown: the words of an option.

    bind: False for a choice that is not in the URL.
    """
    first = options[0] if default is None else default
    chosen = st.selectbox(
        name, options, options.index(first), format_func=shown, key=key, help=help,
        bind="query-params" if bind else None, width=width, label_visibility=label_visibility,
    )  # fmt: skip
    return next((option for option in options if option == chosen), first)
