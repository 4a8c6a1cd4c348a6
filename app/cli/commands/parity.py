"""`ratioscope parity A B`: two scorers on the same tokens before a run: how far are they apart, and each from itself?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError

from ..blocks_printed import print_blocks
from ..engine_options import DeviceOption, InFlightOption, KeyOption, engine_key, named, tell_load
from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..terminal import counting, note, print_json, working
from .arguments import AsJson, opened

if TYPE_CHECKING:
    from ...referee.parity.parity import Parity, Scorer

DTYPES = ("float32", "bfloat16", "float16")
COMMAND = "cmd:"
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
TimeoutOption = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The time that a command may take.")]


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
    from ...referee.engines import Engine
    from ...referee.parity.command import command_of
    from ...referee.parity.comparison import Reader
    from ...referee.parity.limits import limits_of
    from ...referee.parity.parity import arms_of
    from ...referee.parity.parity import parity as measured
    from ...referee.parity.tokens import demand_new, readable, record, sampled_by, sequences_in, sequences_of
    from ...referee.parity.words import blocks, plain

    if sum(source is not None for source in (tokens, run, prompts)) != 1:
        raise ConfigError(
            "wanted the tokens from one place: --tokens FILE.jsonl, --run RUN, or --prompts FILE.jsonl, from which A samples"
        )
    limits, chosen, texts = limits_of(limit), arms_of(arms), named((a,) if b is None else (a, b), "AB".__getitem__)
    syncing = None if sync is None else command_of(sync, timeout)
    if output is not None:
        demand_new(output)
    key = engine_key(engine_key_file)
    with working("loading the scorers"):
        loaded = {text: _scorer(text, key, in_flight, device, timeout) for text in dict.fromkeys(texts.values())}
    scorers = [loaded[text] for text in texts.values()]
    if any(isinstance(scorer, Engine) for scorer in scorers):
        tell_load(in_flight)
        if "batch" in chosen:
            note(f"the arm batch sends {batch} sequences in one request; --arms without it, or --batch, sends fewer")
    with working("collecting tokens"):
        if tokens is not None:
            given, left_out = sequences_in(tokens, sequences), list[str]()
        elif run is not None:
            given, left_out = sequences_of(opened(run), sequences, scorers[0].room)
        else:
            assert prompts is not None
            given, left_out = sampled_by(scorers, prompts, sequences, sample, tokenizer)
        read, longer = readable(given, scorers)
    readers = {name: Reader(loaded[text], read, batch, sample) for name, text in texts.items()}
    with counting("reading") as progress:
        done = measured(readers, chosen, limits, syncing, progress)
    made_of = {name: loaded[text].made_of for name, text in texts.items()}
    if output is not None:
        record(output, read, done.readings, made_of)
    if as_json:
        print_json(plain(done, made_of, [*left_out, *longer], output))
    else:
        print_blocks(
            blocks(done, {name: loaded[text].name for name, text in texts.items()}, [*left_out, *longer], output)
        )
    return _code(done, () if arms is None else chosen)


def _scorer(text: str, key: str, in_flight: int, device: str | None, seconds: float) -> "Scorer":
    """The scorer, ready to read. PATH#bfloat16 loads the weights in bfloat16. ConfigError or SourceError if there is none."""
    from ...referee.engines import engine_at
    from ...referee.model import referee
    from ...referee.parity.command import command_of
    from ...referee.server import server_at

    if text.startswith(("http://", "https://")):
        return engine_at(server_at(text, key), in_flight)
    if text.startswith(COMMAND):
        return command_of(text.removeprefix(COMMAND), seconds)
    if "://" in text:
        raise ConfigError(f"{text[:60]}: wanted http://HOST:PORT, a checkpoint's folder, or {COMMAND}COMMAND")
    path, _, dtype = text.rpartition("#") if text.rpartition("#")[2] in DTYPES else (text, "", DTYPES[0])
    return referee(Path(path), device=device, dtype=dtype)


def _code(done: "Parity", demanded: Sequence[str]) -> int:
    """The exit code: findings before what was not measured."""
    if done.broken:
        return FINDINGS
    measured = {row.arm for row in done.rows if row.found.distance.tokens}
    return OK if {done.rows[0].arm, *demanded} <= measured else UNMEASURED
