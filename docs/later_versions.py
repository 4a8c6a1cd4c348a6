"""Trainers whose newest state could not be tested: what was built for it from documentation or single files, or why not."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LaterVersion:
    """A state of a trainer after the tested one, which was not run."""

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
RAN = (
    "No trainer of this table was run; where the adapter lacks it, the tested parts serve. Single functions were: those of score "
    "centering of slime, miles, verl, prime-rl and the Fireworks cookbook, and what SkyRL's test compares its own with, gave the "
    "numbers that tests compare ours with"
)
LATER_VERSIONS = (
    LaterVersion(
        "SkyRL", "0.5.0 of 2026-11-17 (the package ends at 0.4.0)",
        "the sampler's side at the likeliest tokens, and the settings of score centering, from release notes, pull request 2244 "
        "and its single files (e13403db of its author, tests at b49e6757); its workers compute the trainer's side, which its "
        "driver is not known to hold. Its default loss DPPO is 0.4.0's, unchanged at 03d74caf, and the dialect is compared with "
        "both of its forms. Its fused head was run on a CPU and needs no dialect: its log-probs are a plain log-softmax, to 1e-5 "
        "in float32. In bfloat16 it divides the weights by the temperature, which moves a log-prob at 0.6 by 0.02 on average",
    ),
    LaterVersion(
        "NeMo-RL", "0.8.0, and the nightly documentation (the package is a placeholder)",
        "the settings of score centering, from the nightly guide. It asks for SingleController with the Megatron worker, which "
        "tests do not reach, so neither side is recorded at the likeliest tokens; the tested source has such log-probs in "
        "distillation alone. No source of its function compute_score_centering_term was found, so it was not run",
    ),
    LaterVersion(
        "slime", "0.3.2, and source of autumn 2026 (no package)",
        "both sides at the likeliest tokens, and the settings of score centering, from loss.py at 00c2d6db and "
        "score_centering.py at 2e5cd7cd; not with --rollout-top-p below 1, which sums over the whole support",
    ),
    LaterVersion(
        "miles", "pull request 3317 of 2026-09-18, open",
        "nothing: three forms of its score centering were found, the function that was run at 857598ff, and its loss does not "
        "call the function that the adapter watches",
        "a run with --loss-type score_centering says that nothing of the loss is recorded",
    ),
    LaterVersion(
        "prime-rl", "source of autumn 2026 (no package)",
        "both sides at the ids of the sampling mask, from trainer/rl/loss.py and train.py of that time",
    ),
    LaterVersion(
        "Fireworks cookbook", "source after 2026-08-19, and fireworks-ai 1.2.30",
        "its loss dppo of 3337e6ec, run, in the dialect; and both sides at the sampler's likeliest tokens with its policy loss "
        "score_centering, whose two functions were run as of 3337e6ec and 69a36e52, called as by async_rl_loop.py at 0ac47181. "
        "The SDK calls its top_logprobs those of the raw model, so they are recorded only if they agree with the sampled "
        "tokens' own log-probs, as at temperature 1. At 5922b318 the functions lie in training/utils/rl/algorithm, which the "
        "adapter does not watch, because no recipe that calls them there was found",
    ),
    LaterVersion(
        "verl", "trainer/ppo/score_centering.py at c6236f51, not in 0.9.1",
        "the settings of score centering, from its example script; nothing of both sides, because it computes the trainer's "
        "side in the engine's processor of logits, which the adapter does not watch",
    ),
    LaterVersion(
        "vime", "vllm-project/vime at 2b83ea20 (no package, no snapshot)",
        "nothing: single files show slime's names and functions with vLLM in place of SGLang, score centering among them",
        "log both sides by `Collector.log`",
    ),
    LaterVersion(
        "Agent-Lightning", "1.0.3 of 2026-11-03 (the package ends at 1.0.2)",
        "nothing of its own: its trainer is a subclass of verl's, which verl's adapter takes (tested with 1.0.2); no public "
        "text that names its setting of score centering was found",
        "attach verl's adapter, or import the events of its server",
    ),
)  # fmt: skip
"""Those that people ask for. ART 0.5.23, MOLT 0.2.1, tinker-cookbook 0.6.1 and TRL 1.16.0 are the newest, and tested."""
