"""The readings of a parity as a run folder: A as the engine's log-probs, B as the trainer's, and the other arms as readings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError, not_writable

from ..inputs import Sequence_
from .comparison import Columns


def demand_new(folder: Path) -> None:
    """ConfigError unless the folder is empty or does not exist."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--output {folder} is there already and is kept as it is; wanted a new folder")


def record(
    folder: Path, sequences: Sequence[Sequence_], readings: Mapping[str, Columns], made_of: Mapping[str, Any]
) -> None:
    """Writes one step with these sequences. readings: "a" and "b", and others by name. made_of: facts on both scorers."""
    others = {name: list(own) for name, own in readings.items() if name not in ("a", "b")}
    try:
        with Collector(folder, writer="thread", strict=True, text="ids", config={"parity": dict(made_of)}) as collector:
            collector.log(
                step=0,
                rollout_logprobs=list(readings["a"]),
                old_logprobs=list(readings["b"]),
                token_ids=[list(own.response) for own in sequences],
                prompt_ids=[list(own.prompt) for own in sequences],
                sequence_ids=[str(number) for number in range(len(sequences))],
                readings=others,
            )
    except OSError as error:
        raise not_writable(folder, error) from error
