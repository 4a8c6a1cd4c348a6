"""Names of runs where there is little room: cut in the middle, because what tells runs apart stands at their ends."""

from .escape import visible

ROOM = 34


def shortened(name: str, room: int = ROOM) -> str:
    """The name with invisible characters shown, in at most so many characters; most of what is kept is its end.

    >>> shortened("qwen3-4b-grpo-bf16-seed3", 14), shortened("short")
    ('qwen…f16-seed3', 'short')
    """
    shown = visible(name)
    if len(shown) <= room:
        return shown
    first = (room - 1) // 3
    return f"{shown[:first]}…{shown[len(shown) - (room - 1 - first) :]}"
