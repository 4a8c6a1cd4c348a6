"""The engine's part of the gap: what arises between its decode and its own prefill of the same tokens.

For each token x = trainer - decode = (prefill - decode) + (trainer - prefill), all log-probs. So mean |x| is the sum of
mean(sign(x) (prefill - decode)) and mean(sign(x) (trainer - prefill)): two parts that add up to the gap, whatever they are.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.record import POLICIES, gap_between, sides

from ..presentation.sentence import sentence
from ..presentation.step_words import steps_words
from .answer import BOUND, READ_AGAIN, ROUNDING, compared_steps, words
from .distance import KEYS, Distance, SequenceSums, distances_of, ratio, rows_with, sequence_sums, sums_of_steps
from .scale import scale_doubts

if TYPE_CHECKING:
    from ratioscope.ingest.rows.readings import Reading
    from ratioscope.ingest.run import Run

DECODE = POLICIES[0]
ENGINE_PART = "What part is the engine's?"
PREFILL = (
    "The engine's prefill is a reading of the recorded tokens by a running server: `ratioscope rescore RUN --engine URL`. It"
    " decides what arises inside the engine, not which side is right."
)
Decided = Literal["parts", "equal", "other weights"]


@dataclass(frozen=True)
class EnginePart:
    """The gap between engine and trainer in two parts, by the engine's prefill of the same tokens."""

    reading: str
    """The name of the prefill."""
    decided: Decided
    """parts: the numbers hold; equal: there is no gap at these tokens; other weights: the server is far from both sides."""
    sentence: str
    """The answer with a full stop, and doubts in sentences after it."""
    whole: Distance
    """The distance of the trainer from the decode."""
    decode: Distance
    """The distance of the prefill from the decode."""
    rest: Distance
    """The distance of the trainer from the prefill."""
    part: tuple[float, float]
    """The part of mean |x| that arises between decode and prefill, nats/token, and its standard error."""
    steps: tuple[int, ...]
    """The steps that the answer is of: those whose weights the server may have had."""


@dataclass(frozen=True)
class _Step:
    """Sums over the tokens of a step that decode, prefill and trainer have in common."""

    whole: SequenceSums
    """Sums of the trainer from the decode."""
    decode: SequenceSums
    """Sums of the prefill from the decode."""
    rest: SequenceSums
    """Sums of the trainer from the prefill."""
    part: Floats
    """Per sequence, the sum of sign(x) (prefill - decode)."""

    @property
    def distances(self) -> tuple[Distance, Distance, Distance]:
        return self.whole.distance, self.decode.distance, self.rest.distance


def engine_part(run: "Run") -> EnginePart | None:
    """None if no engine's prefill was read, or no trainer's log-probs stand beside it."""
    name = prefill_of(run.readings)
    return None if name is None else part_of(run, name, compared_steps(run, name))


def prefill_of(readings: "Mapping[str, Reading]") -> str | None:
    """The first reading that an engine made and that repeats no other one."""
    made = (name for name, own in readings.items() if any("engine" in each for each in own.made_of))
    return next((name for name in made if not name.endswith(READ_AGAIN)), None)


def nearest_to_trainer(run: "Run", readings: Iterable[str]) -> str:
    """The reading that is nearest to the trainer at the last step that has it; the first one where no trainer is on record."""
    names, trainer = list(readings), _trainer(run)

    def apart(name: str) -> float:
        steps = run.readings[name].steps[-1:]
        found = distances_of(run, gap_between(trainer, name), [*steps]).get(None) if trainer else None
        return found.mean if found else math.inf

    return min(names, key=apart)


def _trainer(run: "Run") -> str | None:
    return next((sides(gap)[1] for gap in judged_first(run) if sides(gap)[0] == DECODE), None)


