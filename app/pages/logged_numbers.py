"""The content of a scalar log: which metrics it has, and the trainer's own numbers that the reader picks, beside other runs.

The metrics of which a scalar log has a number. Such a log leaves questions open: each has a name, and the command that recovers
more stands beside them.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from ratioscope.ingest.analysis.fact_courses import fact_course, recorded_facts
from ratioscope.ingest.importers.scalars.agreement import since_versions
from ratioscope.ingest.importers.scalars.number_row import STEP_NAMES
from ratioscope.ingest.run import Run
from ratioscope.metrics.metric import Metric

from ..blocks import Block, Chart, Charts, Code, Paragraph
from ..figures.drawing.bands import BAND
from ..figures.drawing.floats import floats
from ..figures.drawing.lines import Line
from ..figures.drawing.plotly_objects import go
from ..figures.logged_number import LOGGED, logged_over_steps
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.logged_names import column_of, compared_words, metrics_of, own_words, wrote
from ..presentation.run_names import slots
from ..presentation.theme import THEMES, ThemeName
from .face import Several
from .scope import Scope
from .view import View

NO_METRIC = (
    "This run was imported from a log of numbers, and none of them is a metric of ratioscope by definition. "
    "How far the sampler is from the trainer is therefore not available. The trainer's own numbers are drawn below."
)
TELLS = (
    "The charts show them over the steps, without standard errors. Causes, corrections and samples are read from tokens, which "
    "such a log has not."
)
NEXT_RUN = "`ratioscope.attach(trainer, run_dir)` records tokens in the next run."
FIRST = 6
"""The numbers that are drawn at once where the reader has picked none."""
BESIDE = ("reward", "loss")
"""The numbers that are drawn beside a gap, by a word of their names."""
OF_SEQUENCES = (
    f"mean over the recorded sequences of a step, {BAND}; a sequence that a budget kept by chance counts for those it"
    " stands for"
)


def no_metric(scope: Scope) -> Iterator[Block]:
    """A scalar log of which no number is a metric of ours: the trainer's own numbers."""
    yield Paragraph(NO_METRIC, "info")
    yield from recovered(scope)
    yield from logged_numbers(scope, FIRST)


def what_it_tells(scope: Scope) -> Iterator[Block]:
    """The questions that a scalar log with a gap answers and leaves open, and the command that recovers more."""
    numbers, steps = count(len(scope.view.of(_names)), "number"), count(len(scope.view.steps), "step")
    yield Paragraph(f"This run was imported from a log: {numbers} of {steps}. {TELLS}", "info")
    yield from recovered(scope)


def recovered(scope: Scope) -> Iterator[Block]:
    """The import that makes more metrics of a scalar log, as far as one can, and the way to tokens."""
    run, names = scope.view.run, scope.view.of(_names)
    trainer, version = wrote(run.info)
    if waiting := since_versions(names, trainer, version):
        listed = " and ".join(f"{each.name} is our {each.near}" for each in waiting)
        oldest = max(each.since for each in waiting)
        yield Paragraph(f"From {trainer} {oldest} on, {listed}. Import the log again with the version that wrote it:")
        yield Code([_again(run, f"--dialect {trainer}@VERSION")], "bash", "import_again")
    elif not run.gaps:
        yield Paragraph("If you know that a number has the definition of a metric, import the log again and name it:")
        yield Code([_again(run, "--map mismatch/kl_k3=NAME")], "bash", "import_again")
    yield Paragraph(NEXT_RUN, "muted")


def _again(run: Run, option: str) -> str:
    """The command that imports the log once more."""
    config = run.info.get("config")
    source = config.get("imported_from") if isinstance(config, dict) else None
    log, folder = (shlex.quote(visible(str(name), 120)) for name in (source or "LOG", f"{run.name}-again"))
    return f"ratioscope import {log} -o {folder} {option}"


def logged_numbers(scope: Scope, most: int = len(BESIDE)) -> Iterator[Block]:
    """A list of the trainer's own numbers and of facts of the sequences, and a chart of each that is picked.

    At first `most` of reward, loss and others. Nothing for a run that holds none.
    """
    view = scope.view
    names = view.of(_names)
    if not names:
        return
    own = f"the trainer's own numbers ({len(names)} in the log)"
    title = own if view.run.no_tokens else f"reward, loss and other numbers of sequences and trainer ({len(names)})"
    usual = [*view.of(_usual, most)]
    shown = scope.face.ask(Several("logged", title, names, help="choose any", width="stretch", usual=usual))
    yield from _charts(scope, shown, "logged")


def found_numbers(scope: Scope, expression: str) -> Iterator[Block]:
    """A chart of each of the trainer's own numbers whose name fits the expression."""
    names = scope.view.of(_names)
    fits = pl.Series(names, dtype=pl.String).str.contains(expression)
    yield from _charts(scope, [name for name, is_fit in zip(names, fits, strict=True) if is_fit], "found_logged")


