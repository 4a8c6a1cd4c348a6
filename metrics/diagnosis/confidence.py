"""The confidence in a named cause: by the ground on which it is named, one level less for each doubt.

docs/diagnosis.md shows how often each level is right, and that the levels do not depend on the kind of fault they were chosen by.
"""

from collections.abc import Mapping

from ratioscope.arrays import Booleans

from ..grading.finding import Confidence
from .cause import Cause, UndoKind
from .evidence import Evidence
from .share import Share

LEVELS: tuple[Confidence, ...] = ("high", "medium", "low")
CERTAIN = (
    "moved_log_probs", "positive_log_probs", "filler_values", "unscored_tokens", "stored_precision", "shifted", "permuted_rows",
    "truncation",
    "banned_tokens", "grammar",
)  # fmt: skip
"""Causes whose signature is a proof."""
OF_FEW_TOKENS = ("positive_log_probs", "filler_values", "unscored_tokens", "stored_precision")
"""Those among them that are named however small their share is."""
AT_BEST: Mapping[UndoKind, Confidence] = {
    "changed numbers": "high", "recorded label": "high", "place": "high", "cluster": "medium", "tail": "medium", "rest": "low",
    "nothing": "high",
}  # fmt: skip
"""The level of a cause without a doubt. Nothing but the absence of other patterns speaks for a cause by elimination."""
LEAST_SURE = 0.5
"""A cause that explains no more than this for sure, at two standard errors, is doubted."""
LEAST_EXACT = 0.7
"""The same of a cause whose undoing is exact, or whose tokens are on record: it leaves rounding, if it is the only one."""
LEAST_TOKENS, LEAST_ROWS = 500, 16
"""Fewer tokens or sequences are a doubt. A convention."""
MOST = 0.5
"""A place with more than this share of the tokens is a doubt: it could be the level of all."""


def ground(cause: Cause) -> str:
    """The ground on which a cause is named, in words."""
    if cause.code in CERTAIN:
        return "proof"
    return "which tokens, not why" if _only_localises(cause) else cause.kind


def doubts(
    cause: Cause, share: Share, evidence: Evidence, rivals: tuple[str, ...], bad: Booleans | None
) -> tuple[str, ...]:
    """The reasons why the cause is less sure than its ground is, in words."""
    if cause.code in CERTAIN:
        return ()
    least = LEAST_EXACT if cause.kind in ("changed numbers", "recorded label") else LEAST_SURE
    most = cause.kind == "place" and not cause.localises and bad is not None and evidence.mean(bad) > MOST
    reasons = {
        f"it explains no more than {least:.0%} for sure": share.share - 2 * share.error <= least,
        f"another cause explains as much: {', '.join(rivals)}": bool(rivals),
        "few tokens or sequences": evidence.effective_tokens < LEAST_TOKENS or evidence.effective_rows < LEAST_ROWS,
        "it blames most of the tokens": most,
    }
    return tuple(words for words, holds in reasons.items() if holds)


def confidence(cause: Cause, reasons: tuple[str, ...]) -> Confidence:
    """The level of a cause with these doubts."""
    best: Confidence = "high" if cause.code in CERTAIN else "low" if _only_localises(cause) else AT_BEST[cause.kind]
    return LEVELS[min(LEVELS.index(best) + len(reasons), len(LEVELS) - 1)]


def _only_localises(cause: Cause) -> bool:
    """True if the cause only tells which tokens are bad, by their gap alone."""
    return cause.kind == "cluster" and bool(cause.localises)
