"""Names of trainers, as the tables of this folder and run.json have them."""

import re

NAMES = (
    "verl", "trl", "slime", "miles", "skyrl", "nemo_rl", "areal", "openrlhf", "prime_rl", "roll", "open_instruct",
    "tinker_cookbook", "fireworks", "ms_swift", "unsloth", "art", "megatron_rl", "torchtitan_rl", "xtuner", "molt",
)  # fmt: skip
"""The trainers that can be recorded, by the names of their adapters."""
DIALECT = {"miles": "slime", "unsloth": "trl"}
"""Trainer -> the dialect that has its settings, where that has another name."""
RECORDS_SYNCS = frozenset(NAMES) - {"megatron_rl", "torchtitan_rl", "xtuner", "art"}
"""The trainers whose adapter records each weight sync that the trainer asks for, so that a missing event is a missing sync.

An event says that a sync was asked for, and not that the weights arrived. A function of the user's own that samples may sync too.
"""
ALIASES = {"molt_rl": "molt", "openpipe_art": "art", "torchtitan": "torchtitan_rl"}
"""Name of a package -> the trainer, where that has another name."""


def trainer_named(text: object, among: tuple[str, ...] = NAMES) -> str | None:
    """The trainer that run.json names; None for another one, or for none. among: the names that are wanted.

    >>> trainer_named("NeMo-RL"), trainer_named("trl 1.16.0"), trainer_named("mine")
    ('nemo_rl', 'trl', None)
    """
    first = re.match(r"[a-z_]+", str(text or "").strip().lower().replace("-", "_"))
    name = "" if first is None else ALIASES.get(first[0], first[0])
    return name if name in among else None
