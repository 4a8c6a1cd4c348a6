"""The tokens that a referee reads: prompt and response of each sequence, checked against what is on record and the model.

A prompt that was recorded as text alone is encoded with the tokenizer. How sure that is, is tested: decoding and encoding a
prompt with its response has to give the recorded ids of the response back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.record import POLICIES

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

LOGPROBS = tuple(f"{policy}_logprobs" for policy in POLICIES)
COLUMNS = ("token_ids", "prompt_ids", "prompt_text", "mask", "pack_position", *LOGPROBS)
SURE = 0.9
"""Share of responses that have to be encoded as recorded, if prompts are rebuilt from text. A convention."""
_TESTED = 32


@dataclass(frozen=True)
class Sequence_:
    """One sequence to read."""

    attempt: int
    step: int
    sequence_id: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    """The token ids of the response."""
    probability: float = 1.0
    """The probability with which it was chosen."""
    recorded: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False)
    """Policy -> the recorded log-probs of its response tokens."""
    mask: Sequence[bool] | None = field(default=None, compare=False)
    """True for each sampled token; None: all."""
    text: str | None = field(default=None, compare=False)
    """The recorded text of the prompt."""
    before: tuple[int, ...] = field(default=(), compare=False)
    """The ids of the sequence before it in the record, prompt and response; empty if it is the first of its packed row."""
    lead: int = 0
    """Tokens at the beginning of `prompt` that are not of its own prompt: padding, or another sequence."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass
class Inputs:
    """The sequences of the chosen steps, and why others are not among them."""

    sequences: list[Sequence_] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason -> number of sequences that it keeps from being read."""
    rebuilt: int = 0
    """Prompts that were encoded from their texts."""
    sure: tuple[int, int] | None = None
    """(responses that encoding gave back, responses tested), if prompts were rebuilt."""

    def leave_out(self, reason: str) -> None:
        """Counts a sequence that cannot be read."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    @property
    def certainty(self) -> str:
        """The certainty of rebuilt prompts, in words; "" where all prompts are on record."""
        if not self.rebuilt or self.sure is None:
            return ""
        same, tested = self.sure
        return (
            f"{self.rebuilt} prompts were rebuilt from their texts: encoding them with their responses gave the recorded ids of"
            f" {same} of {tested} responses. Record prompt_ids to be sure"
        )


