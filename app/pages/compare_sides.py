"""The two sides of a comparison: their runs, their steps, and the settings that differ between them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.ingest.files.reference_file import pinned_above
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.comparison import Compared
from ratioscope.metrics.grading.finding import Severity

from ..blocks import Action, Actions, Block, Column, Heading, Link, Numbers, Paragraph, Table
from ..presentation.comparison_words import few_settings, numbers_of
from ..presentation.difference import DifferingSettings, differing_settings
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.gap_words import direction
from ..presentation.run_names import told_apart
from .face import Text
from .folder import chosen_runs, opened
from .pinning import pin_action, run_path, said_of_pin
from .scope import Scope, Steps, steps_of
from .slice_absences import read_rows
from .step_choice import not_read
from .view import View, asked_gap

MOST = 8
"""Most runs of a side."""
HOLM = "“differs”: significant at 5% after Holm's correction over all rows."
COLUMNS = {
    "metric": Column(width=230, narrow=112, shorter={"Effective sample size": "ESS", "Chi-squared": "χ²"}),
    **{letter: Column(narrow=134) for letter in "AB"},  # a narrow window shows both sides whole, with their errors
    "z": Column(help="the difference in its standard errors"),
}
"""The look of the table of both sides."""


@dataclass(frozen=True)
class ComparedRun:
    """One side of the comparison."""

    letter: str
    """A or B."""
    names: tuple[str, ...]
    views: tuple[View, ...]
    typed: str
    """Its steps as in the URL."""
    steps: Steps

    def recorded(self, shown: View) -> list[int]:
        """The steps of its range that are on record."""
        return self.steps.recorded(shown.steps)

    @property
    def words(self) -> str:
        """The runs and steps of the side in words."""
        names = ", ".join(self.names)
        return f"{names}, steps {self.typed}" if self.typed else names


Sides = tuple[ComparedRun, ComparedRun]


def asked_sides(scope: Scope) -> Generator[Block, None, tuple[ComparedRun, ComparedRun]]:
    """The chosen sides. By default A is the page's run and B a good one; a single run is halved."""
    runs, notes = scope.runs.runs, list[Block]()
    own = next((name for name, path in runs.items() if path == scope.view.path), scope.view.name)
    other = good_run(scope, own)
    with scope.face.row("sides"):
        names_a, typed_a = _asked(scope, "A", own, notes)
        names_b, typed_b = _asked(scope, "B", other, notes)
        if (names_a, names_b) == ([own], [own]) and not (typed_a or typed_b):
            steps = scope.view.steps
            middle = len(steps) // 2
            typed_a, typed_b = f":{steps[max(0, middle - 1)]}", f"{steps[middle]}:"
        a, b = (
            ComparedRun(letter, tuple(found), tuple(found.values()), typed, steps_of(typed))
            for letter, names, typed in (("A", names_a, typed_a), ("B", names_b, typed_b))
            for found in [opened(scope.runs, names, notes)]
        )
        turned = {"a": [*b.names], "b": [*a.names], "a_steps": b.typed, "b_steps": a.typed}
        yield Action("swap", "swap", Link("", turned), is_plain=True)
    yield from notes
    return a, b


def good_run(scope: Scope, own: str) -> str:
    """The run that the folder pins as its reference, else the newest healthy one with this gap and trainer, as far as runs were
    read, else any other; `own` if there is none."""
    others = {name: path for name, path in scope.runs.runs.items() if name != own}
    with suppress(ConfigError):  # a damaged file pins nothing
        path = run_path(*pinned_above(Path(scope.view.path), scope.runs.roots))
        if pinned := next((name for name, place in others.items() if place == path), None):
            return pinned
    listed, _ = scope.runs.listed(())  # no run is read for it: a click would wait
    trainer = str(scope.view.run.info.get("trainer") or "").split()[:1]
    alike = {
        each.name: (each.summary.started is not None, str(each.summary.started))
        for each in listed
        if each.name in others
        and each.summary is not None
        and each.summary.severity == Severity.HEALTHY.label
        and scope.gap in each.summary.gaps
        and each.summary.trainer.split()[:1] == trainer
    }
    return max(alike, key=lambda name: alike[name], default=next(iter(others), own))


def _asked(scope: Scope, letter: str, usual: str, notes: list[Block]) -> tuple[list[str], str]:
    """The chosen runs of a side, and its steps as typed. notes: gets the reason if those are no steps."""
    key, about = letter.lower(), "one run, or several seeds of one setting"
    otherwise = visible(usual) if letter == "B" else ""  # A is the run of the address, unless it is chosen
    look = {"width": 300, "help": about, "placeholder": visible(usual, 40), "otherwise": otherwise, "most": MOST}
    names = chosen_runs(scope.face, scope.runs.runs, key, letter, **look)
    typed = scope.face.ask(
        Text(f"{key}_steps", f"steps of {letter}", placeholder="all, or 100:200, -50:", width=170)
    ).strip()
    try:
        steps_of(typed)
    except RatioscopeError as error:
        notes.append(Paragraph(str(error), "warning"))
        typed = ""
    return names or [usual], typed


