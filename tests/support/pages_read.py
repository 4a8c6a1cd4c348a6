"""A page as a function makes it, without Streamlit: what it says, its charts and its tables. `read` is its fixture.

What was read has the parts of Streamlit's AppTest that tests read, so that the functions of pages_open read both.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ratioscope.app.blocks import Action, Block, Chart, parts_of
from ratioscope.app.documents.material import read_view
from ratioscope.app.figures.html.fact_cards import fact_cards, fact_list
from ratioscope.app.pages.face import Paper, Question, Step, Value
from ratioscope.app.pages.folder import Folder, ListedRun, summary_of
from ratioscope.app.pages.logged_numbers import no_metric
from ratioscope.app.pages.pages import PAGES
from ratioscope.app.pages.scope import Scope, steps_of
from ratioscope.app.pages.step_choice import nearest, steps_with_rows, worst_step
from ratioscope.app.pages.view import View
from ratioscope.app.presentation.run_state import state_of
from ratioscope.app.presentation.theme import THEMES, ThemeName
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.feature_requirements import why_no_gap
from ratioscope.ingest.rows.part import part_of
from ratioscope.ingest.run import open_run
from support.edge_runs import made

BY_PATH = {page.path: page for page in PAGES}
Choices = dict[str, Any]
"""Key of a question -> the answer as an address has it. Any: a text, or a list of texts."""


@dataclass(frozen=True)
class Part:
    """One element of a page."""

    value: Any = ""
    label: str = ""
    key: str = ""

    @property
    def proto(self) -> Any:
        """As Streamlit's element of HTML has its body."""
        return type("Proto", (), {"body": self.value})


class Parts(list[Part]):
    """Elements of one kind, in order."""

    def __call__(self, key: str) -> Part:
        """The one of this key."""
        return next(part for part in self if part.key == key)


class Reader(Paper):
    """The face of a reader who has made these choices, and picked these rows of tables."""

    def __init__(self, choices: Choices, picks: dict[str, int]) -> None:
        self.choices, self.picks = choices, picks
        self.answers: dict[str, Any] = {}
        """Key of a question -> the answer that the page got."""
        self.kept: dict[str, Any] = {}

    def ask(self, question: Question[Value]) -> Value:
        asked: Any = question
        key = "step" if isinstance(asked, Step) else asked.key
        answer: Value = _answer(asked, self.choices.get(key))
        self.answers[key] = answer
        return answer

    def known(self, question: Question[Value]) -> Value:
        return self.ask(question)

    def unasked(self, options: Sequence[Any]) -> Sequence[Any]:
        return ()

    def picked(self, name: str, rows: int) -> int | None:
        return self.picks.get(name)

    def remembered(self, key: str, first: Value) -> Value:
        kept: Value = self.kept.setdefault(key, first)
        return kept

    def forget(self, key: str) -> None:
        self.kept.pop(key, None)


def _answer(asked: Any, wanted: Any) -> Any:
    """The answer to a question. wanted: as the address has it; None for the usual one."""
    kind = type(asked).__name__
    if kind == "Step":
        steps = asked.view.steps
        is_step = str(wanted).isdecimal() and steps[0] <= int(wanted) <= steps[-1]
        return (
            nearest(steps, int(wanted)) if is_step else worst_step(asked.view, steps_with_rows(asked.view, asked.gap))
        )
    if wanted is None:
        return asked.usual
    if kind == "Number":
        return float(wanted) if "." in wanted else int(wanted)
    if kind in ("Switch", "Text"):
        return wanted == "true" if kind == "Switch" else wanted
    options = {str(option): option for option in asked.options}
    options |= {asked.shown(option): option for option in asked.options} if asked.shown is not None else {}
    if kind == "Several":
        return [options[each] for each in ([wanted] if isinstance(wanted, str) else wanted) if each in options]
    return options.get(wanted, asked.usual)