def _charts(scope: Scope, shown: Sequence[str], prefix: str) -> Iterator[Block]:
    view, names = scope.view, scope.view.of(_names)
    runs, steps = tuple((each.name, each) for each in (view, *scope.others)), scope.chosen
    charts = tuple(
        Chart(
            f"{prefix}_{names.index(name)}",
            f"{name} over the steps",
            _chart,
            (name, runs, steps),
            numbers=partial(_rows, runs, name, steps),
        )
        for name in shown
    )
    if charts:
        yield Charts(charts)


def _names(run: Run) -> tuple[str, ...]:
    """The trainer's numbers, in the order of the log's first step that has them, then facts of the sequences."""
    logged = run.logged
    own = logged.group_by("name", maintain_order=True).first()["name"].to_list() if len(logged) else []
    return (*own, *_facts(run))


def _facts(run: Run) -> tuple[str, ...]:
    """The facts of the sequences on record, but for one whose name a number of the trainer has."""
    return tuple(fact.words for fact in recorded_facts(run) if fact.words not in run.logged["name"])


def _usual(run: Run, most: int) -> tuple[str, ...]:
    """Its reward, its loss, then numbers that come near a metric of ours, then others; none that is drawn as a metric."""
    drawn, near, facts = metrics_of(run.logged), "comes close to", _facts(run)
    own = [name for name in _names(run) if name not in drawn and name not in STEP_NAMES and name not in facts]
    beside = [found for word in BESIDE if (found := _named(own, word))]
    rest = sorted((name for name in own if name not in beside), key=lambda name: near not in own_words(name, run.info))
    return (*beside, *(rest if most > len(BESIDE) else ()))[:most]


def _named(names: Sequence[str], word: str) -> str | None:
    """The number of this word: of the name itself before a mean, and that before any other."""
    known = [name for name in names if re.search(rf"(?<![a-z]){word}s?(?![a-z])", name.lower())]
    return min(known, key=lambda name: (name.rpartition("/")[2] != word, "mean" not in name, len(name)), default=None)


def _chart(name: str, runs: Sequence[tuple[str, View]], steps: range | None, theme: ThemeName) -> go.Figure:
    front = runs[0][1]
    lines = [line for each, view in runs if (line := view.of(_line, name, each, steps)) is not None]
    known = slots(each for each, _ in runs)
    coloured = [replace(line, slot=known[line.name]) for line in lines] if len(runs) > 1 else lines
    estimate = OF_SEQUENCES if name in front.of(_facts) else LOGGED
    note, events = front.of(number_note, name), front.events()
    return logged_over_steps(coloured, name, note, estimate=estimate, events=events, theme=THEMES[theme])


def _line(run: Run, name: str, shown: str, steps: range | None) -> Line | None:
    """The number of a run by step: of the last attempt that logged it, as every chart shows a step once."""
    if name in _facts(run):
        own = fact_course(run, name, steps)
        places = floats(own, "step")
        return Line(shown, None, places, places, floats(own, "value"), floats(own, "error")) if len(own) else None
    own = run.logged.filter(pl.col("name") == name).sort("attempt").unique("step", keep="last").sort("step")
    if steps is not None:
        own = own.filter(pl.col("step").is_between(steps.start, steps.stop - 1))
    if not len(own):
        return None
    places, values = floats(own, "step"), floats(own, "value")
    return Line(shown, None, places, places, values, np.full(len(own), np.nan))


def number_note(run: Run, name: str) -> str:
    """The metric of ours that the number is, or why it is none, and the policies that it compares."""
    if name in _facts(run):
        return "of the sequences on record"
    metric, compared = metrics_of(run.logged).get(name), compared_words(name, run.info)
    about = f"drawn as {metric}, because its definition is the same" if metric else own_words(name, run.info)
    return f"{about} ({compared})" if compared else about


def _rows(runs: Sequence[tuple[str, View]], name: str, steps: range | None) -> pl.DataFrame:
    """The values behind a chart: one row per run and step."""
    lines = [line for each, view in runs if (line := view.of(_line, name, each, steps)) is not None]
    frames = [
        pl.DataFrame({"step": line.steps.astype(np.int64), column_of(name): line.values}).select(
            pl.lit(line.name).alias("run"), pl.all()
        )
        for line in lines
    ]
    return pl.concat(frames) if frames else pl.DataFrame({"run": []})


def logged_among(view: View, metrics: Sequence[Metric], gap: str, frames: Sequence[pl.DataFrame]) -> list[Metric]:
    """Those metrics that have a value in one of the frames, for a scalar log; all of them for any other run."""
    if not view.run.no_tokens:
        return list(metrics)
    return [metric for metric in metrics if any(has_value(frame, f"{gap}/{metric.name}") for frame in frames)]


def has_value(frame: pl.DataFrame, column: str) -> bool:
    """True if the frame has a value in this column."""
    return column in frame.columns and frame[column].null_count() < len(frame)


def not_logged(metrics: Iterable[Metric], known: Collection[Metric]) -> Iterator[Paragraph]:
    """Names the metrics that the log has no number of."""
    if absent := [metric.name for metric in metrics if metric not in known]:
        names = ", ".join(dict.fromkeys(absent))
        yield Paragraph(f"not available, because the log has no number of their definition: {names}", "absent")
