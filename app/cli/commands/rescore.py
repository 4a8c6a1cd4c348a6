"""`ratioscope rescore RUN --model PATH | --engine URL`: reads recorded tokens again, and says which side is off."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError

from ...blocks import Block, Paragraph, text_table
from ...presentation.digits import count
from ..blocks_printed import print_blocks
from ..engine_options import DeviceOption, InFlightOption, KeyOption
from ..engine_readings import read_by_engines, reading_words, tell_engine_readings
from ..terminal import counting, print_json, working
from .arguments import AsJson, OnlySteps, OwnRun, opened, steps_of

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...referee.answer import RefereeAnswer
    from ...referee.choice import Wanted
    from ...referee.distance import Distance
    from ...referee.engines import Engine
    from ...referee.findings import ReproductionAttempt
    from ...referee.judges import Judge
    from ...referee.model import Referee
    from ...referee.rescoring import Rescored

ModelOption = Annotated[
    Path | None,
    typer.Option("--model", metavar="PATH", help="A folder with config.json and weights; nothing is downloaded."),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="[NAME=]URL",
        help="A running vLLM or SGLang server that reads instead of a model, as the reading engine_prefill or NAME; repeatable."
        " URL#MODEL names one of several models.",
    ),
]
NumberOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="256; with --try 32 for the alternatives",
        help="Sequences to read, half of them the worst of their steps.",
    ),
]
EveryOption = Annotated[bool, typer.Option("--all", help="Read every sequence of every step.")]
NameOption = Annotated[str, typer.Option(metavar="NAME", help="The name of a model's reading.")]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A tokenizer's folder, for prompts without ids on record; else PATH of --model."),
]
DtypeOption = Annotated[
    str, typer.Option(metavar="float32|bfloat16|float16", help="Numbers that the weights are held in.")
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(min=1e-3, show_default="1; for a server that on record", help="Divide the logits by this number."),
]
ONE_BY_ONE = 1
"""Padded tokens of the batches of --floor: every sequence is a batch of its own."""
MOST_TRIED = 32
"""Sequences that are read under alternatives unless a number is given: minutes for a small model on two cores."""
MOST_STEPS = 12
"""Steps of the table in the terminal at most."""


def rescore(
    run: OwnRun,
    model: ModelOption = None,
    engine: EngineOption = None,
    steps: OnlySteps = None,
    sequences: NumberOption = None,
    everything: EveryOption = False,
    name: NameOption = "referee",
    tokenizer: TokenizerOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = "float32",
    temperature: TemperatureOption = None,
    floor: Annotated[
        bool,
        typer.Option("--floor", help="Read twice, in other batches: by how much does the model differ from itself?"),
    ] = False,
    tries: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Also find the alternative that reproduces a recorded column: all are read on one sequence, the best on 32 (or"
            " --sequences), which takes minutes for a small model on two cores. A server tries those of the input.",
        ),
    ] = False,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --try: a folder of checkpoints or PEFT adapters; which of them reproduces a column?",
        ),
    ] = None,
    in_flight: InFlightOption = 2,
    engine_key_file: KeyOption = None,
    as_json: AsJson = False,
) -> int:
    """Read recorded tokens again with a model or a running server, write the log-probs into the run as a reading, and say which
    side is off.

    The reading becomes a side of gaps: ratioscope metrics RUN --gap rollout:referee. A call that was killed is resumed.
    """
    from ...referee.answer import answer, trainer_noise
    from ...referee.choice import SEQUENCES, Wanted
    from ...referee.model import demand_extra, referee
    from ...referee.model import tokenizer as tokenizer_in

    _demand(name, dtype, checkpoints, tries)
    wanted = Wanted(steps_of(steps), sequences or SEQUENCES, everything)
    few = Wanted(wanted.steps, sequences or MOST_TRIED)
    if model is None or engine:
        given = {"--model": model, "--floor": floor, "--checkpoints": checkpoints, "--device": device}
        _demand_engine(engine, [option for option, value in given.items() if value])
        opened_run = opened(run)
        options: Any = {"in_flight": in_flight, "key_file": engine_key_file, "tokenizer": tokenizer}
        options |= {"temperature": temperature}
        read_now = read_by_engines(opened_run, engine or (), wanted, **options)
        reproduced_by = partial(_reproduced_by_engines, opened_run, few, tokenizer) if tries else None
        tell_engine_readings(opened_run, read_now, reproduced_by, as_json=as_json)
        return 0
    opened_run = opened(run)
    demand_extra()
    with working(f"loading {model}"):
        judge = referee(model, device=device, dtype=dtype)
        own = tokenizer_in(tokenizer or model)
    from ...referee.rescoring import rescore as rescored
    from ...referee.scoring import Scoring

    read = partial(rescored, opened_run, judge, wanted, tokenizer=own)
    with counting(f"reading {opened_run.name} with {model.name}") as progress:
        done = read(Scoring(temperature or 1.0), name=name, progress=progress)
    with working("comparing"):
        if dtype == "float32":
            _tell_floors(opened_run, judge, few, own, name)
        result = answer(opened_run, name, done.steps)
        own_noise = trainer_noise(opened_run)
    noise = (
        _floor(opened_run, name, partial(read, Scoring(temperature or 1.0, batch_tokens=ONE_BY_ONE))) if floor else None
    )
    reproduced = _reproduced(opened_run, judge, few, own, checkpoints) if tries else None
    if as_json:
        sentences = [] if reproduced is None else [best.sentence for best in reproduced.best]
        print_json(
            {**asdict(done), "answer": plain_answer(result), "made_of": judge.made_of}
            | ({} if reproduced is None else {"tried": {**asdict(reproduced), "sentences": sentences}})
            | ({} if noise is None else {"floor": asdict(noise)})
            | ({} if own_noise is None else {"trainer_again": asdict(own_noise)})
        )
        return 0
    print_blocks(_read(done, result))
    who = f"noise floor: the model in {dtype} differs from itself"
    print_blocks(_floor_words(who, "when it reads each sequence alone", noise, result))
    how = "in a second forward of another batch shape (trainer_again)"
    print_blocks(_floor_words("the trainer differs from itself", how, own_noise, result))
    if reproduced is not None:
        print_blocks(_tried(reproduced))
    return 0


def _demand(name: str, dtype: str, checkpoints: Path | None, tries: bool) -> None:
    """ConfigError for options that do not fit."""
    from ratioscope.record import reading_fault

    if fault := reading_fault(name):
        raise ConfigError(f"--name {name}: {fault}")
    if dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"--dtype {dtype}: wanted float32, bfloat16 or float16; try: --dtype float32")
    if checkpoints is not None and not tries:
        raise ConfigError("--checkpoints DIR belongs to --try; try: --try --checkpoints DIR")


def _demand_engine(engine: list[str] | None, of_model: list[str]) -> None:
    """ConfigError unless there is a server, and no option of a model."""
    if not engine:
        raise ConfigError(
            "nothing reads the tokens; wanted --model PATH, or --engine URL of a running vLLM or SGLang server"
        )
    if of_model:
        raise ConfigError(
            f"{', '.join(of_model)} and --engine do not go together: a server scores as it is. One call for each"
        )


def _floor(run: "Run", name: str, read: "Callable[..., Rescored]") -> "Distance | None":
    """The distance of the model from itself when it reads every sequence alone. The second reading stays in the run."""
    from ...referee.distance import distances_of

    with counting(f"reading {run.name} again") as progress:
        again = read(name=f"{name}_again", progress=progress)
    return distances_of(run, f"{name}:{name}_again", again.steps).get(None)


def _tell_floors(run: "Run", judge: "Referee", few: "Wanted", tokenizer: Any, name: str) -> None:
    """Measures the referee's own distance at the precision of each side, and writes it into the run."""
    from ratioscope.ingest.analysis.third_reading import precisions

    from ...referee.choice import chosen
    from ...referee.findings import say
    from ...referee.inputs import inputs_of
    from ...referee.reproduction import own_floors

    inputs = inputs_of(run, chosen(run, few), judge.room, tokenizer)
    floors = own_floors(judge, inputs.sequences, precisions(run)) if inputs.sequences else {}
    say(run.path, {"floors": {"reading": name, **floors}}, run.steps[0])
    run.refresh()


