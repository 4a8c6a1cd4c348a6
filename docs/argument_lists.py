"""An extension of griffe, which reads docstrings for the API page: lines like `rank: of this process` become a list."""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"(?:\w+, )*\w+: ")


class ArgumentLists(griffe.Extension):
    """Makes each line of a docstring that begins with the name of an argument an item of a Markdown list."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(text: str) -> str:
    """The paragraphs after the first one, with a list in place of each paragraph that begins with an argument."""
    first, *others = text.split("\n\n")
    return "\n\n".join([first, *(listed(part) if ARGUMENT.match(part) else part for part in others)])


def listed(paragraph: str) -> str:
    """One item per argument; a line that begins with none goes on with the item before it."""
    items: list[str] = []
    for line in paragraph.splitlines():
        if ARGUMENT.match(line):
            names, _, meaning = line.partition(": ")
            items.append(f"* `{names.replace(', ', '`, `')}`: {meaning}")
        else:
            items.append(f"  {line.strip()}")
    return "\n".join(items)
