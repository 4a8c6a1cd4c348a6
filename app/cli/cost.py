"""The cost of recording, measured on this machine: a batch of the given shape is recorded into a temporary folder."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ratioscope.arrays import Reals, Singles
from ratioscope.errors import ConfigError
from ratioscope.layout import READINGS, TOKENS, TOPK
from ratioscope.record import POLICIES

if TYPE_CHECKING:
    from ratioscope.collectors.collector import Collector

_MOST_TOKENS = 400_000
_STEPS = 4


@dataclass(frozen=True)
class BatchShape:
    """The batch that one rank logs at a step."""

    sequences: int
    length: int
    policies: tuple[str, ...] = POLICIES
    """Policies with log-probs, of POLICIES."""
    entropy: bool = False
    text: str = "ids"
    """The texts that are recorded, as in Collector: ids, full or none."""
    readings: int = 0
    topk: int = 0
    """The likeliest tokens of each place, with log-probs of the first two policies at them."""

    def __post_init__(self) -> None:
        if self.sequences < 1 or self.length < 1:
            raise ConfigError(
                f"a batch of {self.sequences} sequences of {self.length} tokens; wanted at least 1 of each"
            )
        if self.topk and self.text == "none":
            raise ConfigError(f"top-k of {self.topk} with text none; wanted text ids: the ids reveal text")
        if len(self.policies) < 2 or not set(self.policies) <= set(POLICIES):
            raise ConfigError(f"policies {', '.join(self.policies)}; wanted at least two of {', '.join(POLICIES)}")

    @property
    def tokens(self) -> int:
        return self.sequences * self.length


@dataclass(frozen=True)
class Cost:
    """Cost of one step for one writer."""

    token_bytes: float
    """Bytes of token rows, readings and top-k on disk."""
    statistics_bytes: float
    """Bytes of statistics on disk."""
    log_seconds: float
    """Seconds of the trainer's thread."""
    writer_seconds: float
    """CPU seconds of the writer's thread."""
    host_bytes: float
    """Bytes of host memory until the step is written."""


def measured_cost(shape: BatchShape) -> Cost:
    """Records a few steps of this shape, of at most 400,000 tokens, and scales the costs that are proportional to tokens."""
    from ratioscope.collectors.collector import Collector

    sequences = max(1, min(shape.sequences, _MOST_TOKENS // (1 + shape.topk) // shape.length))
    scale = shape.sequences / sequences
    with tempfile.TemporaryDirectory() as folder:
        with Collector(
            Path(folder) / "run", text="ids" if shape.text == "ids" else "none", when_full="wait"
        ) as collector:  # nobody will open this run, so it is none to speak of
            _log(collector, shape, sequences, 0)  # makes the buffers and imports modules: it is not timed
            began = time.process_time()
            calls, held = zip(*(_log(collector, shape, sequences, step) for step in range(1, _STEPS + 1)), strict=True)
            busy = time.process_time() - began - sum(calls)
        token_bytes = sum(_bytes(Path(folder) / "run" / name) for name in (TOKENS, READINGS, TOPK)) / (_STEPS + 1)
        statistics_bytes = _bytes(Path(folder) / "run" / "statistics") / (_STEPS + 1)
    return Cost(
        token_bytes * scale, statistics_bytes, float(np.median(calls)) * scale, busy / _STEPS * scale, held[-1] * scale
    )


def _log(collector: "Collector", shape: BatchShape, sequences: int, step: int) -> tuple[float, int]:
    """Logs a step and waits until it is written. The seconds of the call, and the bytes of the batch."""
    batch = _batch(shape, sequences, step)
    random, base = np.random.default_rng(step), batch[f"{shape.policies[0]}_logprobs"]
    # with noise like that of another computation
    readings = {f"reading_{number}": _beside(base, random) for number in range(shape.readings)}
    start = time.perf_counter()
    ids = [f"{step}-{row}" for row in range(sequences)]
    collector.log(step=step, sequence_ids=ids, readings=readings or None, **batch)
    seconds = time.perf_counter() - start
    collector.flush()
    return seconds, sum(value.nbytes for value in (*batch.values(), *readings.values()))


def _batch(shape: BatchShape, sequences: int, seed: int) -> dict[str, Any]:
    """A batch with log-probs like those of engines: exponential surprisal, and bfloat16-like noise between the policies."""
    random = np.random.default_rng(seed)
    size = (sequences, shape.length)
    base = -random.exponential(0.6, size)
    made: dict[str, Any] = {f"{policy}_logprobs": _beside(base, random) for policy in shape.policies}
    made["mask"] = np.ones(size, np.bool_)
    if shape.text == "ids":
        made["token_ids"] = random.zipf(1.3, size).clip(max=150_000).astype(np.int32)
    if shape.entropy:
        made["entropy"] = random.exponential(0.5, size).astype(np.float32)
    if shape.topk:
        made |= _topk(shape, sequences, random)
    return made


def _topk(shape: BatchShape, sequences: int, random: np.random.Generator) -> dict[str, Any]:
    """The likeliest tokens: log-probs that fall from one to the next, with the same noise between the policies."""
    size = (sequences, shape.length, shape.topk)
    base = -np.cumsum(random.exponential(0.6, size), axis=2)
    made: dict[str, Any] = {f"{policy}_topk_logprobs": _beside(base, random) for policy in shape.policies[:2]}
    return made | {"topk_ids": random.zipf(1.3, size).clip(max=150_000).astype(np.int32)}


def _beside(base: Reals, random: np.random.Generator) -> Singles:
    """Log-probs a little off those of the base, and like them never above 0; float32."""
    return -np.abs(base + random.normal(0, 0.02, base.shape)).astype(np.float32)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def policies_of(names: Sequence[str]) -> tuple[str, ...]:
    """The policies of these names, in the order of the Record."""
    return tuple(policy for policy in POLICIES if policy in names) if set(names) <= set(POLICIES) else tuple(names)