def _reproduced(
    run: "Run", judge: "Referee", few: "Wanted", tokenizer: Any, checkpoints: Path | None
) -> "ReproductionAttempt":
    """The alternatives that reproduce the recorded columns. A finding is written into the run, where the diagnosis shows it."""
    from ...referee.findings import write_proofs
    from ...referee.reproduction import checkpoints_in

    results = _attempt(run, judge, few, tokenizer, [] if checkpoints is None else checkpoints_in(checkpoints))
    write_proofs(run.path, results.best)
    return results


def _attempt(
    run: "Run", judge: "Referee | Judge", few: "Wanted", tokenizer: Any, checkpoints: "Sequence[Path]" = ()
) -> "ReproductionAttempt":
    """Every alternative that the judge can read, on few sequences."""
    from ratioscope.ingest.analysis.comparability import recorded_values
    from ratioscope.ingest.analysis.third_reading import precisions

    from ...referee.choice import chosen
    from ...referee.inputs import demand_some, inputs_of
    from ...referee.reproduction import Trial, tried

    inputs = inputs_of(run, chosen(run, few), judge.room, tokenizer)
    demand_some(run, len(inputs.sequences), inputs.left_out)
    trial = Trial(checkpoints, tokenizer, precisions(run), recorded_values(run.info), _codes(run))
    with counting("alternatives") as progress:
        return tried(judge, inputs.sequences, trial, progress=progress)


