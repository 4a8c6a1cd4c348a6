"""Several runs as one folder: a start page that lists them, the worst first, and a file with all pages of each."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import count as numbers

import numpy as np

from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.coverage import NOT_MEASURED

from ..presentation.digits import count, digits
from ..presentation.escape import html as escaped
from ..presentation.gap_words import direction
from ..presentation.run_list import LARGEST, LEAST, WORDS, graded
from ..presentation.sentence import capital
from ..report import texts
from ..report.sparkline import HEIGHT, WIDTH, svg_path
from .document import FIRST, one_file
from .material import Material
from .shell import Shell, shell

LONGEST = 60
"""Characters of a file's name before its ending."""
HEAD = ("verdict", "run", "what was found", "since step", "size of the gap", "over steps", "steps")


@dataclass(frozen=True)
class ListedRun:
    """One run in the list."""

    name: str
    file: str
    verdict: str
    """One of `run_list.WORDS`."""
    found: str
    """The answer of the diagnosis, else the title of the verdict."""
    since: str
    """First step of the verdict, and whether it is over; empty for a healthy run."""
    size: str
    """The size of the gap over the whole run and its standard error, or why it is not available."""
    gap: str
    """Metric, unit and gap of `size`, in words; empty without one."""
    course: str
    """`d` of the small course: the logarithm of the size over the steps, on one scale for all runs."""
    steps: str


def folder_of(runs: Iterable[Material]) -> Iterator[tuple[str, str]]:
    """Name and content of each file, the start page last. Each run is taken when its file is wanted, and let go of then."""
    entries: list[ListedRun] = []
    taken = {FIRST}
    for run in runs:
        file = file_name(run.data.name, taken)
        taken.add(file)
        entries.append(entry_of(run, file))
        yield file, one_file(run, home=FIRST)
    yield FIRST, start_page(in_order(entries))


def in_order(entries: Iterable[ListedRun]) -> list[ListedRun]:
    """The worst verdict first; runs of one verdict as they came."""
    return sorted(entries, key=lambda entry: WORDS.index(entry.verdict))


def file_name(name: str, taken: Set[str]) -> str:
    """A file name that every system takes, also one that does not tell capitals from small letters; none of those taken.

    >>> file_name("Qwen3 4B/seed 1", set()), file_name("a", {"a.html"}), file_name("../..", set())
    ('qwen3-4b-seed-1.html', 'a-2.html', 'run.html')
    """
    plain = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:LONGEST].rstrip("-._") or "run"
    others = (f"{plain}-{number}.html" for number in numbers(2))
    return f"{plain}.html" if f"{plain}.html" not in taken else next(other for other in others if other not in taken)


def entry_of(run: Material, file: str) -> ListedRun:
    """The row of a run."""
    head, verdict, metric = run.data.diagnosis.head, run.data.verdict, BY_NAME[size_metric(run.gap)]
    score = next((score for score in run.data.scores if (score.gap, score.name) == (run.gap, metric.name)), None)
    absent = "not available, because no step has the log-probs of two policies"
    over = ", over" if verdict.until_step is not None else ""
    return ListedRun(
        name=run.data.name,
        file=file,
        verdict=graded(head.severity),
        found=capital(head.title),
        since="" if verdict.since_step is None else f"{count(verdict.since_step)}{over}",
        size=absent if score is None else texts.value_of(score),
        gap="" if score is None or score.absent else f"{metric.title} in {metric.unit}, {direction(run.gap)}",
        course=_course(run, f"{run.gap}/{metric.name}"),
        steps=count(len(run.course)),
    )


def _course(run: Material, column: str) -> str:
    if column not in run.course.columns:
        return ""
    values = run.course[column].cast(float).fill_null(np.nan).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):  # a gap of 0 lies at the bottom; one below 0 is a hole
        return svg_path(np.log10(values).tolist(), ends=(LEAST, LARGEST))


def start_page(entries: list[ListedRun]) -> str:
    """The list of the runs, each a link to its file."""
    verdicts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{count(verdicts[word])} {word.partition(' ')[2]}" for word in WORDS if verdicts[word])
    worst = entries[0].verdict if entries else graded(NOT_MEASURED)
    head = "".join(f"<th>{title}</th>" for title in HEAD)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, entries))}</tbody></table>"
    about = (
        "The worst verdict stands first. A click on a name opens the pages of the run. The small courses have one logarithmic "
        f"scale, from {digits(10.0**LEAST)} at the bottom to {digits(10.0**LARGEST)} at the top, so that runs compare."
    )
    runs = count(len(entries), "run")
    return shell(
        Shell(
            title=f"{worst.partition(' ')[0]} {runs}",
            head=f"<h1>{runs}</h1>\n<p>{escaped(said)}</p>",
            main=f'<div class="runs scroll" tabindex="0" role="region" aria-label="runs">{table}</div>\n'
            f'<p class="muted small">{escaped(about)}</p>',
            foot="This file loads nothing and sends nothing. The key t changes the theme.",
            keys={},
        )
    )


def _row(entry: ListedRun) -> str:
    severity = entry.verdict.partition(" ")[2]
    course = f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true"><path d="{entry.course}"/></svg>'
    cells = (
        f'<span class="word {escaped(severity)}">{escaped(entry.verdict)}</span>',
        f'<a href="{escaped(entry.file)}">{escaped(entry.name, 200)}</a>',
        escaped(entry.found),
        escaped(entry.since),
        f'{escaped(entry.size)}<span class="small">{escaped(entry.gap)}</span>',
        course if entry.course else "",
        escaped(entry.steps),
    )
    row = "".join(f'<td data-of="{title}">{cell}</td>' for title, cell in zip(HEAD, cells, strict=True))
    return f"<tr>{row}</tr>"