def part_of(run: "Run", reading: str, steps: list[int]) -> EnginePart | None:
    """The parts over these steps by a prefill."""
    trainer = _trainer(run)
    found = {} if trainer is None else {step: own for step in steps if (own := _of_step(run, step, reading, trainer))}
    if not found:
        return None
    fitting = [step for step, own in found.items() if _is_between(*own.distances)]
    used = [found[step] for step in fitting or found]
    whole, decode, rest = (
        sums_of_steps(getattr(each, name) for each in used).distance for name in ("whole", "decode", "rest")
    )
    counts = np.concatenate([each.whole.counts for each in used])
    mine = np.concatenate([each.part for each in used])
    parts = [ratio(totals, counts) for totals in (mine, np.concatenate([e.whole.absolute for e in used]) - mine)]
    decided: Decided = "parts" if _is_between(whole, decode, rest) else "other weights"
    decided = "equal" if whole.mean <= ROUNDING else decided
    where = f" These numbers are of {steps_words(fitting, list(found))}." if 0 < len(fitting) < len(found) else ""
    doubts = "".join(f" {sentence(doubt)}" for doubt in scale_doubts(run, _temperature(run, reading)))
    said = sentence(_words(decided, (whole, decode, rest), parts)) + where + doubts
    return EnginePart(reading, decided, said, whole, decode, rest, parts[0], tuple(fitting or found))


def _temperature(run: "Run", reading: str) -> float:
    """The temperature of a reading: the last one of which it has rows."""
    return float(next((own["temperature"] for own in run.readings[reading].made_of[::-1] if "temperature" in own), 1.0))


def _of_step(run: "Run", step: int, reading: str, trainer: str) -> _Step | None:
    first, second = gap_between(DECODE, reading), gap_between(trainer, reading)
    frame = run.tokens([step], [*KEYS, first, second]).collect()
    finite = pl.col(first).is_finite() & pl.col(second).is_finite()
    own, code, weight = rows_with(frame.filter(pl.col("mask").fill_null(True) & finite), (first, second))
    if own.is_empty():
        return None
    decode, rest = own[first].to_numpy(), -own[second].to_numpy()
    whole = decode + rest
    part = np.bincount(code - 1, weight * np.sign(whole) * decode).astype(np.float64)  # codes are 1, 2, … without holes
    whole_sums, decode_sums, rest_sums = (sequence_sums(x, code, weight) for x in (whole, decode, rest))
    return _Step(whole_sums, decode_sums, rest_sums, part)


def _is_between(whole: Distance, decode: Distance, rest: Distance) -> bool:
    """False if the prefill is clearly farther from both sides than these are from each other: it is of other weights or tokens.

    The nearer side stands at 0.71 times the gap if the two parts are independent, and at 1 if decode and prefill round apart
    and the trainer does not round: SmolLM2 in bfloat16 by vLLM 0.32 has 0.044, 0.040 and 0.039 nats/token.
    """
    return min(decode.mean, rest.mean) <= max(BOUND * whole.mean, ROUNDING)


def _words(decided: Decided, distances: tuple[Distance, ...], parts: list[tuple[float, float]]) -> str:
    whole, decode, rest = distances
    if decided == "equal":
        return "the engine's decode and the trainer agree to rounding at these tokens: there is no gap to split"
    if decided == "other weights":
        return (
            f"the engine's prefill decides nothing: it stands at {words(decode)} from the decode and at {words(rest)} from the"
            f" trainer, which differ by {whole.mean:.2g}. The server has other weights now, or reads other tokens"
        )
    mine, others = (f"{value:.2g}{'' if error != error else f' ± {error:.1g}'}" for value, error in parts)
    return (
        f"{mine} of {whole.mean:.2g} nats/token (mean |x|) arise between the engine's decode and its prefill, {others} between"
        " its prefill and the trainer"
    )


def plain_engine_part(part: EnginePart) -> dict[str, Any]:
    """The answer as values that JSON can hold."""
    distances = {"engine_to_trainer": part.whole, "decode_to_prefill": part.decode, "prefill_to_trainer": part.rest}
    return {
        "reading": part.reading, "decided": part.decided, "sentence": part.sentence, "steps": list(part.steps),
        "part": {"value": part.part[0], "error": part.part[1]},
        "mean": {name: {"value": own.mean, "error": own.mean_error} for name, own in distances.items()},
    }  # fmt: skip
