"""The numbers that a page shows, from its text or HTML and the JSON of its figures, whichever face drew it."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any

import numpy as np

from support.golden import VOLATILE_COLUMNS, digest, placeheld

_PLAIN = r"(?<![\w.])[-−+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|e[-+]?\d+)?%?(?!\w)"
_ONE = rf"(?:[≤≥<>] ?)?{_PLAIN}(?: ± {_PLAIN})?"
NUMBER = re.compile(rf"{_ONE}(?:(?: of | to |–){_ONE})*")
"""A number as it is shown, or several that belong together: `0.0021 ± 0.0003`, `3 of 120`, `steps 4 to 8`."""
INLINE = re.compile(r"</?(?:a|abbr|b|code|em|i|small|span|strong|sub|sup)\b[^>]*>")
"""Tags within a line; every other one ends it."""
HIDDEN = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
BEHIND = re.compile(r'\b(?:title|aria-label|alt)="([^"]*)"')
"""What a reader sees by pointing, or hears."""
DATA = ("x", "y", "z", "base", "width", "customdata", "text", "hovertext")
"""Members of a trace that are data."""
MANY = 200
"""Distinct numbers of a page, beyond which they are kept as a digest: a page of tokens has thousands."""


def shown(text: str, figures: Iterable[Mapping[str, Any]], tables: Iterable[Mapping[str, list[Any]]] = ()) -> Any:
    """What a page shows, as JSON: numbers with their counts, those behind a pointer, each chart's and each table's data.

    text: plain text or HTML. figures: as plotly's JSON has them. tables: column -> values.
    """
    text = HIDDEN.sub(" ", text)
    return {
        "numbers": counted(_without_tags(text)),
        "behind": counted("\n".join(unescape(words) for words in BEHIND.findall(text))),
        "charts": sorted(map(chart, figures), key=_names),
        "tables": [
            {name: digest(values) for name, values in table.items() if name not in VOLATILE_COLUMNS} for table in tables
        ],
    }


def _without_tags(text: str) -> str:
    return unescape(re.sub(r"<[a-zA-Z/!][^>]*>", "\n", INLINE.sub(" ", text)))


def counted(text: str) -> Any:
    """Number as shown -> how often; a digest if there are many.

    >>> counted("KL 0.0021 ± 0.0003 over 3 of 120 steps, kl_k3, 3 of 120")
    {'0.0021 ± 0.0003': 1, '3 of 120': 2}
    """
    found = NUMBER.findall(re.sub(r"[ \t\xa0]+", " ", placeheld(text)))
    counts = dict(sorted(Counter(found).items()))
    return counts if len(counts) <= MANY else digest([*map(_value, sorted(found))])


def chart(figure: Mapping[str, Any]) -> Any:
    """The traces' kinds, names and data, and the numbers of titles and notes."""
    layout = figure.get("layout", {})
    said = [part.get(key) for part in layout.get("annotations", ()) for key in ("text", "hovertext")]
    titles = [layout.get("title"), *(part.get("title") for name, part in layout.items() if "axis" in name)]
    said += [text for title in titles if title for text in (title.get("text"), title.get("subtitle", {}).get("text"))]
    return {
        "numbers": counted(_without_tags("\n".join(filter(None, said)))),
        "traces": [
            [trace.get("type"), trace.get("name"), {key: _digest(trace[key]) for key in DATA if key in trace}]
            for trace in figure["data"]
        ],
    }


def _names(drawn: Any) -> str:
    return repr([[kind, name, [*data]] for kind, name, data in drawn["traces"]])


def _digest(values: Any) -> Any:
    """Any: a list, a list of lists, one value, or an array of plotly's own, in base 64."""
    flat = np.ravel(_array(values)).tolist() if isinstance(values, dict) else [*_flat(values)]
    texts = [value for value in flat if isinstance(value, str)]
    if not texts:
        return digest(flat)
    numbers = [_value(number) for text in texts for number in NUMBER.findall(_without_tags(placeheld(text)))]
    return {"texts": len(texts), "of": len(flat), "numbers": digest(numbers)}


def _flat(values: Any) -> Iterable[Any]:
    if not isinstance(values, list):
        yield values
        return
    for value in values:
        yield from _flat(value)


def _array(packed: Mapping[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(packed["bdata"]), np.dtype(packed["dtype"]))


def _value(number: str) -> float:
    """The first number of those that belong together.

    >>> _value("−1,234.5 ± 2"), _value("1.2·10⁻⁷"), _value("3.1%")
    (-1234.5, 1.2e-07, 3.1)
    """
    plain = number.translate(str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789", ",")).replace("·10", "e")
    found = re.search(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", plain)
    return float(found.group()) if found else 0.0
