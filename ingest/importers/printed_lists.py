"""Lists as files hold them in a text: JSON, or the way that Python prints them."""

import re
from typing import Any

from ratioscope.flat_json import loaded

_SCALAR = re.compile(r"np\.(?:float|int)\d\d\(([^()]*)\)")
_WORD = re.compile(r"\b(?:nan|inf|None|True|False)\b")
_JSON = {"nan": "NaN", "inf": "Infinity", "None": "null", "True": "true", "False": "false"}


def parsed(text: str | bytes) -> Any:
    """The value of a text in JSON, or of a list of numbers as Python prints it. ValueError where it is neither."""
    try:
        return loaded(text)
    except ValueError:
        if isinstance(text, bytes) or (other := _printed(text)) == text:
            raise
        return loaded(other)


def _printed(cell: str) -> str:
    """A list of numbers as Python prints it, in JSON: pandas writes `[-0.5, nan]` and `[np.float64(-0.5)]`.

    >>> _printed("[np.float64(-0.5), nan, -inf, None]")
    '[-0.5, NaN, -Infinity, null]'
    """
    if "'" in cell or '"' in cell:
        return cell
    return _WORD.sub(lambda word: _JSON[word[0]], _SCALAR.sub(r"\1", cell))
