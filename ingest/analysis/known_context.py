"""The context of a diagnosis: changes over the steps, published range, remedies of the trainer, corrections, groups and masks.

Faults that the settings of a run betray: those of the table of known faults, and the warnings of the trainer's dialect.
The published range for runs of this class, beside the run's own floor. It is context: no grade depends on it.
The correction that bridges a likely cause until it is mended, in the syntax of the run's trainer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.metrics.corrections.advice import OWN, Advice
from ratioscope.metrics.corrections.correction import USUAL, Correction, weighted_gap
from ratioscope.metrics.diagnosis.cause import Cause
from ratioscope.metrics.diagnosis.sentinels import Sentinels, plain_sentinels
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.dialects.translation import written
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.known.faults import Remedy, can_be_corrected, faults_in, is_done, remedy_for
from ratioscope.metrics.known.references import FACTS, Reference, RunFacts, missing_facts, reference_for, references
from ratioscope.metrics.known.trainers import DIALECT, trainer_named

from ..run import Run
from .comparability import run_facts, scorers_of
from .conversation_identity import Identity, identity_of, plain_identity
from .copies import CopyFact
from .correction_ranking import by_histogram, correction_in_use, ranking, reads, title_of, without_double
from .diagnosis import RunDiagnosis
from .grades import floors_of
from .group_facts import Count, group_facts, plain_counts
from .growth import Growth, growth_of, plain_growth
from .own_correction import OwnCorrection, own_correction_of, own_settings, plain_own_correction
from .run_settings import settings
from .sentinels import sentinels_of
from .trust_region import TrustRegion, plain_trust, trust_region

HOW: dict[str, str] = {
    "model": '"model": "Qwen/Qwen3-8B"',
    "engine": '"engine": "vLLM 0.32 bfloat16"',
    "trainer": '"model_dtype": "bfloat16"',
    "replay": '"rollout_routing_replay": False',
    "moe": '"num_experts": 0',
}
"""Fact -> the entry of the collector's `config` that puts it on record."""

ALIGNED = "exact"
"""Name of the class of runs whose gap is the least that can be attained."""
FOREIGN = ("slime.", "examples.")
"""A setting of slime that contains one of these names a function of slime, which miles has elsewhere."""


@dataclass(frozen=True)
class Bridge:
    """The correction to use while a cause is being mended."""

    cause: str
    """Code of the likeliest cause."""
    helps: bool
    """False if no correction can help, because the log-probs are not those of what was sampled."""
    advice: Advice | None = None
    """The comparison of corrections, by the names that the page of corrections gives them; None if none was compared."""
    settings: str = ""
    """The recommended correction in the syntax of the run's trainer; empty if the trainer has none, or is not known."""
    name: str = ""
    """The recommended one in the field's words, such as `token TIS 2`; empty without one, and for the run's own."""
    steps: int = 0
    """Number of steps on which corrections were compared."""
    own: str = ""
    """The run's own correction, such as `truncate token at 3`; empty if it has none, or if it could not be compared."""

    @property
    def best(self) -> str:
        """The correction to change to, and its rule, such as `token TIS 2 (truncate token at 2)`; empty without one."""
        rule = self.advice.best if self.advice is not None and self.helps else None
        return "" if not self.name or not rule else self.name if rule == self.name else f"{self.name} ({rule})"

    @property
    def brief(self) -> str:
        """The correction to use until the cause is mended, in a clause; empty if there is nothing to do."""
        if self.best and self.advice is not None:
            instead = f" in place of the run's own {self.own}" if self.own else ""
            return f"use {self.best}{instead}: the gradient's squared error falls by {self.advice.gain:.0%}"
        is_kept = self.advice is not None and self.advice.outcome == "its own is as good"
        return f"keep the run's own {self.own}: no other one is better for sure" if is_kept else ""

    @property
    def words(self) -> str:
        """The recommendation, in sentences."""
        if not self.helps:
            return "no correction helps: weights made of these log-probs are no importance weights; fix the cause"
        if self.advice is None:
            return ""
        over = f"over {self.steps:,} step{'s' * (self.steps != 1)}"
        if self.advice.outcome == "its own is as good":
            return f"{over}, {self.advice.own[0].lower()}{self.advice.own[1:]} Keep it"
        if not self.best:
            return self.advice.title[0].lower() + self.advice.title[1:]
        settings = "; its settings are below" if self.settings else ""
        rank = "" if self.advice.as_good else " best"
        bridges = f"{self.best} bridges the gap{rank} {over} ({self.advice.confidence} confidence)"
        gain = f"it lowers the gradient's squared error by {self.advice.gain:.0%}"
        return f"{f'in place of {self.own}, ' if self.own else ''}{bridges}: {gain}{settings}"


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
        return f"usual for {self.reference.words}: K3 {usual}{self._attainable}, {odd} ({sources}){own}"

    @property
    def _attainable(self) -> str:
        """The level that aligned stacks reach, whatever is usual, to follow it."""
        aligned = next(each for each in references() if each.name == ALIGNED)
        return "" if aligned is self.reference else f" ({aligned.words} reach {aligned.usual[1]:g})"

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


