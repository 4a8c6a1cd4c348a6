"""Steps of a gap whose two sides are equal to the last bit: a copy, or two computations that agree.

Gaps whose sides are one, bit for bit, in words: at which steps, and what that makes of the gap.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS

if TYPE_CHECKING:
    from ..run import Run

COMPUTED_APART = "computed_apart"
"""Member of run.json: true if the writer knows that engine and trainer each computed the log-probs on record by themselves."""
EQUAL = "its two sides are equal to the last bit: a copy, or an aligned stack?"
ZEROS = "every log-prob of both of its sides is 0: a placeholder"
CHANCE = 1e-3
"""Tokens are no copy if the share of equal ones among the others makes as many equal beyond this chance. Convention."""
_NAMES = ("tokens", "zero_weight_tokens", "abs_log_ratio")

MEANING = {"mismatch": " (bypass)", "drift": ": the drift is 0 by construction, and the clip never acts"}


def equal_steps(run: "Run") -> dict[str, frozenset[int]]:
    """gap -> the steps at which the two log-probs of every token are equal. Gaps without such a step are left out."""
    frame = run.metrics(by=("step",), names=_NAMES)
    found: dict[str, frozenset[int]] = {}
    for gap in GAPS:
        tokens, zero, size = (f"{gap}/{name}" for name in _NAMES)
        if {tokens, zero, size} <= set(frame.columns):
            equal = frame.filter((pl.col(tokens) > 0) & (pl.col(zero) == 0) & (pl.col(size) == 0))
            if len(equal):
                found[gap] = frozenset(equal["step"])
    return found


def copied_steps(run: "Run") -> dict[str, frozenset[int]]:
    """gap -> the steps of which nothing is known, because its sides are equal and may be one computation, told twice.

    Equal log-probs of sampler and trainer are a measurement if its writer stated that they were computed apart.
    """
    return run.once(_copied_steps)


def _copied_steps(run: "Run") -> dict[str, frozenset[int]]:
    apart = run.info.get(COMPUTED_APART) is True
    found = {
        gap: steps if gap not in SAMPLED else (_zero_steps if apart else _unlikely_steps)(run, gap, steps)
        for gap, steps in equal_steps(run).items()
    }
    return {gap: steps for gap, steps in found.items() if steps}


def _unlikely_steps(run: "Run", gap: str, steps: frozenset[int]) -> frozenset[int]:
    """Those of the equal steps that have too many tokens to be equal by chance, by the share of equal ones at the other steps.

    A step of few tokens, or of tokens that are nearly certain, is equal without a copy.
    """
    tokens = equal_tokens(run, gap)
    others = tokens.filter(~pl.col("step").is_in(list(steps)))
    equal, every = (float(others[name].sum()) for name in ("equal", "n"))
    return steps - frozenset(tokens.filter(pl.lit(equal / max(every, 1.0)) ** pl.col("n") >= CHANCE)["step"])


def equal_tokens(run: "Run", gap: str) -> pl.DataFrame:
    """Columns step, n, equal: number of tokens of each step, and of those whose two log-probs are equal."""
    zero_bucket = (pl.col("low") < 0) & (pl.col("high") > 0)
    counts = run.distribution("token", gap).group_by("step")
    return counts.agg(n=pl.col("count").sum(), equal=pl.col("count").filter(zero_bucket).sum()).sort("step")


def _zero_steps(run: "Run", gap: str, steps: frozenset[int]) -> frozenset[int]:
    """Those of the steps whose every log-prob is 0: placeholders, whoever computed them."""
    name = f"{gap}/log_ppl_rollout"
    frame = run.metrics(by=("step",), names=("log_ppl_rollout",))
    return steps & frozenset(frame.filter(pl.col(name) == 0)["step"]) if name in frame.columns else frozenset()


def is_placeholder(run: "Run", gap: str) -> bool:
    """True if every log-prob of a copied gap between a sampler and a trainer is 0, as what nobody computed."""
    name = f"{gap}/log_ppl_rollout"
    whole = run.metrics(by=(), names=("log_ppl_rollout", "tokens"))
    return name in whole.columns and whole[name][0] == 0


@dataclass(frozen=True)
class CopyFact:
    """A gap of which one side is a copy of the other at some steps."""

    gap: str
    steps: tuple[int, ...]
    """Ascending."""
    of: int
    """Number of steps with a token of this gap."""

    @property
    def whole(self) -> bool:
        """True if no step of the gap is measured."""
        return len(self.steps) == self.of

    @property
    def code(self) -> str:
        """Its name in JSON, such as old_is_rollout."""
        earlier, later = GAPS[self.gap]
        return f"{later}_is_{earlier}"

    @property
    def words(self) -> str:
        """Which side is a copy of which, and where, without a full stop."""
        earlier, later = GAPS[self.gap]
        copy = f"{later} is a copy of {earlier}, bit for bit"
        if self.whole:
            return f"{copy}{MEANING.get(self.gap, '')}"
        return f"{copy}, at {len(self.steps)} of {self.of} steps: nothing is measured there"

    @property
    def head(self) -> str:
        """The words at the beginning of a sentence."""
        return self.words[0].upper() + self.words[1:]


def judged_first(run: "Run") -> tuple[str, ...]:
    """The gaps of the run, first the one that is judged, which every face opens on: the total if the mismatch is a copy."""
    return run.once(_judged_first)


def _judged_first(run: "Run") -> tuple[str, ...]:
    known = [gap for gap in SAMPLED if gap in run.gaps]
    whole = {each.gap for each in copy_facts(run) if each.whole} if len(known) > 1 else set()
    return tuple(dict.fromkeys([*[gap for gap in known if gap not in whole][:1], *run.gaps]))


def copy_facts(run: "Run") -> tuple[CopyFact, ...]:
    """The gaps that are a copy at one step at least, in the order of GAPS."""
    copied = copied_steps(run)
    if not copied:
        return ()
    frame = run.metrics(by=("step",), names=("tokens",))
    return tuple(
        CopyFact(gap, tuple(sorted(copied[gap])), len(frame.filter(pl.col(f"{gap}/tokens") > 0)))
        for gap in GAPS
        if gap in copied
    )