def with_gap(side: ComparedRun, scope: Scope) -> Generator[Block, None, ComparedRun]:
    """The side without the runs that lack a reading of the gap, which it names. The rows of the others are read once."""
    gap = scope.gap
    if not asked_gap(gap):
        return side
    runs = dict(zip(side.names, side.views, strict=True))
    lacking = [name for name, shown in runs.items() if gap not in shown.run.reading_gaps]
    if lacking:
        have = "it has no such reading" if len(lacking) == 1 else "they have no such reading"
        why = f"because {have}; `ratioscope rescore RUN --model PATH` makes one"
        yield Paragraph(f"{side.letter}: {gap} is not available for {', '.join(lacking)}, {why}", "absent")
    kept = {name: shown for name, shown in runs.items() if name not in lacking}
    for name, shown in kept.items():
        read_rows(shown, scope.face, ("step",), direction(gap), None, gap)
        read = set(shown.read_steps(gap))
        if unread := [step for step in side.recorded(shown) if step not in read]:
            yield Paragraph(f"{side.letter}: {name}: {gap} is {not_read(shown, gap, unread)}", "absent")
    return replace(side, names=tuple(kept), views=tuple(kept.values()))


def said_of_sides(sides: Sides, scope: Scope, answer: str, *more: Block) -> Iterator[Block]:
    """The answer, the runs and steps of both sides, more, the button that pins A, and a warning if both have steps of one run."""
    a, b = sides
    yield Paragraph(answer, "answer")
    yield from (Paragraph(f"{side.letter}: {side.words}", "muted") for side in sides)
    yield from more
    if len(a.names) == 1 and (pin := pin_action(scope, a.names[0])):
        yield Actions("pin", (pin,))
        yield from said_of_pin(scope.face)
    pairs = ((one, other) for one in a.views for other in b.views if one.path == other.path)
    if shared := sum(len({*a.recorded(one)} & {*b.recorded(other)}) for one, other in pairs):
        independent = "Errors assume independent sides, so z is too small."
        yield Paragraph(f"A and B share {count(shared, 'step')}. {independent}", "warning")


def side_by_side(
    title: str, table: pl.DataFrame, compared: Sequence[Compared], columns: Mapping[str, Column] = COLUMNS
) -> Iterator[Block]:
    """The table of both sides, and the same as numbers."""
    yield Table(title, table, columns=columns, tallest=None if len(table) < 14 else 460)
    yield Numbers("compared_numbers", partial(numbers_of, compared), "as plain numbers")


LINE, WORDS = 300, 400
"""Most characters of the line that names settings, and of the words on one."""
MOST_SETTINGS = 8
"""Most settings in words, where the effect of one is known; the table has all."""
SETTINGS = {"setting": Column(width=320, narrow=170), **{letter: Column(width=160, narrow=110) for letter in "AB"}}
"""The name of a setting is a path of several words. A narrow window shows both values too."""
CELL = 24
"""Characters of a value in the table of settings. Downloads have all of them."""
ONE_RUN = "A and B come from the same run. The charts of the other pages mark a resume with other settings."
NO_SETTING = (
    "No setting on record differs: code, trainer, versions, configuration and machine are the same in run.json, or were not"
    " recorded."
)


def differing(a: ComparedRun, b: ComparedRun) -> DifferingSettings | None:
    """The settings in which B differs from A; None if both are of one run."""
    if {shown.path for shown in a.views} == {shown.path for shown in b.views}:
        return None
    return a.views[0].of(_between, a.views, b.views)


def _between(run: Run, a: Sequence[View], b: Sequence[View]) -> DifferingSettings:
    return differing_settings(*([shown.run.info for shown in views] for views in (a, b)))


def settings_blocks(found: DifferingSettings | None) -> tuple[Block, Sequence[Block]]:
    """(the first of the settings that differ, or why there is none; the first in words where an effect is known, then all)."""
    if found is None or found.table.is_empty():
        return Paragraph(NO_SETTING if found else ONE_RUN, "muted"), ()
    line, table = f"{found.title} {few_settings(found.table.rows())}", found.table
    rows = [
        Paragraph(visible(words, WORDS), head=visible(key, LINE))
        for key, words in found.lines(MOST_SETTINGS)
        if found.effects
    ]
    first: tuple[Block, ...] = (Heading(found.title.rstrip(":")), *rows) if rows else ()
    is_whole = len(line) <= LINE and all(f"{key} {one} → {other}" in line for key, one, other in table.rows())
    every = () if is_whole or len(table) <= len(rows) else _every(table)
    return Paragraph(visible(line, LINE), "muted"), (*first, *every)


def _every(differing: pl.DataFrame) -> tuple[Block, ...]:
    tallest = None if len(differing) < 20 else 460
    short = pl.DataFrame([told_apart(row, CELL) for row in differing.select("A", "B").rows()], ("A", "B"), orient="row")
    whole = differing.select(pl.col("A", "B").name.suffix(" whole"))
    frame = pl.concat([differing.select("setting"), short, whole], how="horizontal")
    table = Table("Settings that differ", frame, columns=SETTINGS, only=[*SETTINGS], tallest=tallest)
    return Heading(f"All {count(len(differing), 'setting')} that differ"), table
