"""The numbers that several tokens per position give, in sentences, the same on every face."""

from typing import TYPE_CHECKING

from ratioscope.metrics.analysis.persistence import LEAST_STEPS

from .digits import count, digits, plus_minus

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.support_numbers import SupportNumbers
    from ratioscope.metrics.analysis.support_metrics import SupportNumber

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
