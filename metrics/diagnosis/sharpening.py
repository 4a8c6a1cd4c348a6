"""Sharpening: the factor by which logits grow over the steps of a policy that learns, and rounding of logits with them.

Rounding is relative: logits that are s times larger are rounded s times more coarsely, and K3 of equal probabilities is s^2
times larger. For logits that are scaled by s, dH / d log s = -Var(log p) in each context, so that s follows from the entropies.
"""

import numpy as np

from .evidence import Evidence, once

FLAT = 1e-3
"""A smaller variance of log p in nats^2 is that of a policy which is uniform: its entropy says nothing of its logits."""


@once
def sharpening(evidence: Evidence) -> float:
    """Log of the logits' scale at its highest over that at the first step that was read, less its error; at least 0.

    Without entropies the surprisal stands for them: its variance is larger, and the sharpening that it tells smaller.
    """
    if not evidence.has("step"):
        return 0.0
    steps, index = evidence.step_codes
    surprisal = -evidence.later
    entropy = evidence.facts["entropy"] if evidence.has("entropy") else surprisal
    known, size = np.isfinite(entropy), len(steps)
    tokens = np.maximum(np.bincount(index[known], minlength=size), 1)
    mean = np.bincount(index[known], entropy[known], minlength=size) / tokens
    expected = entropy if evidence.has("entropy") else mean[index]
    spread = np.bincount(index[known], ((surprisal - expected) ** 2)[known], minlength=size) / tokens
    between = np.maximum((spread[1:] + spread[:-1]) / 2, FLAT)
    error = np.sqrt(1 / np.maximum(spread * tokens, FLAT))
    scale = np.cumsum(-np.diff(mean) / between) - np.hypot(error[0], error[1:])
    return max(0.0, float(scale.max(initial=0.0)))
