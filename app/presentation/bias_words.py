"""The bias of a gap in the gradient in one sentence, the same on every face."""

from typing import TYPE_CHECKING

from .digits import count, digits, plus_minus, whole_percent

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.gradient_bias import GradientBias

NAME = "bias in the gradient"
ABOUT = (
    "The mean over the steps of sum(A (w - 1)) / sum(|A|), the part of the advantages that a policy gradient without importance "
    "weights leaves out, ± one standard error that allows for steps that are alike. Noise averages out, a bias adds up. The "
    "persistent share is of the mean square of a step."
)


def bias_words(bias: "GradientBias") -> str:
    """The sentence, without a full stop."""
    found = bias.found
    if found is None:
        return f"not available, because {bias.because}"
    over = f"per step over {count(found.steps, 'step')}"
    if not found.is_persistent:
        return f"no persistent part is beyond chance: {_signed(found.mean, found.error)} {over}"
    return (
        f"the gap pushes the gradient the same way: {_signed(found.mean, found.error)} {over}, "
        f"{_signed(found.total, found.total_error)} in all; {whole_percent(found.share)} of it is persistent"
    )


def bias_fact(bias: "GradientBias | None") -> str:
    """The sentence if the bias is beyond chance; else empty."""
    return bias_words(bias) if bias is not None and bias.found is not None and bias.found.is_persistent else ""


def _signed(value: float, error: float) -> str:
    """A number with its sign and its standard error."""
    return f"{'+' if value > 0 else ''}{plus_minus(value, error) if error else digits(value)}"
