"""Trainers that people ask for and that have no adapter, each with the reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class UnsupportedTrainer:
    """A trainer that holds nothing to record, or is no longer developed."""

    name: str
    """As on the command line."""
    title: str
    why: str
    """One sentence."""


UNSUPPORTED_TRAINERS: tuple[UnsupportedTrainer, ...] = (
    UnsupportedTrainer(
        "easyr1", "EasyR1",
        "EasyR1 keeps no log-probs of its engine: it is built on an older verl without rollout_log_probs, so only old and "
        "current exist, and no gap between engine and trainer can be read from it",
    ),
    UnsupportedTrainer(
        "llama_factory", "LLaMA-Factory",
        "LLaMA-Factory trains PPO on what transformers generates with the trainer's own weights, and has no GRPO: there is no "
        "engine whose log-probs could differ",
    ),
    UnsupportedTrainer(
        "torchtune", "torchtune",
        "torchtune is no longer developed: its last release is 0.6.1, so no adapter was written",
    ),
    UnsupportedTrainer(
        "torchforge", "torchforge",
        "torchforge has not changed since November 2025: torchtitan's RL experiment took its place",
    ),
)  # fmt: skip
"""Trainers that people ask for, and why they have no adapter."""


def unsupported_trainer(name: str) -> UnsupportedTrainer | None:
    """The trainer of this name among those that hold nothing to record; None for any other."""
    plain = name.lower().replace("-", "_")
    return next((one for one in UNSUPPORTED_TRAINERS if one.name == plain or one.name.replace("_", "") == plain), None)
