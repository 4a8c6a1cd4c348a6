"""`ratioscope parity A B`: two scorers on the same tokens before a run: how far are they apart, and each from itself?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError

from ...presentation.digits import count
from ..blocks_printed import print_blocks
from ..engine_readings import LOAD, engine_key
from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..parity_words import blocks, plain
from ..terminal import counting, note, print_json, working
from .arguments import AsJson, opened

if TYPE_CHECKING:
    from ...referee.inputs import Sequence_
    from ...referee.parity.parity import Parity, Scorer

SCORER = (
    "http://HOST:PORT[#MODEL], a checkpoint's folder (#bfloat16 loads it so), or cmd:COMMAND; NAME= before it names it."
)
FirstArgument = Annotated[str, typer.Argument(metavar="A", help=f"The first scorer: {SCORER}")]
SecondArgument = Annotated[
    str | None,
    typer.Argument(metavar="B", help="The second scorer, named likewise; without it A is compared with itself."),
]
TokensOption = Annotated[
    Path | None, typer.Option(metavar="FILE.jsonl", help="JSON lines with prompt_ids and token_ids, which both read.")
]
RunOption = Annotated[Path | None, typer.Option(metavar="RUN", help="A recorded run: both read sequences of it.")]
PromptsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help="JSON lines with prompt_ids or prompt: A samples a response to each."),
]
SampleOption = Annotated[int, typer.Option(min=1, max=1 << 16, help="Tokens of a sampled response at most.")]
SequencesOption = Annotated[int, typer.Option(min=1, max=1 << 16, help="Sequences to read at most.")]
TogetherOption = Annotated[int, typer.Option("--batch", min=2, max=4096, help="Sequences of the arm batch's batch.")]
ArmsOption = Annotated[
    str | None,
    typer.Option(metavar="ARM,ARM", help="Some of again, batch, packed, prefix, decode, adapter; or none. Else all."),
]
LimitOption = Annotated[
    str | None,
    typer.Option(metavar="NAME=NUMBER,…", help="Limits on every comparison, such as mean=0.01,max=0.5,equal=1."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="RUN_FOLDER", help="Write all readings as a run, a new folder.")
]
SyncOption = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Run this command, such as a weight sync, and read with every scorer again."),
]
TokenizerOption = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A tokenizer's folder, for prompts that are text.")
]
DeviceOption = Annotated[
    str | None, typer.Option(metavar="cpu|cuda", help="Device of a checkpoint; else cuda if there is one.")
]
TimeoutOption = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The time that a command may take.")]
InFlightOption = Annotated[int, typer.Option(min=1, max=64, help="Requests that a server gets at a time.")]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--engine-key-file",
        "--key-file",
        metavar="PATH",
        help="A file with the servers' key; else $RATIOSCOPE_ENGINE_KEY. It is never kept.",
    ),
]


@dataclass(frozen=True)
class Source:
    """The options that name the tokens: tokens, run, prompts and tokenizer."""

    tokens: Path | None
    run: Path | None
    prompts: Path | None
    tokenizer: Path | None


def parity(
    a: FirstArgument,
    b: SecondArgument = None,
    tokens: TokensOption = None,
    run: RunOption = None,
    prompts: PromptsOption = None,
    sample: SampleOption = 64,
    sequences: SequencesOption = 64,
    arms: ArmsOption = None,
    batch: TogetherOption = 64,
    limit: LimitOption = None,
    sync: SyncOption = None,
    output: OutputOption = None,
    tokenizer: TokenizerOption = None,
    device: DeviceOption = None,
    timeout: TimeoutOption = 600.0,
    in_flight: InFlightOption = 2,
    engine_key_file: KeyOption = None,
    as_json: AsJson = False,
) -> int:
    """Compare two scorers on the same tokens before a run: engine, checkpoint or command, and each with itself in other arms.

    Exit 0 if every comparison is within --limit, 1 if one is not, 2 wrong options, 3 a scorer that cannot be read, 4 if nothing
    was measured or an arm that --arms names was not. docs/parity.md describes the arms.
    """
    from ...referee.parity.arm import Plan
    from ...referee.parity.command import command_of
    from ...referee.parity.folder import demand_new, record
    from ...referee.parity.limits import limits_of
    from ...referee.parity.parity import arms_of
    from ...referee.parity.parity import parity as measured
    from ...referee.parity.scorers import Access, named, scorer_at

    _demand_one(tokens, run, prompts)
    limits, chosen, texts = limits_of(limit), arms_of(arms), named((a,) if b is None else (a, b))
    syncing = None if sync is None else command_of(sync, timeout)
    if output is not None:
        demand_new(output)
    access = Access(engine_key(engine_key_file), in_flight, device, timeout)
    with working("loading the scorers"):
        loaded = {text: scorer_at(text, access) for text in dict.fromkeys(texts.values())}
    scorers = {name: loaded[text] for name, text in texts.items()}
    _tell_load(scorers.values(), in_flight, batch if "batch" in chosen else 0)
    with working("collecting tokens"):
        read, left_out = _tokens(scorers, Source(tokens, run, prompts, tokenizer), sequences, sample)
    with counting("reading") as progress:
        done = measured(scorers, read, chosen, Plan(batch, sample), limits, sync=syncing, progress=progress)
    made_of = {name: scorer.made_of for name, scorer in scorers.items()}
    if output is not None:
        record(output, read, done.readings, made_of)
    if as_json:
        print_json(plain(done, limits, made_of, left_out) | {"folder": None if output is None else str(output)})
    else:
        print_blocks(blocks(done, limits, {name: scorer.name for name, scorer in scorers.items()}, left_out, output))
    return _code(done, () if arms is None else chosen)


def _demand_one(*sources: Path | None) -> None:
    """ConfigError unless the tokens come from one place."""
    if sum(source is not None for source in sources) != 1:
        raise ConfigError(
            "wanted the tokens from one place: --tokens FILE.jsonl, --run RUN, or --prompts FILE.jsonl, from which A samples"
        )


def _tell_load(scorers: "Iterable[Scorer]", in_flight: int, batch: int) -> None:
    """Says what a server is asked to bear, if there is one."""
    from ...referee.engines import Engine

    if any(isinstance(scorer, Engine) for scorer in scorers):
        note(LOAD.format(count(in_flight, "request")))
        if batch:
            note(f"the arm batch sends {batch} sequences in one request; --arms without it, or --batch, sends fewer")


def _tokens(
    scorers: "Mapping[str, Scorer]", source: Source, most: int, sample: int
) -> "tuple[list[Sequence_], list[str]]":
    """(the tokens that every scorer can read, why others are left out)."""
    from ...referee.parity.tokens import readable, sequences_in, sequences_of

    rooms, left_out = [scorer.room for scorer in scorers.values()], list[str]()
    if source.tokens is not None:
        given = sequences_in(source.tokens, most)
    elif source.run is not None:
        inputs = sequences_of(opened(source.run), most, rooms[0])
        given = inputs.sequences
        left_out = [f"{count(number, 'sequence')}: {reason}" for reason, number in inputs.left_out.items()]
    else:
        wanted, left_out = readable(_prompts(next(iter(scorers.values())), source, most, sample), rooms)
        given = _sampled(next(iter(scorers.values())), [own.prompt for own in wanted], sample)
    read, longer = readable(given, rooms)
    return read, left_out + longer


def _prompts(scorer: "Scorer", source: Source, most: int, sample: int) -> "list[Sequence_]":
    """The prompts, each with room for its response."""
    from ...referee.inputs import Sequence_
    from ...referee.model import Referee, demand_extra
    from ...referee.model import tokenizer as tokenizer_in
    from ...referee.parity.tokens import prompts_in

    assert source.prompts is not None
    folder = source.tokenizer or (scorer.path if isinstance(scorer, Referee) else None)
    if folder is not None:
        demand_extra()
    prompts = prompts_in(source.prompts, most, tokenizer_in(folder))
    return [Sequence_(0, 0, f"prompt-{number}", prompt, (0,) * sample) for number, prompt in enumerate(prompts)]


def _sampled(scorer: "Scorer", prompts: "list[tuple[int, ...]]", sample: int) -> "list[Sequence_]":
    """A response to each prompt by the first scorer. ConfigError if it only reads."""
    from ...referee.engines import Engine
    from ...referee.model import Referee
    from ...referee.sampled import sampled_apart

    if isinstance(scorer, Engine):
        return [each.sequence for each in sampled_apart(scorer, prompts, [sample] * len(prompts))]
    if not isinstance(scorer, Referee):
        raise ConfigError("--prompts: a command samples nothing; wanted a server or a checkpoint first, or --tokens")
    from ...referee.parity.model_arms import sampled

    return sampled(scorer, prompts, sample)


def _code(done: "Parity", demanded: Sequence[str]) -> int:
    """The exit code: findings before what was not measured."""
    if done.broken:
        return FINDINGS
    measured = {row.arm for row in done.rows if row.found.distance.tokens}
    return OK if {done.rows[0].arm, *demanded} <= measured else UNMEASURED
