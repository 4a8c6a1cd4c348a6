"""The section of runs with several tokens per position: divergences, the expected score, the effect of score centering."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.support_numbers import SupportNumbers, support_numbers
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.persistence import LEAST_STEPS
from ratioscope.metrics.analysis.support_metrics import SUPPORT_METRICS
from ratioscope.metrics.dialects.centering_settings import TRAINERS, centering_settings
from ratioscope.metrics.known.trainers import trainer_named

from ..blocks import Block, Code, Drawer, Paragraph, Section, Table, text_table
from ..presentation.digits import count, digits, plus_minus
from .scope import Scope

if TYPE_CHECKING:
    from ratioscope.metrics.analysis.support_metrics import SupportNumber

REMOVES = "Effect of score centering."
BIAS = (
    "Bias is what an update has along the gap itself beyond the unbiased gradient: sum(A (u - w s)) / sum(|A|) over tokens, "
    "with the advantage A, the weight w, the score s, and the token's part u of the update: f(w) s, less its mean under the "
    "sampler if centred. Removed is the part of the bias without weights and centering."
)


def support_section(scope: Scope) -> Iterator[Block]:
    """The section of the chosen gap and steps, which reads top-k when it is opened; nothing without top-k, and within a slice."""
    if scope.view.run.topk_steps and scope.only is None:
        yield Drawer(TITLE, lambda: support_blocks(scope.view.run, _found(scope, scope.gap)), "support")


def centering_section(scope: Scope, gap: str) -> Iterator[Block]:
    """Score centering as a correction of this gap, which reads top-k when it is opened; nothing without top-k."""
    if scope.view.run.topk_steps:
        yield Drawer("score centering", lambda: centering_blocks(scope.view.run, _found(scope, gap)), "centering")


def _found(scope: Scope, gap: str) -> SupportNumbers | None:
    return scope.view.of(support_numbers, gap, scope.steps.chosen(scope.view.steps))


def support_blocks(run: Run, found: SupportNumbers | None) -> Iterator[Block]:
    """The section without its heading; nothing without top-k."""
    if found is None:
        return
    yield Paragraph(support_words(found), "absent" if found.because else "")
    if found.because:
        return
    yield Paragraph(drift_words(found))
    yield _numbers(found)
    yield from centering_blocks(run, found)


def centering_blocks(run: Run, found: SupportNumbers | None) -> Iterator[Block]:
    """The bias that each correction leaves, with score centering and without, and its settings; nothing without top-k."""
    if found is None:
        return
    if found.because:
        yield Paragraph(f"not available, because {found.because}", "absent", head=REMOVES)
        return
    yield Paragraph(effect_words(found), head=REMOVES)
    rows = [
        (each.centering.name, number_words(each.left), "–" if each.because else number_words(each.removed))
        for each in found.effects
    ]
    yield text_table("effect of score centering", ("update", "bias left [nats]", "removed"), rows, is_numbers=True)
    for sentence in (BIAS, *what_was_read(found)):
        yield Paragraph(sentence, "muted")
    yield from _settings(run, found)


def _numbers(found: SupportNumbers) -> Table:
    rows = [
        (
            metric.title,
            number_words(own),
            "" if metric.unit == "1" else metric.unit,
            count(own.tokens),
            count(own.sequences),
            metric.name,
        )
        for metric, own in zip(SUPPORT_METRICS, found.whole, strict=True)
    ]
    titles = ("metric", "value", "unit", "tokens", "sequences", "name")
    return text_table(TITLE, titles, rows, is_numbers=True)


def _settings(run: Run, found: SupportNumbers) -> Iterator[Block]:
    trainer = trainer_named(run.info.get("trainer"), tuple(TRAINERS))
    if not trainer:
        return
    yield Paragraph(f"Score centering in the syntax of {TRAINERS[trainer]}:")
    for each in found.effects:
        if not each.centering.is_centered:
            continue
        try:
            lines = centering_settings(trainer, each.centering, found.k)
        except ConfigError as error:
            yield Paragraph(f"{each.centering.name}: not printed, because {error}", "absent")
            continue
        yield Paragraph(each.centering.name)
        yield Code(lines.splitlines(), "yaml" if ": " in lines else "bash")


def printed(scope: Scope) -> Iterator[Section]:
    """The section of the report."""
    if scope.view.run.topk_steps:
        found = scope.view.of(support_numbers, scope.gap, None)
        yield Section("support", TITLE, lambda: support_blocks(scope.view.run, found))


TITLE = "Several tokens per position"
LEFT_OUT = (
    "without one token that has log-probs of both sides",
    "whose probabilities add up to more than 1",
    "whose own log-prob is not finite",
)
"""The reasons for which a token is left out, in the order of `support_numbers.COUNTED`."""
DISAGREE = (
    "{} another log-prob in the support than beside it: the two are of another temperature or filter, so that weights and "
    "expected scores do not fit together"
)


def number_words(number: "SupportNumber") -> str:
    """Value ± error, or a dash."""
    return plus_minus(number.value, number.error)


def support_words(found: "SupportNumbers") -> str:
    """The divergence beside K3 on the same tokens."""
    if found.because:
        return f"not available, because {found.because}"
    kl, k3 = found.named("support_kl"), found.named("support_k3")
    gain = f" Its error is 1/{digits(found.gain, 2)} of K3's on the same tokens." if found.gain > 1 else ""
    return (
        f"KL(rollout || trainer) is at least {number_words(kl)} nats/token, summed over up to {count(found.k, 'token')} per "
        f"position. K3 is {number_words(k3)}.{gain}"
    )


def effect_words(found: "SupportNumbers") -> str:
    """The bias without a correction beside that of score centering alone, and why no part is removed where none is known."""
    plain, centred, *_ = found.effects
    sizes = f"{number_words(plain.left)} nats, and with score centering {number_words(centred.left)}"
    words = f"An update without weights has a bias of {sizes}."
    return f"{words} No part is called removed, because {plain.because}." if plain.because else words


def drift_words(found: "SupportNumbers") -> str:
    """The persistent part of the drift of the score, or why it is not known."""
    if not found.named("score_drift").tokens:
        return "The drift of the score is not available, because no token with a support has an advantage."
    if found.drift is None:
        known = f"it is known at {len(found.steps)} of the {LEAST_STEPS} steps that its error needs"
        return f"Whether the drift of the score is persistent is not available, because {known}."
    size = f"{plus_minus(found.drift.mean, found.drift.error)} nats per step over {count(found.drift.steps, 'step')}"
    if not found.drift.is_persistent:
        return f"The drift of the score has no persistent part beyond chance: {size}."
    return f"The drift of the score {'widens' if found.drift.mean > 0 else 'narrows'} the gap at each update: {size}."


def what_was_read(found: "SupportNumbers") -> list[str]:
    """Facts of the reading: a part of the tokens, those left out, those that do not fit. One a sentence."""
    *left_out, disagreeing = found.counted
    told = [f"Left out: {count(n, 'token')} {why}." for n, why in zip(left_out, LEFT_OUT, strict=True) if n]
    if disagreeing:
        told.append(f"{DISAGREE.format(count(disagreeing, 'token') + (' has' if disagreeing == 1 else ' have'))}.")
    part = f"Read: a part of the tokens of {count(len(found.steps), 'step')}, because top-k is large."
    return [*([part] if found.is_part else []), *told]
