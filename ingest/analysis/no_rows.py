"""Why steps have statistics and no token rows, and what keeps the rows of the next ones."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run import Run


def why_no_rows(run: "Run") -> str:
    """A sentence without its full stop: `prune` deleted the rows, or a budget left them out."""
    if run.pruned_rows:
        return "`ratioscope prune` deleted the token rows; --keep-steps keeps those of more steps"
    return (
        "the budget left the token rows out; record them with a budget above 0 (step_bytes, run_bytes of the collector)"
    )
