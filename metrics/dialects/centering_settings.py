"""Score centering in the syntax of the trainers that have it, if public text shows that syntax; else why it is not printed.

Sources: NeMo-RL's nightly guide "Score Centering"; SkyRL's release notes of 0.5.0, pull request 2244 and its tests of score
centering; Agent-Lightning's release notes of 1.0.3. docs/bias_and_noise.md lists what could not be read.
"""

from ratioscope.errors import ConfigError

from ..analysis.score_centering import Centering
from ..corrections.correction import Correction, Weigh
from .translation import written

TRAINERS = {"nemo_rl": "NeMo-RL", "skyrl": "SkyRL 0.5", "agent_lightning": "Agent-Lightning"}
"""Name -> the trainer in words. Trainers that are not listed are not known to have score centering."""
NO_TEXT = "Agent-Lightning 1.0.3 has score centering, but no public text that names its setting was found"


def centering_settings(trainer: str, centering: Centering, k: int) -> str:
    """The settings of a centered Centering, lines as the trainer reads them. k: tokens per position.

    ConfigError if the trainer has none, or none that public text shows.
    """
    if trainer == "nemo_rl":
        own = written(trainer, _correction(centering)) or "loss_fn:\n"
        return own.replace("loss_fn:\n", "loss_fn:\n  score_centering: true\n").rstrip("\n")
    if trainer == "skyrl":
        return "\n".join(_skyrl(centering, k))
    raise ConfigError(NO_TEXT if trainer in TRAINERS else f"{trainer} is not known to have score centering")


def _correction(centering: Centering) -> Correction:
    """The weights of a Centering as a Correction."""
    if centering.outside == "one":
        return Correction(centering.name, ())
    return Correction(centering.name, (Weigh("token", centering.low, centering.high, centering.outside),))


def _skyrl(centering: Centering, k: int) -> list[str]:
    """Dot overrides. Its loss `rollout_is` keeps weights from 1 - eps_clip_low to 1 + eps_clip_high, and is 0 outside."""
    lines = ["trainer.algorithm.score_centering.enabled=true", f"trainer.algorithm.score_centering.top_k={k}"]
    if centering.outside == "one":
        return ["trainer.algorithm.policy_loss_type=reinforce", *lines]
    if centering.outside == "clamp":
        raise ConfigError("no public text shows SkyRL's score centering with truncated weights")
    bounds = (f"low={1 - centering.low:g}", f"high={centering.high - 1:g}")
    clip = [f"trainer.algorithm.eps_clip_{bound}" for bound in bounds]
    return ["trainer.algorithm.policy_loss_type=rollout_is", *clip, *lines]
