"""Words as a title or a sentence."""


def capital(words: str) -> str:
    """The words with a capital at their beginning.

    >>> capital("log-ratio S of a sequence")
    'Log-ratio S of a sequence'
    """
    return words[:1].upper() + words[1:]


def sentence(words: str) -> str:
    """The words with a capital and a full stop; nothing stays nothing."""
    return f"{capital(words)}{'' if words.endswith('.') else '.'}" if words else ""
