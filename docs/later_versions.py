"""Trainers whose newest state could not be tested: what was built for it from documentation or single files, or why not."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LaterVersion:
    """A state of a trainer after the tested one. Nothing of it was run."""

    title: str
    """The trainer, as its authors write it."""
    newest: str
    """The version or date."""
    built: str
    """The part that was built for it, and the text that it was built from; "nothing", with the reason, if none was."""
    instead: str = ""
    """The way to record it meanwhile; "" if the tested adapter serves."""


TRIED = (
    "Looked for on 2026-11-30: the package index for Python 3.11 to 3.14, snapshots of the repositories, which end in August "
    "2026, and single files and documentation pages of public indexes"
)
LATER_VERSIONS = (
    LaterVersion(
        "SkyRL", "0.5.0 of 2026-11-17 (the package ends at 0.4.0)",
        "the sampler's side at the likeliest tokens, and the settings of score centering, from release notes and pull request "
        "2244; its driver is not known to hold the trainer's side. No source of its default loss DPPO and of its fused head was "
        "found, so no vectors of them",
    ),
    LaterVersion(
        "NeMo-RL", "0.8.0, and the nightly documentation (the package is a placeholder)",
        "the settings of score centering, from the nightly guide. It asks for SingleController with the Megatron worker, which "
        "tests do not reach, so neither side is recorded at the likeliest tokens; the tested source has such log-probs in "
        "distillation alone",
    ),
    LaterVersion(
        "slime", "0.3.2, and source of autumn 2026 (no package)",
        "both sides at the likeliest tokens, and the settings of score centering, from loss.py at 00c2d6db and "
        "score_centering.py at 2e5cd7cd; not with --rollout-top-p below 1, which sums over the whole support",
    ),
    LaterVersion(
        "miles", "pull request 3317 of 2026-09-18, open",
        "nothing: three forms of its score centering were found, and its loss does not call the function that the adapter "
        "watches",
        "a run with --loss-type score_centering says that nothing of the loss is recorded",
    ),
    LaterVersion(
        "prime-rl", "source of autumn 2026 (no package)",
        "both sides at the ids of the sampling mask, from trainer/rl/loss.py and train.py of that time",
    ),
    LaterVersion(
        "Fireworks cookbook", "source after 2026-08-19, and fireworks-ai 1.2.30",
        "nothing: its policy loss score_centering has both sides, inside a closure that the SDK calls; the SDK has top_logprobs "
        "in answers of the sampler, which the tested recipes of RL do not ask for",
        "log both sides by `Collector.log` in a recipe of your own",
    ),
    LaterVersion(
        "verl", "trainer/ppo/score_centering.py at c6236f51, not in 0.9.1",
        "nothing: it computes the trainer's side in the engine's processor of logits, which the adapter does not watch",
    ),
    LaterVersion(
        "Agent-Lightning", "1.0.3 of 2026-11-03 (the package ends at 1.0.2)",
        "nothing of its own: its trainer is a subclass of verl's, which verl's adapter takes (tested with 1.0.2); no public "
        "text that names its setting of score centering was found",
        "attach verl's adapter, or import the events of its server",
    ),
)  # fmt: skip
"""Those that people ask for. ART 0.5.23, MOLT 0.2.1, tinker-cookbook 0.6.1 and TRL 1.16.0 are the newest, and tested."""
