"""The advice on corrections in words, the same on the page and in the terminal: the best one, and the run's own one, judged.

The reason why a gap has no corrections, the same on every page.
"""

from collections.abc import Iterator

from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.ingest.analysis.correction_ranking import InUse, reads, title_of
from ratioscope.metrics.corrections.advice import OWN, Advice
from ratioscope.record import GAPS, sides

from ..blocks import Block, Paragraph
from ..presentation.sentence import capital

DRIFT = (
    "Its log-ratio is current − old, but the tokens were sampled from rollout, not from old, so exp(drift) is not an importance "
    "weight. Trainers use it in the PPO clip inside the loss; the page Charts shows the share of tokens outside 0.8–1.2. "
    "Corrections apply to the gap mismatch, or to total where the trainer has no old log-probs."
)
NO_SAMPLER = "The tokens were sampled from rollout, not from {}. Corrections apply to gaps that begin at rollout."
OWN_HEAD = "The run's own correction:"


def own_reason(own: InUse, gap: str, refuted: str = "") -> str:
    """Why the run's own correction is not judged; empty if it can be. refuted: the words that show that it is not on."""
    if own.made is None or refuted:
        return refuted or own.reason
    if reads(own.made, gap):
        return ""
    weighed = "recorded policies" if isinstance(own.made, TrainerCorrection) else own.made.gap
    return f"{title_of(own.made).removesuffix(OWN)} weighs {weighed}, not {gap}"


def advice_blocks(found: Advice, reason: str, help: str = "") -> Iterator[Block]:
    """reason: why the run's own correction is not judged. help: the words behind the reasons."""
    yield Paragraph(f"{capital(found.title)} · {found.confidence} confidence", "answer")
    if found.own:
        yield Paragraph(found.own, help="" if found.why else help)
    elif reason:
        yield Paragraph(f"{reason.removesuffix('.')}.", "muted", head=OWN_HEAD)
    if found.why:
        yield Paragraph(found.why, "muted", help=help)


def unweighted(gap: str) -> Paragraph:
    """Why exp of the log-ratio is no importance weight, for a gap whose tokens were not sampled from its earlier side."""
    why = DRIFT if gap in GAPS else NO_SAMPLER.format(sides(gap)[0])
    return Paragraph(why, head=f"{capital(gap)} has no importance weights.")
