"""The published range for runs of this class, beside the run's own floor. It is context: no grade depends on it."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ratioscope.metrics.known.references import FACTS, Reference, RunFacts, missing_facts, reference_for

from .grades import floors_of
from .run_facts import run_facts

if TYPE_CHECKING:
    from ..run import Run

HOW: dict[str, str] = {
    "model": '"model": "Qwen/Qwen3-8B"',
    "engine": '"engine": "vLLM 0.32 bfloat16"',
    "trainer": '"model_dtype": "bfloat16"',
    "replay": '"rollout_routing_replay": False',
    "moe": '"num_experts": 0',
}
"""Fact -> the entry of the collector's `config` that puts it on record."""


@dataclass(frozen=True)
class ReferenceRange:
    """The published range for a run, or the facts that are missing to choose one."""

    facts: RunFacts
    reference: Reference | None
    missing: tuple[str, ...]
    """Facts without which no range can be chosen; empty if the class is known or was never published."""
    floor: float | None
    """K3 of the run's own floor in nats/token; None if no floor is on record."""

    @property
    def words(self) -> str:
        """The range and the floor in one line."""
        own = "" if not self.floor else f"; this run's own floor: {self.floor:.3g}"
        if self.reference is None:
            return f"no published range: {self._why}{own}"
        low, high = self.reference.usual
        usual = f"{low:.2g} to {high:.2g}" if low else f"at most {high:.2g}"
        usual = usual if high else "0"
        odd = f"odd above {self.reference.odd:.2g}" if self.reference.odd else "anything else is odd"
        count = len(self.reference.sources)
        sources = f"{count} source{'s' * (count > 1)}"
        return f"usual for {self.reference.words}: K3 {usual}, {odd} ({sources}){own}"

    @property
    def _why(self) -> str:
        if not self.missing:
            return "none is known for a run of this class"
        *others, last = (FACTS[fact] for fact in self.missing)
        names = f"{', '.join(others)} and {last}" if others else last
        ways = [HOW[fact] for fact in self.missing if fact in HOW]
        them = "it" if len(ways) == 1 else "them"
        record = f"; record {them} with Collector(config={{{', '.join(ways)}}})" if ways else ""
        return f"{names} {'is' if len(self.missing) == 1 else 'are'} not on record{record}"


def reference_of(run: "Run", gap: str) -> ReferenceRange:
    """The published range for a run, and the run's own floor of this gap."""
    facts = run_facts(run.info)
    return ReferenceRange(facts, reference_for(facts), missing_facts(facts), floors_of(run).get(gap))


def plain_reference(found: ReferenceRange) -> dict[str, Any]:
    """A range as values that JSON can hold."""
    reference = found.reference
    published = None if reference is None else {
        "class": reference.name,
        "words": reference.words,
        "estimator": "K3 per token in nats, at fresh weights and without truncation",
        "usual": list(reference.usual),
        "odd_above": reference.odd,
        "note": reference.note,
        "sources": list(reference.sources),
        "measurements": [asdict(each) for each in reference.measurements],
    }  # fmt: skip
    return {
        "words": found.words, "own_floor": found.floor, "published": published, "missing": list(found.missing),
        "facts": asdict(found.facts),
    }  # fmt: skip