@dataclass(frozen=True)
class ModelBounds:
    """The sequences that a model can read."""

    vocabulary: int
    """Ids must be below this number."""
    positions: int | None = None
    """Tokens of a prompt and its response together, at most; None: unbounded."""
    name: str = "the model"


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices by length, in batches of at most `most` padded tokens, each of at least one sequence.

    >>> list(batches([5, 1, 4, 1], 8))
    [[1, 3], [2], [0]]
    """
    few: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if few and (len(few) + 1) * lengths[index] > most:
            yield few
            few = []
        few.append(index)
    if few:
        yield few


def inputs_of(
    run: "Run",
    choice: Mapping[int, Mapping[str, float]],
    room: ModelBounds,
    tokenizer: Any = None,
    inputs: Inputs | None = None,
) -> Inputs:
    """The chosen sequences that can be read, added to `inputs` if given. SourceError for a wrong model or tokenizer."""
    inputs = inputs or Inputs()
    for step, chosen in choice.items():
        for row in _rows(run, step, chosen):
            sequence = _sequence(row, chosen[row["sequence_id"]], inputs, tokenizer)
            if sequence is not None and _fits(sequence, room, inputs):
                inputs.sequences.append(sequence)
    if inputs.rebuilt:
        inputs.sure = _certainty(run, choice, tokenizer)
        same, tested = inputs.sure
        if same < SURE * tested:
            raise SourceError(
                f"{run.name}: prompts are on record as text only, and encoding with this tokenizer gives the recorded ids of only"
                f" {same} of {tested} responses: it is another tokenizer, or the texts are not what was encoded. Record"
                " prompt_ids, or give the tokenizer of the run: --tokenizer PATH"
            )
    return inputs


def demand_some(run: "Run", sequences: int, left_out: Mapping[str, int]) -> None:
    """SourceError with what is missing and what to do, unless some sequence can be read."""
    if not sequences:
        reasons = "; ".join(f"of {number} sequences, {reason}" for reason, number in left_out.items())
        raise SourceError(f"{run.name}: no sequence can be read: {reasons or 'no chosen step has token rows'}")


def _rows(run: "Run", step: int, chosen: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """One row per chosen sequence, with the ids of the row before it under `before`."""
    rows = joined(run.rows(step, COLUMNS))
    wanted = pc.is_in(rows["sequence_id"], pa.array(sorted(chosen))).to_numpy(zero_copy_only=False).nonzero()[0]
    seen = set[str]()
    for place in wanted.tolist():
        (row,) = rows.slice(place, 1).to_pylist()
        if row["sequence_id"] not in seen:
            seen.add(row["sequence_id"])
            last = [] if not place or row["pack_position"] == 0 else rows.slice(place - 1, 1).to_pylist()
            yield row | {
                "before": [id for own in last for id in (*(own["prompt_ids"] or ()), *(own["token_ids"] or ()))]
            }


def _sequence(row: Mapping[str, Any], probability: float, inputs: Inputs, tokenizer: Any) -> Sequence_ | None:
    recorded = {policy: row[f"{policy}_logprobs"] for policy in POLICIES if row[f"{policy}_logprobs"] is not None}
    tokens = max(map(len, recorded.values()), default=0)
    prompt = row["prompt_ids"]
    if prompt is None and row["prompt_text"] is not None and tokenizer is not None:
        prompt = _encoded(tokenizer, row["prompt_text"])
        inputs.rebuilt += 1
    if reason := _unreadable(row["token_ids"], tokens, prompt, has_text=row["prompt_text"] is not None):
        inputs.leave_out(reason)
        return None
    assert prompt is not None  # or it could not be read
    mask = row["mask"] if row["mask"] is not None and len(row["mask"]) == tokens else None
    key = row["attempt"], row["step"], row["sequence_id"]
    ids, before = tuple(row["token_ids"]), tuple(row["before"])
    return Sequence_(*key, tuple(prompt), ids, probability, recorded, mask, row["prompt_text"], before)


def _unreadable(ids: list[int] | None, tokens: int, prompt: list[int] | None, *, has_text: bool) -> str:
    """Why a sequence with these columns cannot be read, and what to do; "" where it can."""
    if ids is None:
        return "token ids are not on record: record with text='ids' or 'full'"
    if len(ids) != tokens:
        return f"their token ids are cut: {len(ids)} ids are on record for {tokens} log-probs"
    if not tokens:
        return "they have no token"
    if prompt is None:
        text = " (their texts are: give the run's tokenizer, --tokenizer PATH)" if has_text else ""
        return f"their prompt ids are not on record{text}: log prompt_ids, or use an adapter that does"
    return "" if prompt else "their prompt is empty: the first token has nothing before it"


def _fits(sequence: Sequence_, room: ModelBounds, inputs: Inputs) -> bool:
    every = (*sequence.prompt, *sequence.response)
    if max(every) >= room.vocabulary or min(every) < 0:
        raise SourceError(
            f"sequence {sequence.sequence_id!r} of step {sequence.step} has token id {max(every)}, {room.name} has ids below"
            f" {room.vocabulary}: it is another model than the run's; give the checkpoint that was trained: --model PATH"
        )
    if room.positions is not None and sequence.length > room.positions:
        inputs.leave_out(f"they are longer than the {room.positions} positions of {room.name}")
        return False
    return True


def _certainty(run: "Run", choice: Mapping[int, Mapping[str, float]], tokenizer: Any) -> tuple[int, int]:
    """(responses that come back as recorded, responses tested): decode the response, encode it behind its prompt."""
    same = tested = 0
    for step, chosen in choice.items():
        for row in _rows(run, step, chosen):
            if tested >= _TESTED:
                return same, tested
            if row["prompt_text"] is None or row["token_ids"] is None:
                continue
            text = tokenizer.decode(row["token_ids"], skip_special_tokens=False, clean_up_tokenization_spaces=False)
            both = _encoded(tokenizer, row["prompt_text"] + text)
            own = row["token_ids"]
            same += both[-len(own) :] == own and both[: -len(own)] == _encoded(tokenizer, row["prompt_text"])
            tested += 1
    return same, tested


def _encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
