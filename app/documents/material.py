"""The material of a report or a bundle: a run read once, as it may leave the machine, and its charts."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import polars as pl

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.diagnosis import diagnosed_gap
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.jobs.part_job import PartResults, PartWork
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.finding import Finding

from ..blocks import Block, Chart, Paragraph, Section
from ..pages.answered import Answered, answered
from ..pages.baseline import Baseline, compared_with
from ..pages.gaps import gaps_of_readings, glossary, steps_of_all
from ..pages.head import Head, head_of
from ..pages.jobs import Jobs
from ..pages.pages import PAGES, Page
from ..pages.reproduction import Reproduction, reproduction
from ..pages.scope import Scope
from ..pages.scorecard import Score, scores_of
from ..pages.view import View
from ..pages.worst import WorstSequence
from ..pages.worst_of_run import worst_of
from ..presentation.answer import FirstWords, words_of
from ..presentation.noise_floor import NoiseFloor
from ..presentation.privacy import scrubbed, scrubbed_text
from ..presentation.run_state import RunState, state_of
from ..presentation.without_texts import on_paper
from ..referee.answer import SideOff, side_off
from ..referee.engine_part import EnginePart, engine_part
from .drawings import Drawing, drawing
from .html import whole

Stage = Callable[[str], None]
APPENDIX = "The measurements behind the answer, for those who check it."


@dataclass(frozen=True)
class Material:
    """A run as its documents show it. Everything is made when it is asked for, and once."""

    run: Run
    """Without secrets and home folders, and where asked so without texts."""
    scope: Scope
    """All of the run."""
    text: bool
    """True if prompts and token texts are in it."""
    stage: Stage
    """Takes the name of each part before it is made."""

    @property
    def gap(self) -> str:
        """The asked gap, else the verdict's, else the first on record."""
        return self.scope.gap

    @property
    def view(self) -> View:
        return self.scope.view

    @cached_property
    def verdict(self) -> Finding:
        """The verdict in the light of the diagnosis."""
        return scrubbed(self.view.judged_verdict())

    @cached_property
    def words(self) -> FirstWords:
        """The first words on the run, as every face says them."""
        known = self.view.diagnosis()
        return words_of(self.verdict, known.result if known else None, known.context if known else None)

    @cached_property
    def head(self) -> Head:
        """The first half page."""
        return scrubbed(head_of(self.scope, self.view.diagnosis()))

    @property
    def readings(self) -> tuple[str, ...]:
        """The gaps of readings that have charts and scores."""
        return self.view.of(gaps_of_readings, self.gap)

    @property
    def steps(self) -> pl.DataFrame:
        """Metrics by step with those of `readings`, null where the digits of the file are too few."""
        return self.view.of(steps_of_all, self.readings)

    @property
    def baseline(self) -> Baseline | None:
        """The comparison with the pinned run."""
        return None if self.scope.good is None else self.view.of(compared_with, self.scope.good)

    @cached_property
    def side(self) -> SideOff | None:
        """The answer of the referee; None if none read the run."""
        return scrubbed(self.view.of(side_off))

    @cached_property
    def engine_part(self) -> EnginePart | None:
        """The parts of the gap by the engine's prefill; None if no server read the run."""
        return scrubbed(self.view.of(engine_part))

    @property
    def scores(self) -> tuple[Score, ...]:
        return scores_of(self.scope, self.readings)

    @property
    def worst(self) -> tuple[WorstSequence, ...]:
        """The sequences with the largest gap, the worst first."""
        return self.view.of(worst_of, self.gap)

    @property
    def reproduction(self) -> Reproduction:
        return self.view.of(reproduction)

    def blocks(self, page: Page, scope: Scope | None = None) -> tuple[Block, ...]:
        """The blocks of a page. scope: None for all of the run."""
        self.stage(page.title.lower())
        return whole(page.blocks(scope or self.scope))

    @cached_property
    def printed(self) -> tuple[tuple[Section, tuple[Block, ...]], ...]:
        """The sections of the report with their blocks: the answer, then as an appendix what every other page has printed."""
        made = []
        for page in PAGES:
            self.stage(page.title.lower())
            made += [(section, whole(section.blocks())) for section in page.printed(self.scope)]
            if page is PAGES[0]:
                made.append((Section("appendix", "Appendix", lambda: ()), (Paragraph(APPENDIX, "muted"),)))
        made += [(section, whole(section.blocks())) for section in glossary(self.run.gaps)]
        return tuple((section, blocks) for section, blocks in made if blocks)

    @cached_property
    def _drawn(self) -> dict[tuple[Hashable, ...], Drawing]:
        return {}

    def drawn(self, chart: Chart) -> Drawing:
        """The chart in both themes, drawn once however many files hold it. Another chart of its name gets a number behind it."""
        key = (chart.name, chart.make, *chart.of)
        if key not in self._drawn:
            others = sum(name == chart.name for name, *_ in self._drawn)
            self._drawn[key] = drawing(f"{chart.name}-{others + 1}" if others else chart.name, chart)
        return self._drawn[key]


