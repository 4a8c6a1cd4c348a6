"""Score centering in the syntax of the trainers that have it, if public text shows that syntax; else why it is not printed.

Sources: MOLT 0.2.1, whose own function is run by its tests; NeMo-RL's nightly guide "Score Centering"; SkyRL's release notes of
0.5.0, pull request 2244 and its tests of score centering; slime's utils/score_centering.py at 2e5cd7cd; verl's example script and
tests of autumn 2026; Agent-Lightning's release notes of 1.0.3. docs/bias_and_noise.md lists what could not be read.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ratioscope.errors import ConfigError

from ..analysis.score_centering import Centering
from ..corrections.correction import Correction, Weigh
from .translation import written

TRAINERS = {
    "molt": "MOLT", "nemo_rl": "NeMo-RL", "skyrl": "SkyRL 0.5", "slime": "slime", "verl": "verl of autumn 2026",
    "agent_lightning": "Agent-Lightning",
}  # fmt: skip
"""Name -> the trainer in words. Trainers that are not listed are not known to have score centering."""
_FLAGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "molt": {
            "always": "--algo.advantage.score_centering_top_k {k} --train.max_epochs 1",
            "one": "--algo.advantage.is_correction_level off",
            "clamp": "--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode clip "
            "--algo.advantage.is_correction_threshold {low:g} {high:g}",
            "zero": "--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode mask "
            "--algo.advantage.is_correction_threshold {low:g} {high:g}",
        },
        "slime": {
            "always": "--use-score-centering --score-centering-top-k {k}",
            "one": "",
            "clamp": "--use-tis --tis-clip-low {low:g} --tis-clip {high:g}",
            "zero": "--use-tis --tis-clip-low {low:g} --tis-clip {high:g} "
            "--custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function",
        },
    }
)
"""Trainer -> weights outside the bounds (`Centering.outside`) -> flags of its command line."""
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
    if trainer == "verl":
        return "\n".join(_verl(centering, k))
    if (flags := _FLAGS.get(trainer)) is not None:
        text = f"{flags['always']} {flags[centering.outside]}".format(k=k, low=centering.low, high=centering.high)
        return "\n".join(f"--{flag.strip()}" for flag in text.split("--")[1:])
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


def _verl(centering: Centering, k: int) -> list[str]:
    """Overrides. verl refuses if the driver's and the actor's differ; it asks for vLLM, FSDP and its bypass mode."""
    own = {"bypass_mode": "true", "loss_type": "reinforce", "score_centering": "true", "rollout_is": "null"}
    if centering.outside != "one":
        # Two points keep 0.5_5.0 a text: a YAML reader takes 0.5_5 for the number 0.55.
        bounds = f"{centering.low}_{centering.high}" if centering.outside == "zero" else f"{centering.high}"
        own |= {"rollout_is": "token", "rollout_is_threshold": bounds}
    places = ("algorithm", "+actor_rollout_ref.actor.policy_loss")
    lines = [f"{place}.rollout_correction.{name}={value}" for place in places for name, value in own.items()]
    return [
        *lines,
        "actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode",
        f"actor_rollout_ref.rollout.topk_log_probs={k}",
    ]
