"""The files of a run's pages: one HTML file for all, or one for each; and a folder of several runs.

Every file holds all it needs and loads nothing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from itertools import count as numbers

from ..blocks import Block
from ..pages.folder import NO_FOLDER, Folder, ListedRun, Summary, summary_of
from ..pages.pages import LETTERS, PAGES, TOPICS, Page
from ..pages.runs import rows_of
from ..presentation.digits import count
from ..presentation.escape import html as escaped
from ..presentation.sentence import capital
from ..presentation.theme import MARKS
from .html import Inside, charts_of, live_figure, markup
from .material import Material
from .shell import Shell, demand_plotly, shell

FIRST = "index.html"
PATHS = frozenset(page.path for page in PAGES if page.about == "run")
"""The pages of a run that stands alone."""
HOME = next(letter for letter, path in LETTERS.items() if path == "runs")
"""The letter after `g` that leads to the list of runs."""


def one_file(run: Material, home: str = "", folder: Folder = NO_FOLDER) -> str:
    """All pages in one file, of which a browser shows one at a time. Equal data gives equal bytes.

    home: the address of the list of runs that this one is in; "" if there is none. folder: the runs that it is compared with.
    """
    demand_plotly()
    scope, pages = replace(run.scope, runs=folder), _pages(beside=bool(folder.runs))
    return _document(run, [(page, run.blocks(page, scope)) for page in pages], pages, _anchor, home)


def files(run: Material) -> dict[str, str]:
    """Name and content of a file for each page; the first page is FIRST. Equal data gives equal bytes."""
    pages = _pages()
    return {_file(page.path): _document(run, [(page, run.blocks(page))], pages, _file) for page in pages}


def start_page(run: Material, folder: Folder, addresses: Mapping[str, str]) -> str:
    """The list of the runs of the folder, each a link to its file. run: any of them. addresses: name -> file."""
    (page,) = (page for page in PAGES if page.about == "runs")
    inside = Inside(lambda chart: live_figure(chart, run.drawn(chart)), _anchor, frozenset(), addresses)
    worst = rows_of(folder.listed(())[0])["verdict"][0].partition(" ")[0]
    return shell(
        Shell(
            title=f"{worst} {count(len(addresses), 'run')} (ratioscope)",
            head=f"<h1>{page.topic}</h1>",
            main=f'<section class="page runs">{markup(page.blocks(replace(run.scope, runs=folder)), inside)}</section>',
            foot="This file loads nothing and sends nothing. The key t changes the theme.",
            keys={},
        )
    )


def _pages(*, beside: bool = False) -> list[Page]:
    """The pages of a run. beside: also those about a run and others."""
    return [page for page in PAGES if page.about == "run" or (beside and page.about == "beside")]


def _anchor(path: str) -> str:
    return f"#{path}"


def _file(path: str) -> str:
    return FIRST if path == PAGES[0].path else f"{path}.html"


def _document(
    run: Material,
    made: Sequence[tuple[Page, tuple[Block, ...]]],
    pages: Sequence[Page],
    address: Callable[[str], str],
    home: str = "",
) -> str:
    """made: the pages of this file. pages: all that there are."""
    drawn = {figure.name: figure for _, blocks in made for figure in map(run.drawn, charts_of(blocks))}
    paths = frozenset(page.path for page in pages)
    letters = {letter: path for letter, path in LETTERS.items() if path in paths}
    inside = Inside(lambda chart: live_figure(chart, run.drawn(chart)), address, paths)
    severity = run.head.severity
    here, current = (made[0][0].title, made[0][0]) if len(made) == 1 else ("pages", None)
    name = run.view.name
    word = f'<span class="word {severity}">{MARKS[severity]} {severity}</span>'
    keys = {**({HOME: home} if home else {}), **{letter: address(path) for letter, path in letters.items()}}
    return shell(
        Shell(
            title=f"{MARKS[severity]} {escaped(here)} · {escaped(name, 200)} (ratioscope)",
            head=f"<h1>{escaped(name, 400)} {word}</h1>\n{_navigation(pages, address, current, home)}",
            main="\n".join(_section(page, blocks, inside, pages) for page, blocks in made),
            foot=_footer(run, letters, is_listed=bool(home)),
            keys=keys,
            drawn=drawn,
        )
    )


def _section(page: Page, blocks: tuple[Block, ...], inside: Inside, pages: Sequence[Page]) -> str:
    """The page below its topic and the tabs of the topic. pages: all that there are."""
    tabs = [each for each in pages if each.topic == page.topic]
    links = "".join(_link(each, each.title, inside.address, "page" if each is page else "") for each in tabs)
    row = f'<nav class="tabs" aria-label="{page.topic}">{links}</nav>\n' if len(tabs) > 1 else ""
    content = f"<h2>{page.topic}</h2>\n{row}{markup(blocks, inside)}"
    return f'<section class="page" id="{page.path}" data-lead="{tabs[0].path}">{content}\n</section>'


def _navigation(pages: Sequence[Page], address: Callable[[str], str], current: Page | None, home: str) -> str:
    """A link for each topic. current: the page of the file; None if it has all of them."""
    back = f'<a href="{escaped(home)}" title="key: g {HOME}">‹ All runs</a>' if home else ""
    links = ""
    for topic in TOPICS:
        tabs = [page for page in pages if page.topic == topic]
        here = "" if current not in tabs else "page" if current is tabs[0] else "true"
        links += "".join(_link(page, topic, address, here) for page in tabs[:1])
    return f'<nav aria-label="pages">{back}{links}</nav>'


def _link(page: Page, words: str, address: Callable[[str], str], here: str) -> str:
    """here: how the link is the place of the reader, as of aria-current; empty if it is not."""
    letter = next((letter for letter, path in LETTERS.items() if path == page.path), "")
    key = f' title="key: g {letter}"' if letter else ""
    place = f' aria-current="{here}"' if here else ""
    return f'<a href="{address(page.path)}"{place}{key}>{words}</a>'


def _footer(run: Material, letters: Mapping[str, str], *, is_listed: bool) -> str:
    made = run.reproduction
    keys = ", ".join(f"g {letter} {path}" for letter, path in letters.items())
    back = f", g {HOME} all runs" if is_listed else ""
    return (
        f"ratioscope {escaped(made.version)} made this from input {escaped(made.digest[:12])}. This file loads nothing and sends"
        f" nothing. Keys: {keys}{back}; t changes the theme."
    )


LONGEST = 60
"""Characters of a file's name before its ending."""