def material(
    run: Run,
    *,
    text: bool = True,
    gap: str | None = None,
    good: Run | None = None,
    floor: NoiseFloor | None = None,
    options: tuple[str, ...] = (),
    stage: Stage = lambda name: None,
) -> Material:
    """text: False leaves prompts and token texts out. good: the pinned run to compare with. floor: a baseline.
    options: the arguments of the command line, for the reproduction.

    gap: of the parts on distributions, places and sequences, also one of readings; None: the verdict's, else the first.
    """
    run = on_paper(run, text=text)
    view = read_view(run, {(reproduction,): reproduction(run, options, text=text)})
    stage("verdict")
    gap = gap or view.verdict().gap or next(iter(judged_first(run)), "mismatch")
    other = None if good is None else read_view(on_paper(good, text=text))
    return Material(run, Scope(view, gap, floor=floor, good=other), text, stage)


@dataclass
class ReadRun:
    """The source of the view of one run."""

    opened: Run
    """The run."""
    _made: dict[tuple[object, ...], object] = field(default_factory=dict)
    """Function and arguments -> what it made."""
    jobs: Jobs = field(default_factory=lambda: Jobs(Cache(cache_folder())))

    def run(self, view: View) -> Run:
        return self.opened

    def name(self, view: View) -> str:
        return scrubbed_text(self.opened.name)

    def of(self, view: View, make: Callable[..., object], arguments: tuple[Hashable, ...]) -> object:
        key = (make, *arguments)
        if key not in self._made:
            self._made[key] = make(self.opened, *arguments)
        return self._made[key]

    def part_statistics(self, run: Run, path: str, part: Part, gap: str) -> pl.DataFrame:
        results = PartResults(part, gap, Cache(cache_folder()))
        work = PartWork(run, results, run.steps)
        for step in work.pieces:
            work.do(step)
        return results.statistics(work.digests)

    def diagnosis(self, view: View, gap: str, steps: range | None) -> Answered | None:
        with suppress(RatioscopeError):
            gap = "" if gap == diagnosed_gap(self.opened) else gap
        key = (answered, gap, steps)
        if key not in self._made:
            self._made[key] = scrubbed(answered(lambda: self.opened, view.revision, gap, steps, view.graded()))
        return cast(Answered, self._made[key])

    def known_diagnosis(self, view: View) -> Answered | None:
        return self.diagnosis(view, "", None)

    def state(self, view: View) -> RunState:
        return state_of(Path(view.path))


def read_view(run: Run, made: Mapping[tuple[object, ...], object] | None = None) -> View:
    """The view of a run that is read once. made: function and arguments -> what it has made elsewhere."""
    return View(str(run.path), run.revision, ReadRun(run, dict(made or {})))
