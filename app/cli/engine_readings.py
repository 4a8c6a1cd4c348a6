"""`ratioscope rescore RUN --engine URL`: running servers read the recorded tokens again, and say what the engine's part is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratioscope.errors import ConfigError

from ..blocks import Block, Paragraph
from ..presentation.digits import count
from .blocks_printed import print_blocks
from .engine_options import engines_at, named, tell_load
from .terminal import counting, print_json

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ..referee.choice import Wanted
    from ..referee.engine_part import EnginePart
    from ..referee.engines import Engine
    from ..referee.findings import ReproductionAttempt
    from ..referee.rescoring import Rescored

PREFILL = "engine_prefill"
"""The reading of a server without a name."""


def read_by_engines(
    run: "Run",
    engines: Sequence[str],
    wanted: "Wanted",
    *,
    in_flight: int,
    key_file: Path | None,
    tokenizer: Path | None,
    temperature: float | None = None,
) -> Iterator["tuple[Rescored, Engine, list[str]]"]:
    """The reading of each server, and doubts in words. All are asked what they are before one reads.

    temperature: that of the log-probs; None: as on record.
    """
    from ..referee.engines import demand_model
    from ..referee.model import demand_extra
    from ..referee.model import tokenizer as tokenizer_in
    from ..referee.moved_weights import moved_doubts
    from ..referee.rescoring import rescore
    from ..referee.scale import bound_doubts, scale_doubts, temperature_of

    at = temperature_of(run) if temperature is None else temperature
    doubts = scale_doubts(run, at)
    asked = engines_at(_readings(engines), key_file, in_flight)
    judges = {name: judge.at(at) for name, judge in asked.items()}
    own = {name: [*filter(None, [demand_model(run, judge)]), *doubts] for name, judge in judges.items()}
    tell_load(in_flight)
    if tokenizer is not None:
        demand_extra()
    tokens = tokenizer_in(tokenizer)
    for name, judge in judges.items():
        with counting(f"reading {run.name} with {judge.name}") as progress:
            done = rescore(run, judge, wanted, name=name, tokenizer=tokens, progress=progress)
        yield done, judge, [*own[name], *bound_doubts(judge), *moved_doubts(run, judge, done)]


def tell_engine_readings(
    run: "Run",
    read: "Iterator[tuple[Rescored, Engine, list[str]]]",
    reproduced_by: "Callable[[dict[str, Engine]], tuple[str, ReproductionAttempt, Iterator[Block]]] | None",
    *,
    as_json: bool,
) -> None:
    """Prints what was read and the engine's part of the gap, after each server, and then what reproduces a column."""
    from ..referee.engine_part import part_of, plain_engine_part
    from ..referee.engines import Engine

    told, servers = dict[str, dict[str, Any]](), dict[str, Engine]()
    for done, judge, doubts in read:
        part = part_of(run, done.reading, done.steps)
        servers[done.reading] = judge
        told[done.reading] = asdict(done) | {"doubts": doubts, "engine_part": part and plain_engine_part(part)}
        if not as_json:
            print_blocks(_told(done, part, doubts))
    if reproduced_by:
        name, tried, words = reproduced_by(servers)
        told[name]["tried"] = asdict(tried)
        if not as_json:
            print_blocks(words)
    if as_json:
        print_json({"readings": list(told.values())})


def _told(done: "Rescored", part: "EnginePart | None", doubts: list[str]) -> Iterator[Block]:
    none = "the run has no log-probs of engine and trainer at these tokens, between which the prefill could stand"
    yield Paragraph(none if part is None else part.sentence, "lead")
    yield from reading_words(done, doubts, has_rate=True)
    yield Paragraph(f"every metric: ratioscope metrics RUN --gap rollout:{done.reading}", "muted")


def reading_words(done: "Rescored", doubts: Sequence[str] = (), *, has_rate: bool = False) -> Iterator[Block]:
    """The sequences that were read, those that were not, and doubts. has_rate: with tokens per second."""
    before = f", {done.before:,} more were read before" if done.before else ""
    rate = f" at {done.tokens / done.seconds:,.0f} tokens/s" if has_rate and done.tokens and done.seconds else ""
    yield Paragraph(
        f"read {count(done.sequences, 'sequence')} of {count(done.tokens, 'token')} as {done.reading!r}{rate}{before}"
    )
    yield from (
        Paragraph(f"not read: {count(number, 'sequence')}: {reason}") for reason, number in done.left_out.items()
    )
    yield from (Paragraph(f"not certain: {doubt}") for doubt in [*doubts, *filter(None, [done.certainty])])


def _readings(engines: Sequence[str]) -> dict[str, str]:
    """Reading -> address. ConfigError for a name that does not fit, or that two have."""
    from ratioscope.record import reading_fault

    from ..referee.answer import REFEREE

    found = named(engines, lambda place: PREFILL)
    for name in found:
        fault = reading_fault(name) or (f"{name!r} is the model's that judges both sides" if name == REFEREE else "")
        if fault:
            raise ConfigError(f"--engine {name}=URL: {fault}; wanted another name, such as {PREFILL}_2")
    return found
