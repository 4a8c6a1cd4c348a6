"""Hidden and lost data in words, the same for dashboard, report and command line."""

from ratioscope.ingest.commits.attempts import Shadow
from ratioscope.ingest.commits.conservation import UNSEEN

from .digits import count


def replaced(old: Shadow) -> tuple[str, str]:
    """(which steps, why they are not shown)."""
    steps = (
        f"step {old.first_step}" if old.steps == 1 else f"{old.steps} steps from {old.first_step} to {old.last_step}"
    )
    rows = f", {count(old.rows, 'row')}" if old.rows else ""
    who = f"attempt {old.attempt}" if old.rank is None else f"rank {old.rank}"
    return f"{steps} of {who}{rows}", _why_hidden(old)


def _why_hidden(old: Shadow) -> str:
    if old.rank is None:
        again = f"written again by attempt {old.by}"
        apart = f"attempt {old.by} began again at step {old.since}; --attempt {old.attempt} shows them"
        return again if old.is_again else apart
    if old.is_again:
        return "written again by this rank, which was started again by itself"
    return f"this rank was started again by itself, at step {old.since}"


def lost_words(lost: int, gone: int, silent: int) -> str:
    """The sequences lost by writers that ended without closing; those after their last log line were not counted."""
    words = (
        f"at least {count(lost, 'sequence')}"
        if lost
        else "not known, because nothing was counted after the last commit"
    )
    ended = [f"{count(gone, 'writer')} ended without closing"] if gone else []
    ended += [f"{count(silent, 'writer')} silent for an hour"] if silent else []
    who = " and ".join(ended) or "an earlier writer ended without closing"
    return f"{words}: {who}; tokens {UNSEEN}"