def _reproduced_by_engines(
    run: "Run", few: "Wanted", path: Path | None, servers: "Mapping[str, Engine]"
) -> tuple[str, "ReproductionAttempt", Iterator[Block]]:
    """The alternatives of the input, and the servers, that reproduce the recorded columns, beside the reading of the server that
    stands for the current weights, and how they are told.

    A column that this server reproduces as it is proves nothing about its weights, which both have: only findings are written.
    """
    from ratioscope.ingest.analysis.third_reading import told

    from ...referee.model import demand_extra
    from ...referee.model import tokenizer as tokenizer_in

    demand_extra()
    from ...referee.engine_part import nearest_to_trainer
    from ...referee.findings import SERVED, write_proofs
    from ...referee.hypotheses import PLAIN
    from ...referee.judges import ServerJudge

    name = nearest_to_trainer(run, servers)
    judge, others = servers[name], {Path(other): engine for other, engine in servers.items() if other != name}
    replicas = [path for path, engine in others.items() if engine.weights == judge.weights]
    others = {path: engine for path, engine in others.items() if path not in replicas}
    results = _attempt(run, ServerJudge(judge, others), few, tokenizer_in(path))
    results.skipped |= {
        f"the checkpoint {path.name}": f"its weights are those of {name} by their names" for path in replicas
    }
    results.best = [replace(best, reading=name) for best in results.best]
    found = [best for best in results.best if best.code]
    if found and not told(run, "found"):  # a model's findings say more
        write_proofs(run.path, found)
    meaning = "this side has what the server gives for the recorded tokens"
    results.best = [best if best.code else replace(best, hypothesis=SERVED, meaning=meaning) for best in results.best]
    for means in (*results.means.values(), *results.screened.values()):
        if PLAIN.name in means:
            means[SERVED] = means.pop(PLAIN.name)
    current = [Paragraph(f"{name} stands for the current weights: it is the nearest to the trainer")] if others else []
    return name, results, chain(current, _tried(results))


def _codes(run: "Run") -> list[str]:
    """The codes of likely and open causes, the likeliest first."""
    from ratioscope.errors import SourceError
    from ratioscope.ingest.analysis.diagnosis import diagnosis_of

    try:
        diagnosis = diagnosis_of(run).diagnosis
    except SourceError:  # one policy alone: the order is that of the table
        return []
    return [*(item.cause.code for item in diagnosis.likely), *(item.cause.code for item in diagnosis.cannot_tell)]


def _floor_words(who: str, how: str, noise: "Distance | None", result: "RefereeAnswer") -> Iterator[Block]:
    from ...referee.answer import words

    if noise is None:
        return
    said, between = f"{who} by {words(noise)} {how}", result.between
    if between is not None and between.mean:
        times = f"{between.mean / noise.mean:,.1f} times that (mean |x|)" if noise.mean else ""
        said += f"; the recorded sides differ by {times}" if times else ": not at all"
    yield Paragraph(said)


def _tried(results: "ReproductionAttempt") -> Iterator[Block]:
    yield Paragraph("")
    yield from (Paragraph(best.sentence, "lead" if best.verdict == "reproduced" else "") for best in results.best)
    yield Paragraph("")
    policies = list(results.means)
    names = sorted(
        {name for means in results.means.values() for name in means},
        key=lambda n: min(m[n] for m in results.means.values()),
    )
    rows = [[name, *(f"{results.means[policy][name]:.2g}" for policy in policies)] for name in names[:MOST_STEPS]]
    head = f"mean |x| of {results.sequences} sequences, nats/token"
    yield text_table("alternatives", (head, *policies), rows)
    for why in dict.fromkeys(results.skipped.values()):
        first, *others = (name for name, own in results.skipped.items() if own == why)
        more = f" and {count(len(others), 'other alternative')}" if others else ""
        yield Paragraph(f"not tried: {first}{more}: {why}", "muted")


def plain_answer(result: "RefereeAnswer") -> dict[str, Any]:
    """The answer as JSON holds it."""
    return {
        "off": result.off,
        "sentence": result.sentence,
        "steps": list(result.steps),
        "distances": {policy: asdict(own) for policy, own in result.distances.items()},
        "between": None if result.between is None else asdict(result.between),
        "by_step": {policy: {str(s): asdict(d) for s, d in own.items()} for policy, own in result.by_step.items()},
    }


def _read(done: "Rescored", result: "RefereeAnswer") -> Iterator[Block]:
    from ...referee.choice import at_even_distances

    yield Paragraph(result.sentence, "lead")
    yield from reading_words(done)
    steps = sorted({step for own in result.by_step.values() for step in own})
    if len(steps) > 1:
        yield Paragraph("")
        rows = [_row(result.by_step, step) for step in at_even_distances(steps, MOST_STEPS)]
        yield text_table("distances by step", ("step", *(f"{policy} K3" for policy in result.by_step)), rows)
    policies = [policy for policy in result.distances if policy != done.reading]
    if policies:
        yield Paragraph(f"every metric: ratioscope metrics RUN --gap {policies[0]}:{done.reading}", "muted")


def _row(by_step: "Mapping[str, Mapping[int, Distance]]", step: int) -> list[str]:
    cells = (own.get(step) for own in by_step.values())
    return [str(step), *("–" if each is None else f"{each.k3:.2g} ± {each.k3_error:.2g}" for each in cells)]
