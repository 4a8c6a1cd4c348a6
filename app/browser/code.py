"""Code on a page: Pygments names its parts, code.js colours them.

Streamlit's own block of code brings a module of 1.5 MB for two hundred languages, which takes 0.3 s of a page's first visit.
"""

from functools import lru_cache
from typing import Any

import streamlit as st
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String
from streamlit.components import v2

from .scripts import script

NAME = "ratioscope_code"
KINDS = (
    (Number, "number"),
    (Name.Tag, "name"),
    (String, "string"),
    (Keyword.Constant, "string"),
    (Keyword, "name"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Builtin, "name"),
    (Operator, "operator"),
    (Comment, "aside"),
    (Punctuation, "aside"),
)
"""Tokens of Pygments, and the class that code.js colours them by; all others have the colour of text."""
LONGEST = 20_000
"""The most characters that are coloured. Pygments takes a tenth of a second for these."""


def code(text: str, key: str, *, language: str = "", tallest: int | None = None) -> None:
    """Shows the text with a button that copies it, wrapped.

    language: by a name that Pygments knows; empty for plain words. tallest: pixels of what is shown before it scrolls.
    """
    parts = _parts(text, language) if language and len(text) <= LONGEST else [("", text)]
    _component()(key=f"{key}_code", data={"parts": parts, "tallest": f"{tallest}px" if tallest else "none"})


@lru_cache(maxsize=64)
def _parts(text: str, language: str) -> list[tuple[str, str]]:
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return [(_kind(token), part) for token, part in lexer.get_tokens(text)]


def _kind(token: Any) -> str:
    return next((kind for known, kind in KINDS if token in known), "")


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component(NAME, js=script("copied.js", "code.js"), isolate_styles=False)
