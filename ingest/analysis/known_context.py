"""The context of a diagnosis: changes over the steps, published range, remedies of the trainer, corrections, groups and masks."""

from dataclasses import asdict, dataclass
from typing import Any

from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.known.faults import Remedy, remedy_for
from ratioscope.metrics.known.trainers import trainer_named
from ratioscope.record import GAPS

from ..run import Run
from .bridge import Bridge, bridge_of, plain_bridge
from .copy_facts import CopyFact
from .diagnosis import RunDiagnosis
from .group_facts import Count, group_facts, plain_counts
from .growth import Growth, growth_of, plain_growth
from .own_correction import OwnCorrection, own_correction_of, plain_own_correction
from .reference_range import ReferenceRange, plain_reference, reference_of
from .setting_faults import SettingFault, setting_faults


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
    """The run's own correction."""
    groups: tuple[Count, ...]
    """The health of groups and masks on the steps that the diagnosis has read, and copies of a side of a gap."""
    faults: tuple[SettingFault, ...]
    """Known faults that the settings on record betray."""
    growth: Growth
    """Changes of the gap over all steps that were asked about."""

    def bridge_for(self, code: str) -> Bridge | None:
        """The correction to use until this cause is mended; None if corrections were not compared for it."""
        return self.bridge if self.bridge and self.bridge.cause == code else None


def known_context(run: Run, result: RunDiagnosis, verdict: Finding) -> KnownContext:
    """The additions to the diagnosis of a run. verdict: of the run."""
    trainer = trainer_named(run.info.get("trainer"))
    codes = [item.cause.code for item in result.diagnosis.likely]
    remedies = {code: remedy for code in codes if (remedy := remedy_for(code, trainer)) is not None}
    return KnownContext(
        trainer,
        reference_of(run, result.gap),
        remedies,
        bridge_of(run, result, verdict, trainer),
        own_correction_of(run, result.steps, result.gap),
        (*group_facts(run, result.steps), *map(_copied, result.untold)),
        setting_faults(run.info),
        growth_of(run, result.gap, result.among),
    )


def _copied(fact: CopyFact) -> Count:
    earlier, later = GAPS[fact.gap]
    return Count(f"{later}_is_{earlier}", len(fact.steps), fact.of, fact.words)


def plain_known(context: KnownContext) -> dict[str, Any]:
    """The additions as values that JSON can hold."""
    return {
        "trainer": context.trainer,
        "reference": plain_reference(context.reference),
        "remedies": {code: asdict(found) for code, found in context.remedies.items()},
        "meanwhile": plain_bridge(context.bridge),
        "own_correction": plain_own_correction(context.correction),
        "groups_and_masks": plain_counts(context.groups),
        "known_faults": [asdict(each) for each in context.faults],
        "growth": plain_growth(context.growth),
    }