@dataclass(frozen=True)
class SettingFault:
    """A fault that settings on record betray."""

    code: str
    """Its name in JSON; "settings" for a warning of a dialect."""
    statement: str
    """The fault in one sentence."""
    do: str
    """The change that mends it; empty for a warning of a dialect, whose statement names it."""
    because: dict[str, str]
    """Key on record -> its value."""
    source: str
    """The place where it was read."""

    @property
    def words(self) -> str:
        """The statement, the settings that betray it, and the change, in one line."""
        because = ", ".join(f"{key.removeprefix('config.')} is {value}" for key, value in self.because.items())
        return " ".join(part for part in (self.statement, f"Found: {because}." if because else "", self.do) if part)


@dataclass(frozen=True)
class KnownContext:
    """Additions to a diagnosis. None of them changes a severity."""

    trainer: str | None
    """Name of the run's trainer; None if run.json names none that is known."""
    reference: ReferenceRange
    """The published range of such a gap, and where this run lies."""
    remedies: dict[str, Remedy]
    """Code of a likely cause -> its remedy in the run's trainer. A cause without a known remedy is absent."""
    bridge: Bridge | None
    """The correction to use meanwhile; None if no cause is likely."""
    correction: OwnCorrection
    groups: tuple[Count, ...]
    """The health of groups and masks on the steps that the diagnosis has read, and copies of a side of a gap."""
    faults: tuple[SettingFault, ...]
    growth: Growth
    """Changes of the gap over all steps that were asked about."""
    trust: TrustRegion
    """Copies of a side of a gap, and the part of the run's own clip that is spent before any update."""
    identity: Identity | None = None
    """Turns that were trained on ids that rendering does not give; None unless `ratioscope identity` read the run."""
    done: frozenset[str] = frozenset()
    """Codes of likely causes whose settings are on record as the trainer's remedy wants them."""
    sentinels: Sentinels | None = None
    """The numbers that stand in place of log-probs; None if there are none."""
    is_parity: bool = False
    """True for two scorers of `ratioscope parity`, which have no training: settings, versions and courses are nobody's."""

    def do_for(self, cause: Cause) -> str:
        """The remedy of the cause in no trainer's settings; the check that confirms it if these settings are so already."""
        return cause.confirm if cause.code in self.done else cause.remedy

    def bridge_for(self, code: str) -> Bridge | None:
        """The correction to use until this cause is mended; None if corrections were not compared for it."""
        return self.bridge if self.bridge and self.bridge.cause == code else None


def known_context(run: Run, result: RunDiagnosis, verdict: Finding) -> KnownContext:
    """The additions to the diagnosis of a run. verdict: of the run."""
    trainer = trainer_named(run.info.get("trainer"))
    codes = [item.cause.code for item in result.diagnosis.likely]
    own = result.record.settings or settings(run.info)
    remedies = {code: remedy for code in codes if (remedy := remedy_for(code, trainer, own)) is not None}
    own_correction = own_correction_of(run, result.steps, result.gap)
    is_parity = bool(scorers_of(run.info))
    return KnownContext(
        trainer,
        reference_of(run, result.gap),
        remedies,
        None if is_parity else bridge_of(run, result, verdict, trainer, is_on=not own_correction.refuted),
        own_correction,
        (*group_facts(run, result.steps), *map(_copied, result.untold)),
        setting_faults(run.info),
        growth_of(run, result.gap, result.among),
        trust_region(run, result.steps),
        identity_of(run),
        frozenset(code for code in codes if (is_parity and code == "different_weights") or is_done(code, trainer, own)),
        sentinels_of(run, result),
        is_parity,
    )


def _copied(fact: CopyFact) -> Count:
    return Count(fact.code, len(fact.steps), fact.of, fact.words)


