"""`rescore`: reads recorded tokens again with a model or a server, and writes the log-probs as a reading, step by step.

Each step, or each few sequences of it, is one committed file, so that a call that is killed goes on where it was.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ratioscope.arrays import Singles
from ratioscope.collectors.writing.offline import OfflineWriter, record_readings
from ratioscope.errors import not_writable
from ratioscope.kept_settings import kept

from .choice import EVERY_STEP, Wanted, chosen, count
from .inputs import Inputs, ModelBounds, Sequence_, demand_some, inputs_of

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from .scoring import Scoring

OnScored = Callable[[int, int, str], None]
"""A function of (sequences read, sequences to read, the rate in words)."""


class Scorer(Protocol):
    """A model, or a server, that reads tokens."""

    @property
    def room(self) -> ModelBounds: ...
    @property
    def made_of(self) -> dict[str, Any]: ...
    @property
    def at_once(self) -> int:
        """Sequences of a step that are read, and written, together."""
        ...

    def scores(self, sequences: Sequence[Sequence_], how: "Scoring | None") -> Iterator[tuple[int, Singles]]:
        """(index of a sequence, log-probs of its response tokens)."""
        ...


@dataclass
class Rescored:
    """The steps and sequences that were read."""

    reading: str
    steps: list[int]
    """Steps with rows of the reading among the chosen ones."""
    sequences: int = 0
    """Sequences that were read now."""
    tokens: int = 0
    """Response tokens that were read now."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds that reading and writing took."""
    before: int = 0
    """Sequences that an earlier call with the same model and settings had read."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> sequences that cannot be read."""
    certainty: str = ""
    """The certainty of rebuilt prompts; "" where all prompts are on record."""
    files: list[str] = field(default_factory=list)


def rescore(
    run: "Run",
    judge: Scorer,
    wanted: Wanted = EVERY_STEP,
    how: "Scoring | None" = None,
    *,
    name: str = "referee",
    tokenizer: Any = None,
    progress: OnScored | None = None,
) -> Rescored:
    """Reads the chosen sequences and writes them as the reading `name`. SourceError if none can be read."""
    choice = chosen(run, wanted)
    made_of = {"temperature": how.temperature if how else 1.0, **judge.made_of}
    made_of |= {"batch tokens": how.batch_tokens} if how and how.batch_tokens else {}
    left, before = _unread(run, name, choice, made_of)
    total = count(left)
    done = Rescored(name, sorted(choice), before=before)
    writer = OfflineWriter(run.path, "rescore")
    read, began = 0, time.monotonic()
    for step, own in left.items():
        if not own:
            continue
        inputs = _inputs(run, {step: own}, judge, tokenizer, done)
        sequences = [] if inputs is None else inputs.sequences
        read += len(own) - len(sequences)
        for first in range(0, len(sequences), judge.at_once):
            few = sequences[first : first + judge.at_once]
            rows = [(few[index], logprobs) for index, logprobs in judge.scores(few, how)]
            done.files += _written(run.path, name, rows, made_of, writer)
            done.sequences += len(rows)
            done.tokens += sum(len(logprobs) for _, logprobs in rows)
            read += len(rows)
            done.seconds = time.monotonic() - began
            if progress is not None:
                progress(read, total, f"{done.tokens / max(done.seconds, 1e-9):,.0f} tokens/s")
    demand_some(run, done.sequences + done.before, done.left_out)
    run.refresh()
    here = run.readings[name].steps if name in run.readings else ()
    done.steps = [step for step in done.steps if step in here]
    return done


def _inputs(
    run: "Run", choice: Mapping[int, Mapping[str, float]], judge: Scorer, tokenizer: Any, done: Rescored
) -> Inputs | None:
    """The sequences of a step; None where none can be read. The reasons are counted in `done`."""
    inputs = inputs_of(run, choice, judge.room, tokenizer)
    reasons = dict(done.left_out)
    for reason, number in inputs.left_out.items():
        reasons[reason] = reasons.get(reason, 0) + number
    done.left_out = reasons
    done.certainty = done.certainty or inputs.certainty
    return inputs if inputs.sequences else None


def _written(
    path: str | os.PathLike[str],
    name: str,
    rows: Sequence[tuple[Sequence_, Singles]],
    made_of: Mapping[str, Any],
    writer: OfflineWriter,
) -> list[str]:
    table = pa.table(
        {
            "attempt": pa.array([sequence.attempt for sequence, _ in rows], pa.int32()),
            "step": pa.array([sequence.step for sequence, _ in rows], pa.int64()),
            "sequence_id": [sequence.sequence_id for sequence, _ in rows],
            "logprobs": pa.array([logprobs for _, logprobs in rows], pa.list_(pa.float32())),
            "inclusion_probability": [sequence.probability for sequence, _ in rows],
        }
    )
    try:
        return record_readings(path, name, table, made_of, writer=writer)
    except OSError as error:
        raise not_writable(path, error) from error


def _unread(
    run: "Run", name: str, choice: Mapping[int, Mapping[str, float]], made_of: Mapping[str, Any]
) -> tuple[dict[int, dict[str, float]], int]:
    """(the choice without the sequences that the same model has read in the same way, number of these)."""
    same = json.dumps(dict(kept(made_of).settings), sort_keys=True)
    left = {step: dict(own) for step, own in choice.items()}
    before = 0
    for step, ids in run.read_by(name, same).items():
        for sequence_id in ids & left.get(step, {}).keys():
            del left[step][sequence_id]
            before += 1
    return left, before