@dataclass
class PageRead:
    """What a page says."""

    face: Reader
    theme: ThemeName
    html: Parts = field(default_factory=Parts)
    markdown: Parts = field(default_factory=Parts)
    caption: Parts = field(default_factory=Parts)
    info: Parts = field(default_factory=Parts)
    warning: Parts = field(default_factory=Parts)
    subheader: Parts = field(default_factory=Parts)
    dataframe: Parts = field(default_factory=Parts)
    button: Parts = field(default_factory=Parts)
    expander: Parts = field(default_factory=Parts)
    charts: list[str] = field(default_factory=list)
    """The figures as JSON."""
    codes: list[str] = field(default_factory=list)
    exception: tuple[Part, ...] = ()
    error: tuple[Part, ...] = ()

    def selectbox(self, key: str) -> Part:
        """The question of this key, as the page has its answer, whatever its widget."""
        return Part(self.face.answers[key])

    number_input = segmented_control = pills = multiselect = slider = toggle = text_input = selectbox

    def draw(self, blocks: Iterable[Block], scope: Scope) -> None:
        for block in blocks:
            getattr(self, f"_{type(block).__name__.lower()}")(block, scope)

    def _heading(self, block: Any, scope: Scope) -> None:
        self.subheader.append(Part(block.text))

    def _paragraph(self, block: Any, scope: Scope) -> None:
        words = "".join(f"`{text}`" if is_code else text for text, is_code in parts_of(block.text))
        words = f"**{block.head}** {words}" if block.head else words
        place = {"info": self.info, "warning": self.warning}.get(
            block.tone, self.caption if block.tone else self.markdown
        )
        place.append(Part(words, block.help))

    def _facts(self, block: Any, scope: Scope) -> None:
        self.html.append(Part(fact_list(block.rows, THEMES[self.theme])))

    def _cards(self, block: Any, scope: Scope) -> None:
        self.html.append(Part(fact_cards(block.rows, narrowest=block.narrowest, theme=THEMES[self.theme])))

    def _table(self, block: Any, scope: Scope) -> None:
        if block.frame.is_empty() and block.none:
            self.caption.append(Part(block.none))
        else:
            self.dataframe.append(Part(block.frame.to_pandas(), block.title, block.picks))

    def _chart(self, block: Chart, scope: Scope) -> None:
        figure = scope.view.figure(block.make, *block.of, self.theme)
        self.charts.append(figure if isinstance(figure, str) else str(figure.to_json()))

    def _charts(self, block: Any, scope: Scope) -> None:
        self.draw(block.charts, scope)

    def _beside(self, block: Any, scope: Scope) -> None:
        for column in block.columns:
            self.draw(column, scope)

    def _at(self, block: Any, scope: Scope) -> None:
        self.draw(block.blocks, scope)

    _box = _at

    def _part(self, block: Any, scope: Scope) -> None:
        self.draw(block.blocks(), scope)

    def _action(self, block: Action, scope: Scope) -> None:
        self.button.append(Part(block.do, block.words, block.name))

    def _actions(self, block: Any, scope: Scope) -> None:
        self.caption += [Part(words) for words in (block.before, block.after) if words]
        self.draw(block.actions, scope)

    def _waiting(self, block: Any, scope: Scope) -> None:
        assert block.blocks is not None or block.is_there(), f"nobody makes {block.name}"
        self.draw(block.blocks() if block.blocks is not None else (), scope)

    def _markup(self, block: Any, scope: Scope) -> None:
        self.html.append(Part(block.draw(theme=THEMES[self.theme])))

    def _tintedsequence(self, block: Any, scope: Scope) -> None:
        self.markdown.append(Part(f"**{block.title}** {block.facts}"))
        self.html.append(Part(block.html))
        self.caption += [Part(block.more)] if block.more else []

    def _code(self, block: Any, scope: Scope) -> None:
        self.codes.append("\n".join(block.lines))

    def _json(self, block: Any, scope: Scope) -> None:
        """Streamlit shows it folded."""

    def _links(self, block: Any, scope: Scope) -> None:
        self.button += [Part(link, f"**{name}** {words} ›", f"to_{name}") for name, words, link, _ in block.rows]

    def _verdict(self, block: Any, scope: Scope) -> None:
        self.html.append(Part(block.lines(theme=THEMES[self.theme])))

    def _numbers(self, block: Any, scope: Scope) -> None:
        self.expander.append(Part(block.frame, block.title, block.name))

    def _drawer(self, block: Any, scope: Scope) -> None:
        self.expander.append(Part(block.blocks, block.title, block.name))
        if self.face.choices.get(block.name) == "true":
            self.draw(block.blocks(), scope)


Read = Callable[..., PageRead]
_view_of = cache(lambda path: read_view(open_run(path)))


def reader(runs: Path) -> Read:
    """(page, names of edge runs or folders, theme, picked rows, choices) -> the page of the first run, read once.

    The others can be laid over it by `with`, with their places in the list.
    """

    def page(
        path: str, names: Any, theme: ThemeName = "light", picks: dict[str, int] | None = None, **choices: Any
    ) -> PageRead:
        several = [names] if isinstance(names, str | Path) else names
        views = [read_view(open_run(n)) if isinstance(n, Path) else _view_of(made(runs, n)) for n in several]
        by_name = {Path(view.path).name: view for view in views}
        shown = by_name[choices.pop("run", Path(views[0].path).name)]
        said = PageRead(Reader(choices, picks or {}), theme)
        card = BY_PATH[path]
        if card.about != "runs" and not card.shows_empty and (why := shown.of(why_no_gap)):
            said.info.append(Part(why))
            return said
        if card.about == "run" and shown.run.steps and not shown.run.gaps and shown.run.no_tokens:
            scope = Scope(shown, face=said.face)
            said.draw(no_metric(scope), scope)
            return said
        others = choices.get("with", [])
        scope = Scope(
            shown,
            choices.get("gap") or (_first_gap(shown) if "gap" in card.choices else ""),
            steps_of(choices.get("steps", "")),
            only := part_of(choices["only"]) if "only" in choices else None,
            others=tuple(by_name[name] for name in ([others] if isinstance(others, str) else others)),
            from_rows=only is not None and "histograms" in card.choices,
            face=said.face,
            runs=_folder(by_name),
        )
        said.draw(card.blocks(scope), scope)
        return said

    return page


def _folder(by_name: dict[str, View]) -> Folder:
    listed = [
        ListedRun(name, summary_of(view.run, view.judged_verdict()), state_of(Path(view.path)))
        for name, view in by_name.items()
    ]
    by_path = {view.path: view for view in by_name.values()}
    return Folder({n: v.path for n, v in by_name.items()}, by_path.__getitem__, lambda wanted: (listed, 0))


def _first_gap(shown: View) -> str:
    return str(next(iter(shown.of(judged_first)), ""))