def folder_of(runs: Iterable[Material]) -> Iterator[tuple[str, str]]:
    """Name and content of each file, the start page last. Each run is taken when its file is wanted, and let go of then.

    The first run with a gap is kept, because every other one is compared with it, and the second for the first. Without a gap
    in any, the first logs are.
    """
    rest, listed, files = iter(runs), list[ListedRun](), dict[str, str]()
    ahead, kept = list[Material](), list[Material]()
    while len(kept) < 2 and (run := next(rest, None)) is not None:
        ahead.append(run)
        kept += [run] if run.run.gaps else []
    kept = kept or [run for run in ahead if run.run.no_tokens][:2]  # logs without a gap have other numbers in common
    for run in chain(ahead, rest):
        name = _unused(run.view.name, files)
        files[name] = file_name(name, {FIRST, *files.values()})
        listed.append(ListedRun(name, entry_of(run), run.view.state))
        views = {each.view.name: each.scope.view for each in kept if each is not run} | {name: run.scope.view}
        by_path = {view.path: view for view in views.values()}
        folder = Folder({name: view.path for name, view in views.items()}, by_path.__getitem__)
        yield files[name], one_file(run, FIRST, folder if len(views) > 1 else NO_FOLDER)
    yield FIRST, start_page(ahead[0], replace(NO_FOLDER, listed=lambda wanted: (listed, 0)), files)


def entry_of(run: Material) -> Summary:
    """The summary of a run. It is diagnosed already, so that the answer of its diagnosis is known."""
    head, known = run.head, summary_of(run.run, run.verdict)
    return replace(known, severity=head.severity, title=capital(head.title)) if known.gaps else known


def _unused(name: str, names: Collection[str]) -> str:
    """The name, with a number if an earlier run has it."""
    return next(each for each in chain([name], (f"{name} ({number})" for number in numbers(2))) if each not in names)


def file_name(name: str, taken: Set[str]) -> str:
    """A file name that every system takes, also one that does not tell capitals from small letters; none of those taken.

    >>> file_name("Qwen3 4B/seed 1", set()), file_name("a", {"a.html"}), file_name("../..", set())
    ('qwen3-4b-seed-1.html', 'a-2.html', 'run.html')
    """
    plain = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:LONGEST].rstrip("-._") or "run"
    others = (f"{plain}-{number}.html" for number in numbers(2))
    return f"{plain}.html" if f"{plain}.html" not in taken else next(other for other in others if other not in taken)
