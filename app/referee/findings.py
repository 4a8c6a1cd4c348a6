"""Findings of --try: the alternative that is nearest to a recorded column, and how they are written into the run.

The diagnosis, charts and the report read them there, as events.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import not_writable

from ..presentation.json_values import jsonable
from .answer import BOUND, ROUNDING, WHO
from .hypotheses import PLAIN
from .judges import ASSUMED, DECODE

SERVED = "the server as it is"
"""The name of the plain reading by a server, which is no referee: it has one side's weights."""
CLEARLY = 10.0
"""An alternative without a floor fits a column best if mean |x| falls by this factor. A convention."""
IN_PART = 3.0
"""An alternative explains a column in part if mean |x| falls by this factor. A convention."""


@dataclass(frozen=True)
class Best:
    """The alternative that is nearest to a column at some steps."""

    policy: str
    hypothesis: str
    """The name of the alternative."""
    meaning: str
    """The alternative in words."""
    steps: tuple[int, ...]
    mean: float
    """mean |x| under the alternative, nats/token."""
    plain: float
    """mean |x| under the referee as it is."""
    share: float
    """Share of tokens within ROUNDING under the alternative."""
    code: str = ""
    """The codes of the causes that it shows, one for each of its changes."""
    floor: float = float("nan")
    """mean |x| of the alternative from itself at the column's precision."""
    plain_floor: float = float("nan")
    """The same of the referee as it is."""
    precision: str = ""
    """The precision of the column on record, or the server's decode; empty if neither is known."""
    others: tuple[str, ...] = ()
    """Names of other alternatives that reproduce the column as well."""
    other_codes: tuple[str, ...] = ()
    """Their codes, as far as they are others."""
    k3: float = float("nan")
    """Mean clipped K3 under the alternative, nats/token."""
    k3_plain: float = float("nan")
    """The same under the referee as it is."""
    floor_error: float = 0.0
    """The standard error of `floor`: 0 where it is of the column's own tokens, NaN where it is not known."""
    reading: str = ""
    """The name of the server's reading that was read under alternatives; "" for a model's."""

    @property
    def verdict(self) -> str:
        """reproduced (proof), fits best (it would be proof, were the precision or the floor known), in part, or no."""
        if self.mean <= ROUNDING:
            return "reproduced"
        is_plain, beside = self.hypothesis in (PLAIN.name, SERVED), self.mean <= BOUND * (self.floor - self.floor_error)
        if beside and (is_plain or self.plain > BOUND * self.plain_floor):
            return "reproduced" if self.precision else "no" if is_plain else "fits best"
        if self.floor != self.floor and self.mean * CLEARLY <= self.plain:
            return "fits best"
        return "in part" if self.mean * IN_PART <= self.plain else "no"

    @property
    def sentence(self) -> str:
        """The finding in words."""
        where = f"step {self.steps[0]}" if len(self.steps) == 1 else f"steps {self.steps[0]} to {self.steps[-1]}"
        who = f"{self.policy} (the {WHO[self.policy]}'s)"
        size, other = f"{self.mean:.1g}", "".join(f", or {name}" for name in self.others)
        if self.mean > ROUNDING and self.floor == self.floor:
            error = f" ± {self.floor_error:.1g}" if self.floor_error else ""
            beside = f"{self.precision or (DECODE if self.reading else ASSUMED)} alone gives {self.floor:.2g}{error}"
            size, where = f"{self.mean:.2g}", f"{where}; {beside}"
        match self.verdict:
            case "reproduced":
                return f"{who} is reproduced to {size} nats/token by {self.hypothesis}{other} ({where}): {self.meaning}"
            case "fits best":
                fits = f"{who} fits best to {self.hypothesis}{other} ({where}; mean |x| falls from {self.plain:.2g} to {size})"
                unknown = bool(self.reading) or self.floor != self.floor
                lack = "rounding of this side is unknown" if unknown else "precision of this side is not on record"
                return f"{fits}: {self.meaning}. It is no proof, because the {lack}"
            case "in part":
                fall = f"mean |x| falls from {self.plain:.2g} to {self.mean:.2g}"
                return f"{who} is explained in part by {self.hypothesis} ({where}; {fall}): {self.meaning}"
        return f"{who} is not reproduced ({where}): mean |x| is {self.mean:.2g} at best, under {self.hypothesis}"


@dataclass
class ReproductionAttempt:
    """The result of every alternative."""

    best: list[Best] = field(default_factory=list)
    means: dict[str, dict[str, float]] = field(default_factory=dict)
    """Policy -> alternative -> mean |x| over all tokens, nats/token, of those that were read on all sequences."""
    sequences: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """Alternative -> why it could not be tried."""
    screened: dict[str, dict[str, float]] = field(default_factory=dict)
    """Policy -> alternative -> mean |x| over the few sequences by which alternatives were chosen."""


def write_proofs(path: str | os.PathLike[str], results: Sequence[Best]) -> None:
    """Writes what was found into the run: the findings as data, and an event for each column that an alternative reproduces."""
    proofs = [best for best in results if best.verdict == "reproduced" and best.hypothesis != PLAIN.name]
    notes = [asdict(best) | {"verdict": best.verdict, "sentence": best.sentence} for best in results]
    say(path, {"found": notes}, min((step for best in results for step in best.steps), default=0), *(
        {"kind": layout.EVENT, "event": layout.REPRODUCED, "step": best.steps[0], "note": best.sentence}
        for best in proofs
    ))  # fmt: skip


def say(path: str | os.PathLike[str], told: Mapping[str, Any], step: int, *events: Mapping[str, Any]) -> None:
    """Writes data of the referee, and events, into the run."""
    own = {"kind": layout.EVENT, "event": layout.REFEREE, "step": step, "note": json.dumps(jsonable(told))}
    try:
        OfflineWriter(Path(path), "rescore").say(own, *events)
    except OSError as error:
        raise not_writable(path, error) from error