def plain_known(context: KnownContext) -> dict[str, Any]:
    """The additions as values that JSON can hold."""
    sentinels = {} if context.sentinels is None else {"sentinels": plain_sentinels(context.sentinels)}
    return (
        sentinels
        | {
            "trainer": context.trainer,
            "reference": plain_reference(context.reference),
            "remedies": {code: _plain_remedy(found) for code, found in context.remedies.items()},
            "meanwhile": plain_bridge(context.bridge),
            "own_correction": plain_own_correction(context.correction),
            "groups_and_masks": plain_counts(context.groups),
            "known_faults": [asdict(each) for each in context.faults],
            "growth": plain_growth(context.growth),
            "trust_region": plain_trust(context.trust),
        }
        | ({} if context.identity is None else {"conversation_identity": plain_identity(context.identity)})
    )


def _plain_remedy(found: Remedy) -> dict[str, Any]:
    return {name: value for name, value in asdict(found).items() if name != "moot"}


def setting_faults(info: Mapping[str, Any]) -> tuple[SettingFault, ...]:
    """The faults that the settings of a run betray. info: the content of run.json."""
    faults = faults_in(settings(info), trainer_named(info.get("trainer")))
    known = [
        SettingFault(each.fault.code, each.fault.statement, each.fault.do, dict(each.because), each.fault.source)
        for each in faults
    ]
    return (*known, *_warnings(info))


def _warnings(info: Mapping[str, Any]) -> tuple[SettingFault, ...]:
    own = own_settings(info)
    if own is None:
        return ()
    try:
        notes = dialect(own.dialect).parse(own.config).warnings
    except RatioscopeError as error:
        notes = (f"the trainer would reject these settings: {error}",)
    source = f"the settings of {own.dialect}, as its dialect reads them"
    return tuple(SettingFault("settings", f"{note[0].upper()}{note[1:]}.", "", {}, source) for note in map(str, notes))


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


def bridge_of(
    run: Run, result: RunDiagnosis, verdict: Finding, trainer: str | None, *, is_on: bool = True
) -> Bridge | None:
    """The bridge for the likeliest cause that explains a part of the gap; None if no cause does.

    Corrections are compared over all steps that were asked about, the run's own one among them; if that needs token rows, on
    the steps that the diagnosis has read. trainer: only corrections that it can express are compared; None, or a trainer without
    a dialect: all. is_on: False if the loss mask on record shows that the run's own correction is not on.
    """
    likely = next((item for item in result.diagnosis.likely if item.share is not None), None)
    if likely is None:
        return None
    code = likely.cause.code
    if not can_be_corrected(code):
        return Bridge(code, helps=False)
    gap = weighted_gap(result.gap)
    if gap is None:
        return Bridge(code, helps=True)
    texts = {title_of(each): _written(each, trainer) for each in USUAL if each.steps}
    usual = {title_of(each): replace(each, gap=gap) for each in USUAL if texts.get(title_of(each)) is not None}
    own = correction_in_use(run.info).made if is_on else None
    compared = without_double(own if own and reads(own, gap) else None, [*usual.values()])
    exact = [each for each in compared if by_histogram(each)]
    steps: Sequence[int] = result.steps
    if exact[:1] == compared[:1]:  # the run's own correction needs no rows, so that all steps can be compared at once
        compared, steps = exact, [step for step in run.steps if result.among is None or step in result.among]
    found = ranking(run, compared, verdict, gap=gap, steps=steps)
    used = title_of(compared[0]).removesuffix(OWN) if found and found.own else ""
    best = found.best if found and found.best in usual else None
    settings, name = ("", "") if best is None else (texts[best] or "", usual[best].name)
    return Bridge(code, True, found, settings, name, len(steps), used)


def _written(correction: Correction, trainer: str | None) -> str | None:
    """The correction in the trainer's syntax; "" for a trainer without a dialect; None if the trainer cannot express it."""
    dialect = DIALECT.get(trainer or "", trainer)
    if dialect not in NAMES:
        return ""
    try:
        text = written(dialect, correction)
    except ConfigError:
        return None
    return None if dialect != trainer and any(name in text for name in FOREIGN) else text


def plain_bridge(bridge: Bridge | None) -> Mapping[str, Any] | None:
    """A bridge as values that JSON can hold."""
    if bridge is None:
        return None
    own = bridge.advice
    return {
        "cause": bridge.cause, "helps": bridge.helps, "correction": bridge.name or bridge.own or None, "words": bridge.words,
        "confidence": None if own is None else own.confidence, "why": "" if own is None else f"{own.own} {own.why}".strip(),
        "settings": bridge.settings,
    }  # fmt: skip
