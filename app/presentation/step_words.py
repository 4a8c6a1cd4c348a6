"""Steps in words: the recorded steps that were chosen, as stretches without a recorded step between them."""

from collections.abc import Collection, Sequence

MOST = 3
"""Most stretches that are named."""


def stretches(chosen: Collection[int], recorded: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each stretch of recorded steps (ascending) that were all chosen.

    >>> stretches({10, 20, 40}, [10, 20, 30, 40])
    [(10, 20), (40, 40)]
    """
    spans: list[tuple[int, int]] = []
    open_ = False
    for step in recorded:
        if step in chosen:
            spans.append((spans.pop()[0], step) if open_ else (step, step))
        open_ = step in chosen
    return spans


def steps_words(chosen: Collection[int], recorded: Sequence[int]) -> str:
    """The chosen steps in words.

    >>> steps_words({10, 20, 40}, [10, 20, 30, 40]), steps_words({7}, [6, 7])
    ('steps 10 to 20 and 40', 'step 7')
    """
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in stretches(chosen, recorded)]
    if not parts:
        return "no steps"
    more = len(parts) - MOST
    shown = [*parts[:MOST], *([f"{more:,} more stretches" if more > 1 else parts[MOST]] if more > 0 else [])]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"step {listed}" if len(shown) == 1 and parts[0].lstrip("-").isdecimal() else f"steps {listed}"
