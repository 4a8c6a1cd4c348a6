"""What of a run is on record and not shown, in words: dashboard, report and command line say the same."""

from ratioscope.ingest.attempts import Shadow

from .digits import count


def replaced(old: Shadow) -> tuple[str, str]:
    """(which steps, why they are not shown)."""
    steps = (
        f"step {old.first_step}" if old.steps == 1 else f"{old.steps} steps from {old.first_step} to {old.last_step}"
    )
    rows = f", {count(old.rows, 'row')}" if old.rows else ""
    if old.rank is None:
        return f"{steps} of attempt {old.attempt}{rows}", f"written again by attempt {old.by}"
    return f"{steps} of rank {old.rank}{rows}", "written again by this rank, which was started again by itself"
