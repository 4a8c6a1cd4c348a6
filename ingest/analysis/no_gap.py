"""Why no gap of a run can be measured, and what to record so that one can: the first thing to go wrong in a new recording.

Why steps have statistics and no token rows, and what keeps the rows of the next ones.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run

TRAINED = ("old", "current")
EMPTY = (
    "every sequence is empty, or its mask is false at all of its tokens. Pass a mask= that is true at the tokens that the policy "
    "sampled."
)


def why_no_gap(run: "Run") -> str:
    """The state of the run, and what to record, in words that can follow "because".

    Empty if the run has a token with both sides of a gap, or is a log without tokens. Ids in it are text of the trainer's.
    """
    if run.no_tokens:
        return ""
    steps = run.metrics(by=("step",))
    if steps.width > 1:
        return "" if _has_token(steps) else EMPTY
    if not run.steps:
        return f"no step is on record{_dropped(run)}."
    recorded = run.policies
    trained = next((policy for policy in TRAINED if policy in recorded), None)
    if "rollout" in recorded and trained is not None:
        return (
            f"no sequence has the log-probs of both rollout and {trained}{_apart(run, trained)}. "
            "Log both under the same step and the same sequence_ids."
        )
    wanted = "rollout_logprobs=" if "rollout" not in recorded else "old_logprobs= or current_logprobs="
    words = f"only the log-probs of {' and '.join(recorded)} are on record" if recorded else "no log-prob is on record"
    return f"{words}{_dropped(run)}. Pass {wanted} to the collector too, under the same step and sequence_ids."


def _has_token(steps: "pl.DataFrame") -> bool:
    """True if a token counts in one of the gaps, or would if its log-probs were numbers."""
    return any(steps[name].sum() for name in steps.columns if name.endswith(("/tokens", "/non_finite")))


def _apart(run: "Run", trained: str) -> str:
    """An example of each side at the newest steps that have one."""
    rows = run.tokens(run.steps[-2:]).select("step", "sequence_id", "rollout_logprob", f"{trained}_logprob").collect()
    sides = {
        policy: rows.drop_nulls(f"{policy}_logprob").sort("step", descending=True) for policy in ("rollout", trained)
    }
    if any(side.is_empty() for side in sides.values()):
        return ""
    seen = (f"{policy} has “{side['sequence_id'][0]}” at step {side['step'][0]}" for policy, side in sides.items())
    return f": {', '.join(seen)}"


def _dropped(run: "Run") -> str:
    counts = run.conservation
    if not counts.dropped:
        return ""
    most = max(counts.reasons, key=lambda part: part.sequences)
    return f", and {counts.dropped:,} of {counts.offered:,} offered sequences were dropped ({most.reason})"


def why_no_rows(run: "Run") -> str:
    """A sentence without its full stop: `prune` deleted the rows, or a budget left them out."""
    if run.pruned_rows:
        return "`ratioscope prune` deleted the token rows; --keep-steps keeps those of more steps"
    return (
        "the budget left the token rows out; record them with a budget above 0 (step_bytes, run_bytes of the collector)"
    )
