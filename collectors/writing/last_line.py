"""The last line of a run's recording: what is on disk, and the next command; or that nothing is, and why."""

import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass
class Logged:
    """The steps and policies that were logged."""

    first: int | None = None
    """The lowest step; None before the first."""
    last: int | None = None
    """The highest step."""
    policies: set[str] = field(default_factory=set)

    def add(self, step: int, policies: Iterable[str]) -> None:
        self.first = step if self.first is None else min(self.first, step)
        self.last = step if self.last is None else max(self.last, step)
        self.policies.update(policies)

    def __str__(self) -> str:
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        return "no step" if self.first is None else steps


def policies_in(names: Collection[str]) -> list[str]:
    """The policies whose log-probs are among the arguments of `log`."""
    from ratioscope.record import POLICIES

    return [policy for policy in POLICIES if f"{policy}_logprobs" in names]


def recorded(logged: Logged, tokens: int, *, part: str = "", is_whole: bool = True) -> str:
    """Steps, tokens and gaps that were recorded, in words. is_whole: False if other processes may have recorded more of them.

    part: which sequences of these steps were recorded, if not all of them.
    """
    from ratioscope.record import GAPS, sides  # which imports pyarrow

    gaps = [gap for gap in GAPS if set(sides(gap)) <= logged.policies]
    elsewhere = "" if is_whole else " unless another process records them"
    if gaps == ["drift"]:
        of = f"gap drift; no rollout log-probs, so no gap between sampler and trainer is measured{elsewhere}"
    elif gaps:
        of = f"gap {gaps[0]}" if len(gaps) == 1 else f"gaps {', '.join(gaps[:-1])} and {gaps[-1]}"
    elif logged.policies:
        of = f"{', '.join(sorted(logged.policies))} alone: a gap has two sides"
        of += "" if is_whole else ", and another process may record the other"
    else:
        of = "statistics alone"
    return f"{part and f'{part} of '}{logged}, {tokens:,} tokens on disk, {of}"


def last_line(
    run_dir: object,
    logged: Logged,
    tokens: int,
    *,
    by: str = "",
    because: str = "",
    part: str = "",
    is_whole: bool = True,
) -> str:
    """The whole line. by: of whom it tells, if not of the whole job. because: why nothing was recorded, where no step was."""
    if logged.first is None:
        return f"nothing was recorded{by and f' by {by}'} into {run_dir}: {because}"
    told = recorded(logged, tokens, part=part, is_whole=is_whole)
    return f"{by and f'{by} '}recorded {told}; next: ratioscope dashboard {shlex.quote(str(run_dir))}"
