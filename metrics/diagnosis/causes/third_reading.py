"""Causes that log-probs of two sides cannot tell from others, and that a third reading shows: see `ratioscope rescore --try`."""

from ..cause import Cause, Result, undecided
from ..evidence import Evidence


def _untested(_: Evidence) -> Result:
    return undecided("a third reading of the tokens tells: ratioscope rescore --try")


def _cause(code: str, title: str, meaning: str, remedy: str, confirm: str) -> Cause:
    return Cause(code, title, "rest", _untested, "read as the referee reproduces it", meaning, remedy, confirm)


CAUSES = (
    _cause(
        "position_ids",
        "the two sides read the tokens at other positions",
        "One side computes another policy than its weights are meant to be, the more so the longer a sequence is.",
        "Compare position ids, rope_theta and rope_scaling of the two sides, with and without padding and packing.",
        "Score one sequence alone, without padding: the gap is gone.",
    ),
    _cause(
        "attention_mask",
        "the two sides attend to other tokens",
        "One side computes another policy than its weights are meant to be, wherever the masks differ.",
        "Compare attention masks and sliding_window of the two sides.",
        "Score one sequence that is shorter than the window: the gap is gone.",
    ),
    _cause(
        "logit_cap",
        "one side caps its logits and the other does not",
        "Likely tokens get too small a log-prob on the side that caps.",
        "Give both sides the same final_logit_softcapping.",
        "Compare the largest logit of both sides for one prompt.",
    ),
    _cause(
        "adapter_scale",
        "an adapter is missing, counted several times, or at another scale",
        "The policy that samples is not the one that is trained: the gap grows with what the adapter has learned.",
        "Compare which adapter is loaded, its alpha and rank, and how often it is merged.",
        "Digests of the merged weights of both sides.",
    ),
    _cause(
        "dropout",
        "one side drops activations at random",
        "The log-probs of that side are those of another network at each call, so ratios are noise.",
        "Call eval() before tokens are scored, or set the dropout rates to 0.",
        "Score the same batch twice: the two results differ.",
    ),
)
