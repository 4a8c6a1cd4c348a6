"""The gaps in words: between which two policies or readings a metric measures."""

from collections.abc import Iterable

from ratioscope.record import BETWEEN, GAPS, POLICIES, sides

DIRECTION = {
    "mismatch": "engine to trainer",
    "total": "engine to updated policy",
    "drift": "before to after the update",
}
"""gap -> from the earlier policy to the later one."""
WHO = {"rollout": "engine", "old": "trainer", "current": "updated policy"}
"""Policy -> its name in a gap with a reading."""
LOGPROB = "_logprob"


def direction(gap: str) -> str:
    """From which policy or reading a gap measures to which.

    >>> direction("mismatch"), direction("rollout:referee"), direction("old:trainer_again")
    ('engine to trainer', 'engine to referee', 'trainer to trainer again')
    """
    if gap in DIRECTION:
        return DIRECTION[gap]
    return " to ".join(WHO.get(side) or side.replace("_", " ") for side in sides(gap))


def gap_words(gap: str) -> str:
    """The gap with its two sides, later minus earlier.

    >>> gap_words("mismatch"), gap_words("rollout:referee")
    ('mismatch (old − rollout)', 'rollout:referee (referee − rollout)')
    """
    return f"{gap} ({difference_words(gap)})"


def difference_words(gap: str) -> str:
    """The log-ratio of a gap as a difference.

    >>> difference_words("drift")
    'current − old'
    """
    earlier, later = sides(gap)
    return f"{later} − {earlier}"


def sides_in(columns: Iterable[str]) -> tuple[str, ...]:
    """The policies and readings with a column of log-probs in a frame of tokens; the policies of the Record come first.

    >>> sides_in(["old_logprob", "referee_logprob", "rollout_logprob", "old:referee"])
    ('rollout', 'old', 'referee')
    """
    policies = [name.removesuffix(LOGPROB) for name in columns if name.endswith(LOGPROB) and BETWEEN not in name]
    first = [name for name in (*POLICIES, "reference") if name in policies]
    return (*first, *(name for name in policies if name not in first))


def gaps_in(columns: Iterable[str]) -> tuple[str, ...]:
    """The gaps with a column of log-ratios in a frame of tokens; those of GAPS come first.

    >>> gaps_in(["drift", "mismatch", "mismatch_weight", "old:referee", "old:referee_weight"])
    ('mismatch', 'drift', 'old:referee')
    """
    own = tuple(columns)
    pairs = (name for name in own if BETWEEN in name and f"{name}_weight" in own)
    return (*(gap for gap in GAPS if gap in own), *pairs)
