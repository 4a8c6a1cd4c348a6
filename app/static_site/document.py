"""The files of a run's pages: one HTML file for all, or one for each. Every file holds all it needs and loads nothing."""

from collections.abc import Callable, Sequence

from ..blocks import Block
from ..pages.pages import PAGES, Page
from ..presentation.escape import html as escaped
from ..presentation.page_letters import LETTERS
from ..presentation.theme import MARKS
from .markup import Inside, charts_of, markup, whole
from .material import Material
from .shell import Shell, shell

FIRST = "index.html"
PATHS = frozenset(page.path for page in PAGES)
KEYS = {letter: path for letter, path in LETTERS.items() if path in PATHS}
HOME = next(letter for letter, path in LETTERS.items() if path == "runs")
"""The letter after `g` that leads to the list of runs."""


def one_file(run: Material, home: str = "") -> str:
    """All pages in one file, of which a browser shows one at a time. Equal data gives equal bytes.

    home: the address of the list of runs that this one is in; "" if there is none.
    """
    made = [(page, whole(page.blocks(run.scope))) for page in PAGES]
    return _document(run, made, _anchor, home)


def files(run: Material) -> dict[str, str]:
    """Name and content of a file for each page; the first page is FIRST. Equal data gives equal bytes."""
    return {_file(page.path): _document(run, [(page, whole(page.blocks(run.scope)))], _file) for page in PAGES}


def _anchor(path: str) -> str:
    return f"#{path}"


def _file(path: str) -> str:
    return FIRST if path == PAGES[0].path else f"{path}.html"


def _document(
    run: Material, made: Sequence[tuple[Page, tuple[Block, ...]]], address: Callable[[str], str], home: str = ""
) -> str:
    drawn = {figure.name: figure for _, blocks in made for figure in map(run.drawn, charts_of(blocks))}
    inside = Inside(run.drawn, address, PATHS)
    severity = run.data.diagnosis.head.severity
    here, current = (made[0][0].title, made[0][0].path) if len(made) == 1 else ("pages", "")
    name = run.data.name
    word = f'<span class="word {severity}">{MARKS[severity]} {severity}</span>'
    keys = {**({HOME: home} if home else {}), **{letter: address(path) for letter, path in KEYS.items()}}
    return shell(
        Shell(
            title=f"{MARKS[severity]} {escaped(here)} · {escaped(name, 200)}",
            head=f"<h1>{escaped(name, 400)} {word}</h1>\n{_navigation(address, current, home)}",
            main="\n".join(_section(page, blocks, inside) for page, blocks in made),
            foot=_footer(run, is_listed=bool(home)),
            keys=keys,
            drawn=drawn,
        )
    )


def _section(page: Page, blocks: tuple[Block, ...], inside: Inside) -> str:
    return f'<section class="page" id="{page.path}"><h2>{page.title}</h2>\n{markup(blocks, inside)}\n</section>'


def _navigation(address: Callable[[str], str], current: str, home: str) -> str:
    letters = {path: letter for letter, path in KEYS.items()}
    back = f'<a href="{escaped(home)}" title="key: g {HOME}">‹ All runs</a>' if home else ""
    links = "".join(
        f'<a href="{address(page.path)}"{_here(page, current)}{_key(letters.get(page.path, ""))}>{page.title}</a>'
        for page in PAGES
    )
    return f'<nav aria-label="pages">{back}{links}</nav>'


def _key(letter: str) -> str:
    return f' title="key: g {letter}"' if letter else ""


def _here(page: Page, current: str) -> str:
    return ' aria-current="page"' if page.path == current else ""


def _footer(run: Material, *, is_listed: bool) -> str:
    made = run.data.reproduction
    keys = ", ".join(f"g {letter} {path}" for letter, path in KEYS.items())
    back = f", g {HOME} all runs" if is_listed else ""
    return (
        f"ratioscope {escaped(made.version)} made this from input {escaped(made.digest[:12])}. This file loads nothing and sends"
        f" nothing. Keys: {keys}{back}; t changes the theme."
    )
