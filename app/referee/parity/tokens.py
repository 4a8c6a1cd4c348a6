"""The tokens that both scorers read, from a file, a run, or sampled from the first scorer; and the run of what was read."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError, SourceError, not_writable
from ratioscope.flat_json import loaded

from ...presentation.digits import count
from ..choice import Wanted, chosen
from ..engines import Engine
from ..inputs import ModelBounds, Sequence_, demand_some, inputs_of
from ..model import Referee, demand_extra
from ..model import tokenizer as tokenizer_in
from ..sampled import sampled_apart
from .comparison import Columns

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from .parity import Scorer

MOST_LINE = 1 << 26
"""Bytes of a line at most: a sequence of a million ids takes about 7 MB."""
Given = tuple[list[Sequence_], list[str]]
"""(sequences that can be read, in words why others are left out)."""


def sequences_in(path: Path, most: int) -> list[Sequence_]:
    """The first sequences of a file of JSON lines with `prompt_ids` and `token_ids`. SourceError names the line that is none."""
    return [
        Sequence_(0, 0, at, _ids(line, "prompt_ids", at), _ids(line, "token_ids", at))
        for at, line in _lines(path, most)
    ]


def sequences_of(run: "Run", most: int, room: ModelBounds) -> Given:
    """About so many recorded sequences of a run, over all steps. SourceError if none can be read."""
    inputs = inputs_of(run, chosen(run, Wanted(sequences=most)), room)
    demand_some(run, len(inputs.sequences), inputs.left_out)
    return inputs.sequences, [f"{count(number, 'sequence')}: {why}" for why, number in inputs.left_out.items()]


def sampled_by(scorers: Sequence["Scorer"], path: Path, most: int, tokens: int, tokenizer: Path | None) -> Given:
    """A response of the first scorer to each of the first prompts that all can read with it. ConfigError if it only reads."""
    one = scorers[0]
    folder = tokenizer or (one.path if isinstance(one, Referee) else None)
    if folder is not None:
        demand_extra()
    prompts = _prompts_in(path, most, tokenizer_in(folder))
    room = [Sequence_(0, 0, "prompt", prompt, (0,) * tokens) for prompt in prompts]
    wanted, left_out = readable(room, scorers)
    own = [each.prompt for each in wanted]
    if isinstance(one, Engine):
        return [each.sequence for each in sampled_apart(one, own, [tokens] * len(own))], left_out
    if isinstance(one, Referee):
        return import_module(".model_arms", __package__).sampled(one, own, tokens), left_out
    raise ConfigError("--prompts: a command samples nothing; wanted a server or a checkpoint first, or --tokens")


def _prompts_in(path: Path, most: int, tokenizer: Any) -> Iterator[tuple[int, ...]]:
    """`prompt_ids`, or the text `prompt`, which the tokenizer encodes as it is."""
    for at, line in _lines(path, most):
        if "prompt_ids" not in line and isinstance(line.get("prompt"), str):
            if tokenizer is None:
                raise SourceError(f"{at} has a prompt as text; wanted its tokenizer: --tokenizer PATH, or prompt_ids")
            line = {"prompt_ids": tokenizer(line["prompt"], add_special_tokens=False)["input_ids"]}
        yield _ids(line, "prompt_ids", at)


def readable(sequences: Sequence[Sequence_], scorers: Sequence["Scorer"]) -> Given:
    """The sequences that every scorer can read. SourceError if one cannot read an id, or if none is short enough."""
    rooms = [scorer.room for scorer in scorers]
    largest = max((max(*each.prompt, *each.response) for each in sequences), default=0)
    for room in rooms:
        if largest >= room.vocabulary:
            raise SourceError(
                f"the tokens have the id {largest}, {room.name} has ids below {room.vocabulary}; wanted tokens of its model"
            )
    short = [own for own in sequences if all(room.positions is None or own.length <= room.positions for room in rooms)]
    if not short:
        raise SourceError("no sequence is short enough for every scorer; wanted shorter ones, or more positions")
    out = len(sequences) - len(short)
    are = "is" if out == 1 else "are"
    return short, [f"{count(out, 'sequence')} {are} longer than the positions of a scorer"] if out else []


def _lines(path: Path, most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place in words, object) of the first lines that are not empty."""
    try:
        with open(path, "rb") as file:
            number = taken = 0
            while taken < most and (line := file.readline(MOST_LINE + 1)):
                number += 1
                if line.strip():
                    taken += 1
                    yield f"{path}, line {number}", _object(line, f"{path}, line {number}")
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}; wanted a file of JSON lines") from None
    if not taken:
        raise SourceError(f"{path} has no line; wanted JSON lines with prompt_ids and token_ids")


def _object(line: bytes, at: str) -> dict[str, Any]:
    if len(line) > MOST_LINE:
        raise SourceError(f"{at} has more than {MOST_LINE:,} bytes; wanted a sequence")
    try:
        found = loaded(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SourceError(f'{at} is no JSON object; wanted one such as {{"prompt_ids": [1, 5], "token_ids": [7, 2]}}')
    return found


def _ids(line: dict[str, Any], name: str, at: str) -> tuple[int, ...]:
    ids = line.get(name)
    if not isinstance(ids, list) or not ids or not all(type(id) is int and 0 <= id < 1 << 31 for id in ids):
        raise SourceError(f"{at}: {name} is {str(ids)[:40]}; wanted a list of token ids, at least one")
    return tuple(ids)


def demand_new(folder: Path) -> None:
    """ConfigError unless the folder is empty or does not exist."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--output {folder} is there already and is kept as it is; wanted a new folder")


def record(
    folder: Path, sequences: Sequence[Sequence_], readings: Mapping[str, Columns], made_of: Mapping[str, Any]
) -> None:
    """Writes a run of one step: readings "a" as rollout, "b" as old, the others by name. made_of: facts on both scorers."""
    others = {name: list(own) for name, own in readings.items() if name not in ("a", "b")}
    try:
        config = {"parity": [{"name": name, **own} for name, own in made_of.items()]}
        with Collector(folder, writer="thread", when_full="wait", strict=True, text="ids", config=config) as collector:
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
