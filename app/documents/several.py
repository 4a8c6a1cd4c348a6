"""Several runs as one folder: a start page that lists them, the worst first, and a file with all pages of each."""

import re
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import replace
from itertools import chain
from itertools import count as numbers

from ..pages.folder import NO_FOLDER, Folder, ListedRun, Summary, summary_of
from ..presentation.sentence import capital
from .document import FIRST, one_file, start_page
from .material import Material

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
